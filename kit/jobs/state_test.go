package jobs_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/jobs"
)

func TestRandomWalksOfTheStateMachineKeepItsPromises(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a fixed seed, for the same walks every time
	for range 5000 {
		s := jobs.Status{State: jobs.Available, MaxAttempts: 1 + random.Int64N(4)}
		claims, handBacks, asked := int64(0), int64(0), false
		for range 40 {
			e := jobs.Event(random.IntN(int(jobs.NumEvents)))
			next, ok := s.On(e)
			if !ok {
				if next != s {
					t.Fatalf("%+v: event %d is refused and yet changes it to %+v", s, e, next)
				}
				continue
			}
			switch {
			case s.State.Finished():
				t.Fatalf("%+v: event %d moves a finished job", s, e)
			case e == jobs.Claimed:
				claims++
			case e == jobs.HandedBack && next.State == jobs.Available:
				handBacks++
			case e == jobs.CancelAsked:
				asked = true
			}
			if next.State == jobs.Succeeded && e != jobs.OnSucceeded {
				t.Fatalf("%+v: event %d makes it succeed", s, e)
			}
			if asked && next.State == jobs.Available {
				t.Fatalf("%+v: event %d lets a job run again that was cancelled", s, e)
			}
			if next.State == jobs.Cancelled && !asked {
				t.Fatalf("%+v: event %d cancels a job that nobody asked to cancel", s, e)
			}
			s = next
			if s.Attempt != claims-handBacks || s.Attempt > s.MaxAttempts || s.CancelRequested != asked {
				t.Fatalf("%+v after %d claims, %d hand-backs, cancel asked: %t", s, claims, handBacks, asked)
			}
		}
	}
}

func TestBackoffDoublesFromASecondToFiveMinutesUnderFullJitter(t *testing.T) {
	t.Parallel()
	for attempt, ceiling := range map[int64]time.Duration{
		1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 9: 256 * time.Second,
		10: 5 * time.Minute, 11: 5 * time.Minute, 1 << 40: 5 * time.Minute,
	} {
		if got := jobs.Backoff(attempt, 0.5); got != ceiling/2 {
			t.Errorf("attempt %d: %v at the middle, want %v", attempt, got, ceiling/2)
		}
		if got := jobs.Backoff(attempt, 0); got != 0 {
			t.Errorf("attempt %d: %v at least, want 0", attempt, got)
		}
	}
}
