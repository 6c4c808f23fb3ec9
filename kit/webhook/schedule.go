package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// MinDelay is the shortest delay before another attempt at a message.
	MinDelay = 50 * time.Millisecond
	// MaxRetryAfter is Client's limit on a target's Retry-After.
	MaxRetryAfter = time.Hour
)

// RetryAfter parses the Retry-After header (RFC 9110, 10.2.3), as delta-seconds or as an HTTP-date
// relative to now. The wait is at least 0 and at most limit, even for numbers that fit no integer.
// It returns false if the header is absent or malformed.
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
