package delivery

import (
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// Verdict is what a test can see of a verdict.
type Verdict struct {
	Delivered bool
	RetryIn   time.Duration
	Dead      Reason
	Gone      bool
	Attempts  int
}

// Judge judges an attempt made at now, with the longest jitter.
func Judge(p Pending, r Route, res webhook.Result, now time.Time) Verdict {
	v := judge(
		p, r, backoff.Schedule{Min: webhook.MinDelay, Base: time.Second, Max: 5 * time.Minute}, res, now,
		func() float64 { return 1 },
	)
	out := Verdict{Delivered: v.delivered, Dead: v.dead, Gone: v.gone, Attempts: v.delivery.Attempts}
	if !v.retryAt.IsZero() {
		out.RetryIn = v.retryAt.Sub(now)
	}
	return out
}

// Horizon is horizon with the schedule of the engine.
func Horizon(r Route) time.Duration {
	return horizon(r, backoff.Schedule{Min: webhook.MinDelay, Base: time.Second, Max: 5 * time.Minute})
}

// NudgedAtItsEnd ends a worker of a route, which may have been nudged after its last look, and
// reports whether the engine knows that the route has something to do.
func NudgedAtItsEnd(e *Engine, routeID string, nudged bool) bool {
	w := e.startWorker(routeID, allShards(), false)
	if nudged {
		e.startWorker(routeID, allShards(), false)
	}
	e.endWorker(w)
	_, woken := e.woken[routeID]
	return woken && len(e.poke) == 1
}

var (
	Share     = share
	AllShards = allShards
	MessageID = messageID
)
