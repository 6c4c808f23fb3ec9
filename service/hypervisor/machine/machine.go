package machine

import (
	"context"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/relay"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

// Machine is the in-memory state of one VM.
type Machine struct {
	ID string
	// work is the work lock: held while the VM's resources on the host are changed.
	work chan struct{}

	mu       sync.Mutex
	breakOff context.CancelCauseFunc // cancels the current work on the disk; nil: none
	yield    context.CancelCauseFunc // cancels current work that gives way; nil: none
	waiting  int                     // callers who wait for the work lock
	deletes  int                     // number of deletions in progress
	instance backend.Instance        // nil: no process
	settled  chan struct{}           // closed when the end of the process is stored
	guest    *guest.Client           // nil: not connected
	version  string                  // of the agent, as of its last connection
	silent   bool                    // the agent has not answered a request yet
	halt     backend.Halt            // why the backend halted the VM on its own
	rotate   bool                    // the agent must get a new secret
	console  *relay.Log              // nil: not opened since the process was started
	changed  chan struct{}           // closed and replaced at every change
	served   bool                    // a client serves its served disk
}

// New returns the machine of a VM without a process. Outside of Set it is only used in tests.
func New(id string) *Machine {
	return &Machine{ID: id, work: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Status is the in-memory status of a VM with a process, in addition to its row.
type Status struct {
	PID       int          // 0: no known process
	Halt      backend.Halt // why the backend halted the VM on its own
	Connected bool         // the agent is connected and answers
	Version   string       // of the agent, as of its last connection
}

// Status returns the machine's current status.
func (m *Machine) Status() Status {
	instance, _ := m.Process()
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Status{Halt: m.halt, Connected: m.guest != nil && !m.silent, Version: m.version}
	if instance != nil {
		out.PID = instance.PID()
	}
	return out
}

// Deleting adds n to the number of deletions in progress.
func (m *Machine) Deleting(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deletes += n
}

// IsBeingDeleted reports whether a deletion of the VM is in progress.
func (m *Machine) IsBeingDeleted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deletes > 0
}

// Ring wakes everyone who waits on Bell.
func (m *Machine) Ring() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// Bell returns a channel that is closed at the next change.
func (m *Machine) Bell() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Process returns the VM's process, or nil if it has none, and a channel that is closed when the
// end of the process is stored.
func (m *Machine) Process() (instance backend.Instance, ended <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.instance, m.settled
}

// Attach sets the VM's process.
func (m *Machine) Attach(i backend.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.instance, m.settled = i, make(chan struct{})
}

// Detach clears the process once its end is stored, and wakes waiters.
func (m *Machine) Detach() {
	m.mu.Lock()
	client, settled := m.guest, m.settled
	m.instance, m.guest, m.console, m.halt = nil, nil, nil, ""
	m.mu.Unlock()
	if client != nil {
		_ = client.Close() // its stream has ended with the process
	}
	close(settled)
	m.Ring()
}

// SetHalt sets why the VM is halted. It works even while a full disk prevents storing the reason.
func (m *Machine) SetHalt(halt backend.Halt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.halt = halt
}

// Session returns the session with the guest's agent, or fails with agent_not_connected.
func (m *Machine) Session() (*guest.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.guest == nil {
		return nil, fault.New(
			fault.Conflict, "the guest's agent is not connected: the guest is still booting, or has none",
		).WithCode("agent_not_connected")
	}
	return m.guest, nil
}

// Connect sets the session with the guest's agent. It reports whether the agent must get a new
// secret.
func (m *Machine) Connect(client *guest.Client) (rotate bool) {
	m.mu.Lock()
	m.guest, m.version, m.silent = client, client.Version(), false
	rotate = m.rotate
	m.mu.Unlock()
	m.Ring()
	return rotate
}

// Disconnect clears the session, unless a newer one has replaced it.
func (m *Machine) Disconnect(client *guest.Client) {
	m.mu.Lock()
	if m.guest == client {
		m.guest = nil
	}
	m.mu.Unlock()
	m.Ring()
}

// SetSilent sets whether the agent has yet to answer a request.
func (m *Machine) SetSilent(silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = silent
}

// SetRotate sets whether the agent must get a new secret in its next session.
func (m *Machine) SetRotate(rotate bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rotate = rotate
}
