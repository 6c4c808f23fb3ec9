package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limits of Schedule and RetryAfter.
const (
	DefaultBase = time.Second
	DefaultMax  = 5 * time.Minute
	// MinDelay is the shortest delay that Schedule gives, so that an unlucky
	// draw near zero does not turn a retry into a second immediate attempt.
	MinDelay = 50 * time.Millisecond
	// MaxRetryAfter is the cap that Client puts on a target's Retry-After.
	MaxRetryAfter = time.Hour
)

// Schedule spaces attempts by exponential back-off with full jitter: the delay is
// drawn uniformly below a ceiling that doubles, which spreads the retries of many
// messages that failed at one moment.
type Schedule struct {
	Base time.Duration // ceiling after the first failure; 0 means DefaultBase
	Max  time.Duration // largest ceiling; 0 means DefaultMax
}

// Delay is the wait before the next attempt. attempt counts the retries already
// made: 0 after the first failure. rnd returns a uniform number in [0, 1), for
// example math/rand/v2.Float64. The result lies in [MinDelay, c], where c is
// min(Max, Base*2^attempt), or is MinDelay where c is smaller than that.
func (s Schedule) Delay(attempt int, rnd func() float64) time.Duration {
	return max(MinDelay, time.Duration(rnd()*float64(s.ceiling(attempt))))
}

func (s Schedule) ceiling(attempt int) time.Duration {
	base, limit := s.Base, s.Max
	if base <= 0 {
		base = DefaultBase
	}
	if limit <= 0 {
		limit = DefaultMax
	}
	attempt = max(attempt, 0)
	// Comparing from the limit's side cannot overflow.
	if attempt >= 63 || base > limit>>attempt {
		return limit
	}
	return base << attempt
}

// RetryAfter reads the Retry-After header (RFC 9110, 10.2.3), as delta-seconds or
// as an HTTP-date relative to now. The wait is at least 0 and at most limit, also
// for numbers too large for any integer. It is false if the header is absent or
// malformed.
func RetryAfter(h http.Header, now time.Time, limit time.Duration) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	if strings.Trim(v, "0123456789") == "" {
		secs, err := strconv.ParseInt(v, 10, 64)
		if err != nil || secs > int64(limit/time.Second) {
			return limit, true
		}
		return time.Duration(secs) * time.Second, true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), limit), true
}
