package machine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// CallLimit is how long a VM's process may take to answer what it can answer at once.
const CallLimit = 30 * time.Second

// ErrEnding is told to those who wait for a VM when the daemon ends.
var ErrEnding = fault.New(fault.Unavailable, "the daemon is ending").WithRetryAfter(time.Second)

// Set is all machines of the host.
type Set struct {
	store *record.Store
	log   *slog.Logger

	mu   sync.Mutex
	byID map[string]*Machine

	// watchers are the goroutines that follow VMs, until ending is.
	watchers sync.WaitGroup
	ending   context.Context
	end      context.CancelFunc
}

// NewSet makes a Set without machines. Whoever waits for a VM learns of its moves in store.
func NewSet(store *record.Store, log *slog.Logger) *Set {
	s := &Set{store: store, log: log, byID: map[string]*Machine{}}
	s.ending, s.end = context.WithCancel(context.Background())
	store.OnMove(func(id string) { s.Get(id).Ring() })
	return s
}

// Get is the machine of a VM.
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

// Peek is Get without making one; nil: there is none.
func (s *Set) Peek(id string) *Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// Forget drops the machine of a VM that is gone.
func (s *Set) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// ConnectedAgents counts the sessions with agents.
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

// Go calls f in a goroutine of its own, which Depart waits for.
func (s *Set) Go(name string, f func()) {
	s.watchers.Go(func() {
		_ = routine.Run(s.log, name, f) // logged
	})
}

// Keep is Go of something that must not end by a panic: it is called again after one.
func (s *Set) Keep(ctx context.Context, name string, f func(context.Context)) {
	s.watchers.Go(func() { routine.Keep(ctx, s.log, name, f) })
}

// Ending is a context that ends when the daemon does.
func (s *Set) Ending() context.Context { return s.ending }

// Leave tells those who follow a VM, or wait for one, that the daemon ends. It can be repeated.
func (s *Set) Leave() { s.end() }

// Depart has all who follow VMs let go of them, and waits for that.
func (s *Set) Depart() {
	s.Leave()
	s.watchers.Wait()
}
