package auth_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// windowed is a Window with a clock.
type windowed struct {
	*testing.T
	*auth.Window
	at time.Time
}

func newWindow(t *testing.T, limit int, span time.Duration, maxKeys int) *windowed {
	w := &windowed{T: t, at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.Window = auth.NewWindow(limit, span, maxKeys, func() time.Time { return w.at })
	return w
}

// fail makes a failed attempt, and reports whether it was allowed.
func (w *windowed) fail(key string) bool {
	done, err := w.Begin(key)
	if err != nil {
		return false
	}
	done(true)
	return true
}

// failUntilRefused counts the attempts that are allowed.
func (w *windowed) failUntilRefused(key string) (n int) {
	for w.fail(key) {
		n++
	}
	return n
}

func TestAWindowSlidesOverFailures(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 5, 5*time.Minute, 100)
	for range 5 { // one a minute, the first at 0:00
		if !w.fail("anna") {
			t.Fatal("refused too early")
		}
		w.at = w.at.Add(time.Minute)
	}
	w.at = w.at.Add(-time.Second) // 4:59
	_, err := w.Begin("anna")
	if f := fault.From(err); f == nil || f.Kind != fault.TooMany || f.Code != "login_throttled" ||
		f.RetryAfter != time.Second {
		t.Errorf("the sixth within five minutes: %v", err)
	}
	if !w.fail("bert") {
		t.Error("another key is refused")
	}
	w.at = w.at.Add(time.Second) // 5:00: the first failure is let go of, and no other
	if !w.fail("anna") || w.fail("anna") {
		t.Error("after five minutes one attempt is admitted")
	}
}

func TestASuccessClearsOnlyItsUser(t *testing.T) {
	t.Parallel()
	users, all := newWindow(t, 2, time.Minute, 100), newWindow(t, 3, time.Minute, 1)
	users.fail("anna")
	all.fail("")
	done, err := users.Begin("anna")
	if err != nil {
		t.Fatal(err)
	}
	done(false)
	users.Clear("anna")
	if n := users.failUntilRefused("anna"); n != 2 {
		t.Errorf("after a success its user may fail %d times, not 2", n)
	}
	if n := all.failUntilRefused(""); n != 2 {
		t.Errorf("after one failure of three, and a success of one user, all may fail %d times, not 2", n)
	}
}

func TestConcurrentAttemptsDoNotOutnumberAWindow(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 3, time.Minute, 100)
	var ends []func(bool)
	for range 3 {
		done, err := w.Begin("anna")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	if _, err := w.Begin("anna"); err == nil {
		t.Error("a fourth is admitted while three are under way")
	}
	ends[0](false)
	ends[0](true) // only the first call counts
	if !w.fail("anna") || w.fail("anna") {
		t.Error("one that ended well makes room for one")
	}
}

func TestAWindowForgetsTheKeyThatWasUnusedLongest(t *testing.T) {
	t.Parallel()
	w := newWindow(t, 1, time.Hour, 10)
	for i := range 11 {
		w.fail(fmt.Sprint(i))
	}
	if !w.fail("0") || w.fail("10") {
		t.Error("the oldest of eleven keys is forgotten, and no other")
	}
}
