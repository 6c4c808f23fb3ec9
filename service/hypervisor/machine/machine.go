package machine

import (
	"context"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/relay"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
)

// Machine is what the daemon holds of a VM in memory.
type Machine struct {
	ID string
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
	console  *relay.Log              // nil: it was not opened since the process was started
	changed  chan struct{}           // closed, and made anew, at every change
}

// New makes the machine of a VM that has no process yet. Others than the Set need it in tests.
func New(id string) *Machine {
	return &Machine{ID: id, work: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Status is what is known of a VM that has a process, beside its row.
type Status struct {
	PID       int          // 0: no process is known
	Halt      backend.Halt // why its backend has halted it of its own accord
	Connected bool         // its agent is, and answers
	Version   string       // of the agent, since it was connected last
}

// Status says how the machine is.
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

// Deleting counts those who delete the VM.
func (m *Machine) Deleting(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deletes += n
}

// IsBeingDeleted says whether somebody deletes the VM.
func (m *Machine) IsBeingDeleted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deletes > 0
}

// Ring tells those who wait that something has changed.
func (m *Machine) Ring() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// Bell is closed at the next change.
func (m *Machine) Bell() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Process is the VM's process, nil if there is none, and what is closed when its end is stored.
func (m *Machine) Process() (instance backend.Instance, ended <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.instance, m.settled
}

// Attach notes the VM's process.
func (m *Machine) Attach(i backend.Instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.instance, m.settled = i, make(chan struct{})
}

// Detach forgets the process, whose end is stored.
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

// SetHalt notes why the VM is halted, also while a disk that is full keeps that from being stored.
func (m *Machine) SetHalt(halt backend.Halt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.halt = halt
}

// Session is the session with the guest's agent, or why there is none.
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

// Connect notes a session with the guest's agent, and says whether the agent is to get a new secret.
func (m *Machine) Connect(client *guest.Client) (rotate bool) {
	m.mu.Lock()
	m.guest, m.version, m.silent = client, client.Version(), false
	rotate = m.rotate
	m.mu.Unlock()
	m.Ring()
	return rotate
}

// Disconnect forgets a session, unless there is another already.
func (m *Machine) Disconnect(client *guest.Client) {
	m.mu.Lock()
	if m.guest == client {
		m.guest = nil
	}
	m.mu.Unlock()
	m.Ring()
}

// SetSilent notes whether the agent owes an answer.
func (m *Machine) SetSilent(silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = silent
}

// SetRotate notes whether the agent is to get a new secret at its next session.
func (m *Machine) SetRotate(rotate bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rotate = rotate
}
