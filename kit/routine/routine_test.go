package routine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

func TestAPanicIsLoggedCountedAndReturned(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	before := testutil.ToFloat64(routine.Panics.WithLabelValues("broken"))
	if err := routine.Run(log, "fine", func() {}); err != nil {
		t.Error(err)
	}
	if err := routine.Run(log, "broken", func() { panic("boom") }); err == nil || err.Error() != "broken: panic: boom" {
		t.Error(err)
	}
	if text := out.String(); !strings.Contains(text, "goroutine=broken panic=boom stack=") ||
		strings.Contains(text, "fine") {
		t.Error(text)
	}
	if n := testutil.ToFloat64(routine.Panics.WithLabelValues("broken")) - before; n != 1 {
		t.Errorf("counted %v", n)
	}
}

func TestAGoroutineThatPanicsDoesNotEndTheProcess(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	routine.Go(slog.New(slog.DiscardHandler), "once", func() { defer close(done); panic("boom") })
	<-done
}

func TestACallReturnsItsErrorOrThatOfItsPanic(t *testing.T) {
	t.Parallel()
	log, failed := slog.New(slog.DiscardHandler), errors.New("failed")
	for want, f := range map[string]func() error{
		"<nil>":               func() error { return nil },
		"failed":              func() error { return failed },
		"result: panic: boom": func() error { panic("boom") },
	} {
		if err := routine.Call(log, "result", f); fmt.Sprint(err) != want {
			t.Errorf("Call: %v, want %s", err, want)
		}
		if err := <-routine.Start(log, "result", f); fmt.Sprint(err) != want {
			t.Errorf("Start: %v, want %s", err, want)
		}
	}
}

func TestALoopThatPanicsIsStartedAgainLaterAndLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		routine.Keep(t.Context(), slog.New(slog.DiscardHandler), "loop", func(context.Context) {
			at = append(at, time.Since(began))
			if len(at) < 4 {
				panic("boom")
			}
		})
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}
		for i := range want {
			if len(at) != len(want) || at[i] != want[i] {
				t.Fatalf("started at %v, want %v", at, want)
			}
		}
	})
}

func TestALoopThatPanicsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		calls := 0
		routine.Keep(ctx, slog.New(slog.DiscardHandler), "loop", func(context.Context) { calls++; panic("boom") })
		if calls < 60 || calls > 70 { // 1+2+...+32 s, and then one a minute
			t.Errorf("called %d times in an hour", calls)
		}
	})
}
