package hypervisor

import (
	"context"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

// machine is what the daemon holds of a VM in memory: its process, the session with its
// guest's agent, its console. What matters stands in the database.
type machine struct {
	id string
	// work is held by whoever changes what the VM has on the host.
	work chan struct{}

	mu       sync.Mutex
	breakOff context.CancelCauseFunc // ends the work on the disk that is under way; nil: none is
	deletes  int                     // how many are deleting it
	instance backend.Instance        // nil: no process
	settled  chan struct{}           // closed when the end of the process is stored
	guest    *guest.Client           // nil: not connected
	version  string                  // of the agent, since it was connected last
	silent   bool                    // the agent was asked and has not answered yet
	halt     backend.Halt            // why its backend has halted it of its own accord
	rotate   bool                    // the agent is to get a new secret
	console  *hub                    // nil: nobody has looked since the process was started
	changed  chan struct{}           // closed, and made anew, at every change
}

// machines are all VMs of the host.
type machines struct {
	mu   sync.Mutex
	byID map[string]*machine
}

func (m *machines) get(id string) *machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.byID[id]
	if !ok {
		found = &machine{id: id, work: make(chan struct{}, 1), changed: make(chan struct{})}
		m.byID[id] = found
	}
	return found
}

// peek is get without making one.
func (m *machines) peek(id string) *machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byID[id]
}

func (m *machines) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byID, id)
}

func (m *machines) all() []*machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*machine, 0, len(m.byID))
	for _, one := range m.byID {
		all = append(all, one)
	}
	return all
}

// lock waits for its turn to change the VM.
func (m *machine) lock(ctx context.Context) error {
	select {
	case m.work <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, ctx.Err(), "the VM is being worked on; try again").WithRetryAfter(time.Second)
	}
}

// tryLock is lock for who does not wait.
func (m *machine) tryLock() bool {
	select {
	case m.work <- struct{}{}:
		return true
	default:
		return false
	}
}

func (m *machine) unlock() { <-m.work }

// working is the context of work on the disk, which stopWork ends. done is called when the work
// is. The VM's work is locked.
func (m *machine) working(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.breakOff = cancel
	return ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.breakOff = nil
		cancel(nil)
	}
}

// stopWork ends the work on the disk that is under way, with a cause.
func (m *machine) stopWork(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.breakOff != nil {
		m.breakOff(cause)
	}
}

// deleting counts those who delete the VM.
func (m *machine) deleting(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deletes += n
}

func (m *machine) isBeingDeleted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deletes > 0
}

// ring tells those who wait that something has changed.
func (m *machine) ring() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// bell is closed at the next change.
func (m *machine) bell() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// runs is the VM's process, nil if there is none, and what is closed when its end is
// stored.
func (m *machine) runs() (instance backend.Instance, ended <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.instance, m.settled
}

// attach notes the VM's process.
func (m *machine) attach(i backend.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.instance, m.settled = i, make(chan struct{})
}

// detach forgets the process.
func (m *machine) detach() {
	m.mu.Lock()
	client, settled := m.guest, m.settled
	m.instance, m.guest, m.console, m.halt = nil, nil, nil, ""
	m.mu.Unlock()
	if client != nil {
		_ = client.Close() // its stream has ended with the process
	}
	close(settled)
}

// setSilent notes whether the agent owes an answer.
func (m *machine) setSilent(silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = silent
}

// setHalt notes why the VM is halted, also while a disk that is full keeps that from being stored.
func (m *machine) setHalt(halt backend.Halt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.halt = halt
}

// agent is the session with the guest's agent, or why there is none.
func (m *machine) agent() (*guest.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.guest == nil {
		return nil, fault.New(fault.Conflict, "the guest's agent is not connected: the guest is still booting, or has none").WithCode("agent_not_connected")
	}
	return m.guest, nil
}
