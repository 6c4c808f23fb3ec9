package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// Periodic is work that one process repeats and that needs no row.
type Periodic struct {
	Name     string // for the log
	Interval time.Duration
	// Jitter spreads replicas: each wait is Interval times a factor between
	// 1-Jitter and 1+Jitter. 0 means none, and then Rand is not needed.
	Jitter float64
	// Nudge starts the work early; the interval restarts after it. Work that is nudged constantly
	// rests four times as long as it took, but at most for the interval, so that it never takes
	// more than a fifth of a processor. May be nil.
	Nudge <-chan struct{}
	Run   func(ctx context.Context) error
	Log   *slog.Logger
	Rand  func() float64 // in [0, 1)
}

const restFactor = 4

// Every runs the work immediately, and again an interval after its end, until ctx ends. Errors and
// panics are logged, and panics counted; they never end the loop. Every panics if the interval is
// not positive.
func Every(ctx context.Context, p Periodic) {
	if p.Interval <= 0 {
		panic(fmt.Sprintf("jobs: %s: the interval must be positive", p.Name))
	}
	nudge, trouble := p.Nudge, telemetry.NewTrouble(p.Log, "periodic work failed: "+p.Name)
	for ctx.Err() == nil {
		began := time.Now()
		if err := p.once(ctx); ctx.Err() == nil {
			trouble.Report(err)
		}
		wait := p.Interval
		if p.Jitter > 0 {
			wait = time.Duration(float64(wait) * (1 + p.Jitter*(2*p.Rand()-1)))
		}
		rest := min(restFactor*time.Since(began), wait)
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		timer.Reset(wait - rest)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case _, open := <-nudge:
			if !open {
				nudge = nil // a closed channel would nudge forever
			}
		}
		timer.Stop()
	}
}

func (p *Periodic) once(ctx context.Context) error {
	return routine.Call(p.Log, p.Name, func() error { return p.Run(ctx) })
}
