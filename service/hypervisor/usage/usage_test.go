package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// process is a process by its identity alone.
type process struct {
	backend.Instance
	_ int
}

// host is a host whose VMs a test sets.
type host struct {
	log bytes.Buffer

	mu       sync.Mutex
	running  map[string]backend.Instance
	counters map[string]backend.Metrics
	wedged   map[string]bool
	reading  int // VMs that are read at the moment, and the most at once
	most     int
	refusal  error
	samples  []record.UsageSample
}

func newHost(vms ...string) *host {
	h := &host{running: map[string]backend.Instance{}, counters: map[string]backend.Metrics{}, wedged: map[string]bool{}}
	for _, id := range vms {
		h.running[id] = new(process)
	}
	return h
}

func (h *host) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *host) read(ctx context.Context, id string) (backend.Metrics, error) {
	h.mu.Lock()
	h.reading++
	h.most = max(h.most, h.reading)
	wedged, counters := h.wedged[id], h.counters[id]
	h.mu.Unlock()
	defer h.set(func() { h.reading-- })
	if wedged {
		<-ctx.Done()
		return backend.Metrics{}, ctx.Err()
	}
	time.Sleep(time.Millisecond)
	return counters, nil
}

// run samples until the test ends. It returns a function that ends it before.
func (h *host) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := New(Config{
		Running: func() map[string]backend.Instance {
			h.mu.Lock()
			defer h.mu.Unlock()
			running := map[string]backend.Instance{}
			for id, p := range h.running {
				running[id] = p
			}
			return running
		},
		Read: h.read,
		Store: func(ctx context.Context, samples []record.UsageSample) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.refusal == nil {
				h.samples = append(h.samples, samples...)
			}
			return errors.Join(h.refusal, ctx.Err())
		},
		Log: slog.New(slog.NewTextHandler(&h.log, nil)), Now: time.Now,
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// taken are the samples of a VM since the last call, as "seconds: cpu memory read".
func (h *host) taken(id string) (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var others []record.UsageSample
	for _, u := range h.samples {
		if u.VM != id {
			others = append(others, u)
			continue
		}
		out = append(out, fmt.Sprintf("%.0f: %g %d %d", u.Measured.Seconds(), u.CPU.Seconds(), u.MemoryBytes, u.DiskReadBytes))
	}
	h.samples = others
	return out
}

func TestAVMIsMeasuredEveryTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a")
		h.counters["a"] = backend.Metrics{CPUSeconds: 100, MemoryBytes: 7, DiskReadBytes: 1000}
		stop := h.run(t)
		time.Sleep(5 * time.Second)
		if got := h.taken("a"); got != nil {
			t.Errorf("after the first reading: %v", got)
		}
		h.set(func() { h.counters["a"] = backend.Metrics{CPUSeconds: 105, MemoryBytes: 8, DiskReadBytes: 1500} })
		time.Sleep(20 * time.Second)
		if got := h.taken("a"); fmt.Sprint(got) != "[10: 5 8 500 10: 0 8 0]" {
			t.Errorf("%v", got)
		}
		// Its process is started again, and then it ends.
		h.set(func() {
			h.running["a"], h.counters["a"] = new(process), backend.Metrics{CPUSeconds: 300, MemoryBytes: 9, DiskReadBytes: 2000}
		})
		time.Sleep(10 * time.Second)
		if got := h.taken("a"); fmt.Sprint(got) != "[10: 300 9 2000]" {
			t.Errorf("of a new process: %v", got)
		}
		// The counters of a process that stays begin again.
		h.set(func() { h.counters["a"] = backend.Metrics{CPUSeconds: 301, MemoryBytes: 9, DiskReadBytes: 20} })
		time.Sleep(10 * time.Second)
		if got := h.taken("a"); fmt.Sprint(got) != "[10: 1 9 20]" {
			t.Errorf("of a counter that fell: %v", got)
		}
		h.set(func() { delete(h.running, "a") })
		time.Sleep(time.Minute)
		h.set(func() { h.running["a"] = new(process) })
		time.Sleep(5 * time.Second)
		stop()
		if got := h.taken("a"); got != nil {
			t.Errorf("while it did not run: %v", got)
		}
	})
}

func TestAVMThatDoesNotAnswerDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a", "b", "c")
		for i := range 40 {
			id := fmt.Sprint("wedged", i)
			h.running[id], h.wedged[id] = new(process), true
		}
		defer h.run(t)()
		time.Sleep(time.Minute) // each wedged VM holds up the others once
		for _, id := range []string{"a", "b", "c"} {
			h.taken(id)
		}
		time.Sleep(time.Minute)
		for _, id := range []string{"a", "b", "c"} {
			if got := h.taken(id); len(got) != 6 {
				t.Errorf("%s: %v", id, got)
			}
		}
		if h.most > atOnce+silentAtOnce {
			t.Errorf("%d are read at once", h.most)
		}
	})
}

func TestNothingIsConcludedOverMoreThanAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a")
		defer h.run(t)()
		time.Sleep(15 * time.Second)
		h.set(func() { h.wedged["a"] = true })
		h.taken("a")
		time.Sleep(2 * time.Minute)
		h.set(func() { h.wedged["a"], h.counters["a"] = false, backend.Metrics{CPUSeconds: 50} })
		time.Sleep(30 * time.Second)
		for _, got := range h.taken("a") {
			if got != "10: 0 0 0" {
				t.Errorf("%s", got)
			}
		}
	})
}

func TestARefusalOfTheDatabaseIsLoggedOnceAndTheDaemonKeepsMeasuring(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a")
		h.refusal = errors.New("the disk is full")
		stop := h.run(t)
		time.Sleep(5*time.Minute + 5*time.Second)
		h.set(func() { h.refusal = nil })
		time.Sleep(time.Minute)
		stop()
		if got := h.taken("a"); len(got) != 6 {
			t.Errorf("%v", got)
		}
		if text := h.log.String(); strings.Count(text, "the disk is full") != 1 || strings.Count(text, "stored again") != 1 ||
			strings.Count(text, "\n") != 2 {
			t.Errorf("%s", text)
		}
	})
}

func TestWhatWasMeasuredIsStoredBeforeTheDaemonEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a", "b")
		stop := h.run(t)
		time.Sleep(9 * time.Second)
		h.set(func() { h.wedged["b"] = true })
		time.Sleep(2 * time.Second) // the round waits for b
		stop()
		if got := h.taken("a"); len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}

func TestAPanicWhileAVMIsReadEndsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a")
		ctx, cancel := context.WithCancel(t.Context())
		var stored []record.UsageSample
		panics := 2
		s := New(Config{
			Running: func() map[string]backend.Instance { return h.running },
			Read: func(context.Context, string) (backend.Metrics, error) {
				if panics--; panics >= 0 {
					panic("boom")
				}
				return backend.Metrics{}, nil
			},
			Store: func(_ context.Context, samples []record.UsageSample) error {
				stored = append(stored, samples...)
				return nil
			},
			Log: slog.New(slog.DiscardHandler), Now: time.Now,
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		time.Sleep(35 * time.Second)
		cancel()
		<-done
		if len(stored) != 1 {
			t.Errorf("%v", stored)
		}
	})
}
