package ceph

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

func TestACallIsLetThroughAfterEachPauseUntilOneIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{now: time.Now}
		silent := fault.New(fault.Unavailable, "silent")
		for range 3 { // calls that were under way together
			if err := b.allow(); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			b.silent(silent)
		}
		for _, pause := range []time.Duration{5, 10, 20, 40, 60, 60} {
			pause *= time.Second
			if f := fault.From(b.allow()); f == nil || f.Kind != fault.Unavailable || f.RetryAfter != pause {
				t.Fatalf("before %s are over: %+v", pause, f)
			}
			time.Sleep(pause)
			if err := b.allow(); err != nil {
				t.Fatalf("after %s: %v", pause, err)
			}
			if b.allow() == nil {
				t.Fatal("a second call is let through")
			}
			b.undecided()
			if err := b.allow(); err != nil {
				t.Fatalf("after one that was given up: %v", err)
			}
			b.silent(silent)
		}
		time.Sleep(maxPause)
		if err := b.allow(); err != nil {
			t.Fatal(err)
		}
		b.answered()
		for range 2 {
			if err := b.allow(); err != nil {
				t.Errorf("after an answer: %v", err)
			}
		}
	})
}
