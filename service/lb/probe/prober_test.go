package probe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// world is a network in a synctest bubble: what happens to a connection is up to the
// test, and everything that the prober does is written down.
type world struct {
	*probe.Prober
	stop func()

	mu       sync.Mutex
	outcome  map[netip.AddrPort]error // nil connects, stuck never answers
	probes   map[netip.AddrPort][]time.Time
	changes  []string
	underWay int
	most     int // underWay at its peak
	measured int
}

var (
	stuck    = errors.New("stuck")
	refused  = errors.New("refused")
	unlisted error // a backend that the test says nothing of connects
)

func newWorld(t *testing.T) *world {
	w := &world{outcome: map[netip.AddrPort]error{}, probes: map[netip.AddrPort][]time.Time{}}
	w.Prober = probe.New(probe.Options{
		Log:  slog.New(slog.DiscardHandler),
		Dial: w.dial,
		OnChange: func(id probe.ID, healthy bool, reason string) {
			w.locked(
				func() { w.changes = append(w.changes, fmt.Sprintf("%s %t %s", id.Backend.Address, healthy, reason)) },
			)
		},
		OnProbe: func(time.Duration, bool) { w.locked(func() { w.measured++ }) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return w
}

func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) dial(ctx context.Context, _ probe.ID, address netip.AddrPort) (net.Conn, error) {
	outcome := unlisted
	w.locked(func() {
		w.probes[address] = append(w.probes[address], time.Now())
		w.underWay++
		w.most = max(w.most, w.underWay)
		outcome = w.outcome[address]
	})
	defer w.locked(func() { w.underWay-- })
	switch outcome {
	case nil:
		time.Sleep(time.Millisecond)
		ours, theirs := net.Pipe()
		theirs.Close()
		return ours, nil
	case stuck:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, outcome
}

// let sets what happens to connections to address from now on.
func (w *world) let(address netip.AddrPort, outcome error) {
	w.locked(func() { w.outcome[address] = outcome })
}

// seen is what OnChange was told since it was last asked.
func (w *world) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.changes = nil }()
	return w.changes
}

func (w *world) times(address netip.AddrPort) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.probes[address])
}

func (w *world) set(t *testing.T, checks ...probe.Check) {
	t.Helper()
	if err := w.Set(checks); err != nil {
		t.Fatal(err)
	}
}

func (w *world) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := w.seen(); !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
}

// dialled is a check through Options.Dial of the nth backend.
func dialled(n int) probe.Check {
	c := check(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 80))
	c.Direct = false
	return c
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestProbesBeginSpreadOutAndComeEveryIntervalGiveOrTakeATenth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		var checks []probe.Check
		for n := range 1000 {
			checks = append(checks, dialled(n))
		}
		start := time.Now()
		w.set(t, checks...)
		pass(time.Minute)
		instants := map[time.Time]int{}
		for _, c := range checks {
			times := w.times(c.Address)
			if first := times[0].Sub(start); first > 200*time.Millisecond {
				t.Fatalf("the first probe of %s came after %s", c.Address, first)
			}
			instants[times[0].Truncate(10*time.Millisecond)]++
			for i := 1; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap < 1800*time.Millisecond || gap > 2200*time.Millisecond {
					t.Fatalf("%s passed between probes of %s", gap, c.Address)
				}
			}
		}
		for at, n := range instants {
			if n > 120 { // 50 are expected
				t.Errorf("%d of the first probes began within 10 ms at %s", n, at)
			}
		}
		w.locked(func() {
			if w.measured < 1000*25 || len(w.changes) != 1000 {
				t.Errorf("%d probes were measured and %d changes told", w.measured, len(w.changes))
			}
		})
	})
}

func TestChangesAreToldOnceWithTheirReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		c := dialled(1)
		w.set(t, c)
		pass(300 * time.Millisecond)
		w.expect(t, "10.0.0.1 true connected")
		w.let(c.Address, refused)
		pass(4500 * time.Millisecond)
		w.expect(t) // two failures, three are needed
		pass(2200 * time.Millisecond)
		w.expect(t, "10.0.0.1 false refused")
		w.let(c.Address, nil)
		pass(2300 * time.Millisecond)
		w.expect(t)
		pass(2300 * time.Millisecond)
		w.expect(t, "10.0.0.1 true connected")
		w.let(c.Address, stuck)
		pass(11 * time.Second)
		w.expect(t, "10.0.0.1 false timeout after 1s")
		pass(time.Hour)
		w.expect(t)
	})
}

func TestAKnownStateNeedsAsManyResultsAsAnyOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		up, down := dialled(1), dialled(2)
		up.Initial, down.Initial = new(true), new(false)
		w.let(up.Address, refused)
		w.set(t, up, down)
		pass(300 * time.Millisecond)
		w.expect(t)
		pass(2300 * time.Millisecond)
		w.expect(t, "10.0.0.2 true connected")
		pass(2300 * time.Millisecond)
		w.expect(t, "10.0.0.1 false refused")
	})
}

func TestUnchangedChecksKeepCountersAndSchedule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		c := dialled(1)
		w.set(t, c)
		pass(300 * time.Millisecond)
		w.let(c.Address, refused)
		w.seen()
		// A Set every 100 ms would put off the probes, or begin the count anew.
		for n := range 80 {
			c.Initial = new(n%2 == 0) // of no consequence, as it is not new
			w.set(t, c, dialled(2+n))
			pass(100 * time.Millisecond)
		}
		if !slices.Contains(w.seen(), "10.0.0.1 false refused") {
			t.Errorf("not down after %d probes", len(w.times(c.Address)))
		}
		if n := len(w.times(c.Address)); n < 4 || n > 5 {
			t.Errorf("%d probes in 8 s", n)
		}
	})
}

func TestAChangedCheckBeginsAnewFromItsState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		c := dialled(1)
		c.Interval = time.Hour
		w.set(t, c)
		pass(300 * time.Millisecond)
		w.expect(t, "10.0.0.1 true connected")
		w.let(c.Address, refused)
		c.Interval, c.Fall, c.Initial = time.Minute, 2, new(false) // it is known better than that
		w.set(t, c)
		pass(300 * time.Millisecond)
		if n := len(w.times(c.Address)); n != 2 {
			t.Errorf("%d probes, not at once after the change", n)
		}
		w.expect(t)
		pass(67 * time.Second)
		w.expect(t, "10.0.0.1 false refused")
	})
}

func TestARemovedCheckIsProbedAndToldOfNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		waiting, underWay, kept := dialled(1), dialled(2), dialled(3)
		w.let(underWay.Address, stuck)
		w.set(t, waiting, underWay, kept)
		pass(300 * time.Millisecond)
		w.seen()
		w.set(t, kept)
		pass(time.Minute)
		w.expect(t)
		if a, b := len(w.times(waiting.Address)), len(w.times(underWay.Address)); a != 1 || b != 1 {
			t.Errorf("%d and %d probes of removed checks", a, b)
		}
		if n := len(w.times(kept.Address)); n < 27 {
			t.Errorf("%d probes of the kept one", n)
		}
	})
}

func TestBackendsThatNeverAnswerDoNotDelayTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		const dead, alive = 4500, 20
		var checks []probe.Check
		for n := range dead + alive {
			c := dialled(n)
			c.Timeout = 2 * time.Second
			if n < dead {
				w.let(c.Address, stuck)
			}
			checks = append(checks, c)
		}
		w.set(t, checks...)
		// Nothing is known of them at first, so that they stand in one line.
		pass(10 * time.Second)
		known := time.Now()
		pass(time.Minute)
		for _, c := range checks[dead:] {
			times := slices.DeleteFunc(w.times(c.Address), func(at time.Time) bool { return at.Before(known) })
			if len(times) < 27 {
				t.Errorf("%d probes of %s in a minute", len(times), c.Address)
			}
		}
		// The dead ones share their places: 2048 probes of 2 s at a time for 4500.
		for _, c := range checks[:dead] {
			if n := len(w.times(c.Address)); n < 10 {
				t.Fatalf("%d probes of %s", n, c.Address)
			}
		}
		if w.most > probe.MaxUnderWay {
			t.Errorf("%d probes were under way at once", w.most)
		}
	})
}

func TestRunEndsWithItsProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var checks []probe.Check
		for n := range 3000 {
			w.let(dialled(n).Address, stuck)
			checks = append(checks, dialled(n))
		}
		w.set(t, checks...)
		pass(300 * time.Millisecond)
		before := time.Now()
		w.stop()
		if took := time.Since(before); took > 0 || w.underWay > 0 {
			t.Errorf("it took %s and left %d probes", took, w.underWay)
		}
		w.expect(t) // what was cut off is not a failure
	})
}

func TestCallbacksMayCallSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		var p *probe.Prober
		p = probe.New(probe.Options{
			Dial: func(context.Context, probe.ID, netip.AddrPort) (net.Conn, error) { return nil, refused },
			OnChange: func(id probe.ID, _ bool, _ string) {
				if told++; told < 5 {
					if err := p.Set([]probe.Check{dialled(told)}); err != nil {
						t.Error(err)
					}
				}
			},
		})
		if err := p.Set([]probe.Check{dialled(0)}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Run(ctx); err != nil || told != 5 {
			t.Errorf("told %d times, %v", told, err)
		}
	})
}
