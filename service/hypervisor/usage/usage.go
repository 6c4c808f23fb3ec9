// Package usage measures what running VMs use, for the history behind their plots. A Sampler reads
// the counters of all VMs every ten seconds and stores what was added since the last reading.
//
// # Invariants
//
//   - What is not known is not stored: nothing is concluded from two readings that are more than a
//     minute apart, or from the first reading of a VM.
//   - A VM that does not answer delays no other VM. Few of these are read at once, apart from the
//     others.
//   - Samples that the database refuses are lost. Nothing else waits for them.
//
// It imports backend and record.
package usage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

const (
	every = 10 * time.Second // between two readings of a VM
	// gap is the longest time between two readings that are compared. Over a longer one it is
	// unknown when the VM used what was counted.
	gap = time.Minute
	// patience is how long a reading of a VM may take that has answered the last time, and
	// lastPatience of one that has not.
	patience, lastPatience = 2 * time.Second, 8 * time.Second
	// atOnce is the number of VMs that are read at once, and silentAtOnce of those that have not
	// answered the last time.
	atOnce, silentAtOnce = 8, 2
	// lastWrite is the timeout for storing the last samples when the daemon ends.
	lastWrite = 5 * time.Second
)

// Config holds the dependencies of a Sampler.
type Config struct {
	// Running returns the processes of all VMs that have one, by the VM's ID.
	Running func() map[string]backend.Instance
	// Read reads a VM's counters.
	Read func(ctx context.Context, id string) (backend.Metrics, error)
	// Store stores samples.
	Store func(ctx context.Context, samples []record.UsageSample) error
	Log   *slog.Logger
	Now   func() time.Time
}

// Sampler measures the usage of VMs. Create it with New.
type Sampler struct {
	Config
	work              sync.WaitGroup // readings
	answering, silent chan struct{}  // their slots

	mu       sync.Mutex
	vms      map[string]*state
	measured []record.UsageSample // not stored yet

	refused bool // the last samples could not be stored; used by Run only
}

// state is what is known of one VM.
type state struct {
	reading  bool // a reading is in progress
	silent   bool // the last reading was not answered in time
	process  backend.Instance
	at       time.Time // of the last reading; zero: none yet
	counters backend.Metrics
}

// New returns a Sampler.
func New(c Config) *Sampler {
	return &Sampler{
		Config: c, vms: map[string]*state{},
		answering: make(chan struct{}, atOnce), silent: make(chan struct{}, silentAtOnce),
	}
}

// Run measures until ctx ends, and then stores what it has measured.
func (s *Sampler) Run(ctx context.Context) {
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		answered := s.round(ctx)
		select {
		case <-answered:
		case <-time.After(patience): // the others are stored with the next round
		case <-ctx.Done():
		}
		s.store(ctx)
		select {
		case <-again.C:
		case <-ctx.Done():
			s.work.Wait()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
			defer cancel()
			s.store(last)
			return
		}
	}
}

// round begins to read all running VMs, except those of which an earlier reading is in progress.
// The channel is closed when all have been read.
func (s *Sampler) round(ctx context.Context) <-chan struct{} {
	running := s.Running()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, v := range s.vms {
		if running[id] == nil && !v.reading {
			delete(s.vms, id)
		}
	}
	var round sync.WaitGroup
	for id, process := range running {
		v := s.vms[id]
		if v == nil {
			v = &state{}
			s.vms[id] = v
		}
		if v.reading {
			continue
		}
		v.reading = true
		slots, limit := s.answering, patience
		if v.silent {
			slots, limit = s.silent, lastPatience
		}
		round.Add(1)
		s.work.Go(func() {
			defer round.Done()
			_ = routine.Run(s.Log, "VM usage", func() { s.measure(ctx, id, process, v, slots, limit) }) // logged
		})
	}
	answered := make(chan struct{})
	s.work.Go(func() {
		defer close(answered)
		_ = routine.Run(s.Log, "VM usage", round.Wait) // logged
	})
	return answered
}

// measure reads a VM's counters and adds the sample since the last reading, if there was one.
func (s *Sampler) measure(
	ctx context.Context, id string, process backend.Instance, v *state, slots chan struct{}, limit time.Duration,
) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		v.reading = false
	}()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	counters, err := s.Read(limited, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	v.silent = errors.Is(limited.Err(), context.DeadlineExceeded)
	if err != nil {
		return // it has just ended, or does not answer
	}
	at := s.Now()
	before, since := v.counters, at.Sub(v.at)
	if v.process != process {
		before = backend.Metrics{} // counters begin with the process
	}
	known := !v.at.IsZero() && since > 0 && since <= gap
	v.process, v.at, v.counters = process, at, counters
	if !known {
		return
	}
	s.measured = append(s.measured, record.UsageSample{
		VM: id, At: at, Measured: since,
		CPU:              time.Duration(series.Increase(before.CPUSeconds, counters.CPUSeconds) * float64(time.Second)),
		MemoryBytes:      counters.MemoryBytes,
		DiskReadBytes:    series.Increase(before.DiskReadBytes, counters.DiskReadBytes),
		DiskWrittenBytes: series.Increase(before.DiskWrittenBytes, counters.DiskWrittenBytes),
		NetReceivedBytes: series.Increase(before.NetReceivedBytes, counters.NetReceivedBytes),
		NetSentBytes:     series.Increase(before.NetSentBytes, counters.NetSentBytes),
	})
}

// Latest returns the counters of VMs that were read within the last minute, by the VM's ID.
func (s *Sampler) Latest() map[string]backend.Metrics {
	now := s.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]backend.Metrics, len(s.vms))
	for id, v := range s.vms {
		if !v.at.IsZero() && now.Sub(v.at) <= gap {
			out[id] = v.counters
		}
	}
	return out
}

// store stores what was measured. Of several failures in a row, only the first is logged.
func (s *Sampler) store(ctx context.Context) {
	s.mu.Lock()
	samples := s.measured
	s.measured = nil
	s.mu.Unlock()
	if len(samples) == 0 {
		return
	}
	switch err := s.Store(ctx, samples); {
	case err == nil && s.refused:
		s.refused = false
		s.Log.Info("the usage of VMs is stored again")
	case err != nil && !s.refused && ctx.Err() == nil:
		s.refused = true
		s.Log.Warn("the usage of VMs cannot be stored, and is missing in their history", "error", err)
	}
}
