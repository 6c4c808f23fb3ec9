package machine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// CallLimit is the timeout for calls that a VM's process can answer immediately.
const CallLimit = 30 * time.Second

// ErrEnding is returned to callers that wait for a VM when the daemon ends.
var ErrEnding = fault.New(fault.Unavailable, "the daemon is ending").WithRetryAfter(time.Second)

// Set holds all machines of the host.
type Set struct {
	store *record.Store
	log   *slog.Logger

	mu   sync.Mutex
	byID map[string]*Machine

	// watchers are the goroutines that follow VMs, until the context ending is done.
	watchers sync.WaitGroup
	ending   context.Context
	end      context.CancelFunc
}

// NewSet returns an empty Set. It rings a VM's machine at each of its moves in store.
func NewSet(store *record.Store, log *slog.Logger) *Set {
	s := &Set{store: store, log: log, byID: map[string]*Machine{}}
	s.ending, s.end = context.WithCancel(context.Background())
	store.OnMove(func(id string) { s.Get(id).Ring() })
	return s
}

// Get returns the machine of a VM and creates it if needed.
func (s *Set) Get(id string) *Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.byID[id]
	if !ok {
		found = New(id)
		s.byID[id] = found
	}
	return found
}

// Peek returns the machine of a VM, or nil if it has none.
func (s *Set) Peek(id string) *Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// Running returns the processes of all VMs that have one, by the VM's ID.
func (s *Set) Running() map[string]backend.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := map[string]backend.Instance{}
	for id, m := range s.byID {
		if instance, _ := m.Process(); instance != nil {
			running[id] = instance
		}
	}
	return running
}

// Forget removes the machine of a deleted VM.
func (s *Set) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// ConnectedAgents returns the number of sessions with agents.
func (s *Set) ConnectedAgents() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.byID {
		if _, err := m.Session(); err == nil {
			n++
		}
	}
	return n
}

// Go runs f in a goroutine that Depart waits for. A panic is logged.
func (s *Set) Go(name string, f func()) {
	s.watchers.Go(func() {
		_ = routine.Run(s.log, name, f) // logged
	})
}

// Keep is like Go, but calls f again after a panic.
func (s *Set) Keep(ctx context.Context, name string, f func(context.Context)) {
	s.watchers.Go(func() { routine.Keep(ctx, s.log, name, f) })
}

// Ending returns a context that is done when the daemon ends.
func (s *Set) Ending() context.Context { return s.ending }

// Leave tells goroutines that follow or wait for a VM that the daemon ends. It is idempotent.
func (s *Set) Leave() { s.end() }

// Depart calls Leave and waits until all goroutines that follow VMs have returned.
func (s *Set) Depart() {
	s.Leave()
	s.watchers.Wait()
}
