package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/jobs"
)

func TestPeriodicWorkRunsAtOnceThenEveryIntervalDespiteErrorsAndPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start, runs := time.Now(), []time.Duration(nil)
		jobs.Every(ctx, jobs.Periodic{
			Name: "p", Interval: time.Minute, Log: slog.New(slog.DiscardHandler),
			Run: func(context.Context) error {
				runs = append(runs, time.Since(start))
				switch len(runs) {
				case 1:
					return errors.New("no")
				case 2:
					panic("no")
				}
				cancel()
				return nil
			},
		})
		if len(runs) != 3 || runs[0] != 0 || runs[1] != time.Minute || runs[2] != 2*time.Minute {
			t.Errorf("ran at %v", runs)
		}
	})
}

func TestPeriodicWorkIsNudgedAndJittered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		nudge := make(chan struct{}, 1)
		start, runs := time.Now(), []time.Duration(nil)
		jobs.Every(ctx, jobs.Periodic{
			Name:     "p",
			Interval: time.Minute,
			Jitter:   0.5,
			Rand:     func() float64 { return 0 },
			Nudge:    nudge,
			Log:      slog.New(slog.DiscardHandler),
			Run: func(context.Context) error {
				runs = append(runs, time.Since(start))
				switch len(runs) {
				case 1:
					nudge <- struct{}{}
				case 2:
					close(nudge) // one more at once, and then no busy loop
				case 4:
					cancel()
				}
				return nil
			},
		})
		if want := [4]time.Duration{0, 0, 0, 0}; len(runs) != 4 || runs[1] != want[1] || runs[3] < 30*time.Second {
			t.Errorf("ran at %v", runs)
		}
	})
}

func TestNudgedWorkRestsInProportionToWhatItTook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		nudge := make(chan struct{}, 1)
		runs := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			jobs.Every(ctx, jobs.Periodic{
				Name:     "count",
				Interval: time.Minute,
				Nudge:    nudge,
				Log:      slog.New(slog.DiscardHandler),
				Run: func(context.Context) error {
					runs++
					time.Sleep(100 * time.Millisecond)
					return nil
				},
			})
		}()
		for range 1000 { // 10 s of nudges without a pause
			select {
			case nudge <- struct{}{}:
			default:
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if runs < 18 || runs > 22 {
			t.Errorf("ran %d times in 10 s, want about 20", runs)
		}
		cancel()
		<-done
	})
}
