package simulator

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// kind is the purpose of a request.
type kind int

const (
	kindEnroll kind = iota
	kindRegister
	kindHeartbeat
	kindPull
	kindEvents
	kindTwin
	kindOTA
	kindDeployment
	kinds
)

var kindNames = [kinds]string{"enroll", "register", "heartbeat", "pull", "events", "twin", "ota", "deployment"}

// counters are shared by all workers.
type counters struct {
	enrolled, registered                         atomic.Int64
	online                                       atomic.Int64 // sites whose last request got a response
	unanswered, refused, revoked                 atomic.Int64
	eventsMade, eventsSent, eventsLost, repeated atomic.Int64
	otaStarted, otaSucceeded, otaFailed          atomic.Int64
	outages                                      atomic.Int64
	latencies                                    [kinds]histogram
}

// Stats holds the results of a fleet so far.
type Stats struct {
	Sites   int   `json:"sites"`
	Devices int   `json:"devices"`
	Online  int64 `json:"sites_online"`
	// Enrolled and Registered are how many sites and devices the server knows.
	Enrolled   int64 `json:"sites_enrolled"`
	Registered int64 `json:"devices_registered"`
	// Unanswered requests are retried later; refused ones (4xx) are not.
	Unanswered int64 `json:"requests_unanswered"`
	Refused    int64 `json:"requests_refused"`
	Revoked    int64 `json:"sites_revoked"`
	EventsMade int64 `json:"events_made"`
	EventsSent int64 `json:"events_acknowledged"`
	// EventsRepeated are events that were sent again, because a response was lost or as a test, and
	// that the server recognised as duplicates.
	EventsRepeated int64 `json:"events_recognised_as_repeated"`
	// EventsDropped were discarded because the site's buffer was full.
	EventsDropped int64              `json:"events_dropped"`
	OTAStarted    int64              `json:"updates_started"`
	OTASucceeded  int64              `json:"updates_succeeded"`
	OTAFailed     int64              `json:"updates_failed"`
	Outages       int64              `json:"outages"`
	Latency       map[string]Latency `json:"latency"`
}

// Latency summarizes the requests of one kind that got a response.
type Latency struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// histogram counts durations in buckets that are an eighth of a power of two
// wide, so a percentile is at most 12.5 % too high.
type histogram struct {
	buckets [40 * 8]atomic.Int64
	max     atomic.Int64 // microseconds
}

func (h *histogram) add(d time.Duration) {
	us := max(d.Microseconds(), 0)
	h.buckets[bucketOf(us)].Add(1)
	for {
		was := h.max.Load()
		if us <= was || h.max.CompareAndSwap(was, us) {
			return
		}
	}
}

func bucketOf(us int64) int {
	if us < 8 {
		return int(us)
	}
	power := bits.Len64(uint64(us)) - 4 // the three bits below the highest one divide the power
	return min(power*8+int(us>>power), 40*8-1)
}

// upperBound returns the largest value of a bucket.
func upperBound(bucket int) int64 {
	if bucket < 16 {
		return int64(bucket)
	}
	power := bucket/8 - 1
	return int64(bucket-power*8+1)<<power - 1
}

func (h *histogram) sum() Latency {
	var counts [len(h.buckets)]int64
	var total int64
	for i := range h.buckets {
		counts[i] = h.buckets[i].Load()
		total += counts[i]
	}
	highest := h.max.Load()
	percentile := func(p float64) float64 {
		seen, want := int64(0), int64(p*float64(total)+0.999999)
		for i, n := range counts {
			if seen += n; n > 0 && seen >= want {
				return float64(min(upperBound(i), highest)) / 1000
			}
		}
		return 0
	}
	return Latency{Count: total, P50: percentile(0.50), P99: percentile(0.99), Max: float64(highest) / 1000}
}
