//go:build linux

package qemu

import (
	"context"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// told lists the events that may change a VM's condition.
var told = []string{qmp.EventReset, qmp.EventVSerPortChange, qmp.EventStop, qmp.EventResume, qmp.EventBlockIOError}

// Condition returns the VM's condition as QEMU last reported it.
func (i *Instance) Condition() (backend.Condition, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.condition, i.changed
}

// observe keeps the condition up to date. Events only trigger queries: QEMU omits some events, and
// the queue drops some if a guest causes too many.
func (i *Instance) observe(ctx context.Context, events *qmp.Subscription) {
	i.askAgent(ctx, nothing)
	i.askHalt(ctx)
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return
		}
		switch {
		case e.Missed > 0 || e.Name == qmp.EventReset:
			i.askAgent(ctx, reset)
		case isAgentPort(e):
			i.askAgent(ctx, doubt)
		default:
			i.askAgent(ctx, nothing)
		}
		i.askHalt(ctx)
	}
}

func isAgentPort(e qmp.Event) bool {
	var change qmp.VSerPortChange
	return e.Name == qmp.EventVSerPortChange && e.Decode(&change) == nil && change.ID == agentDevice
}

// news is what an event says about the agent's port besides its current state.
type news int

const (
	nothing news = iota
	doubt        // it was opened or closed, perhaps both, or the event is late
	reset        // whoever had it open is gone
)

// askAgent queries whether the agent's port is open.
func (i *Instance) askAgent(ctx context.Context, n news) {
	open, err := i.monitor.PortIsOpen(ctx, agentChardev)
	if err != nil {
		return // it ended, or does not answer: the next user of the monitor gets the error
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case open != i.condition.AgentOpen || n == reset:
		i.condition.AgentChanges++
	case n == doubt:
		i.condition.AgentDoubts++
	default:
		return
	}
	i.condition.AgentOpen = open
	i.announce()
}

// askHalt queries whether QEMU halted the guest on its own. It announces even an unchanged answer,
// since the guest may have continued in between.
func (i *Instance) askHalt(ctx context.Context) {
	halt, err := i.halt(ctx)
	if err != nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.condition.Known, i.condition.Halt = true, halt
	i.announce()
}

func (i *Instance) halt(ctx context.Context) (backend.Halt, error) {
	s, err := i.monitor.Status(ctx)
	if err != nil || s.Running {
		return "", err
	}
	switch s.State {
	case "internal-error":
		return backend.HaltInternal, nil
	case "io-error":
	default:
		return "", nil // somebody requested it, or it ends soon
	}
	disks, err := i.monitor.IOStatuses(ctx)
	if err != nil {
		return "", err
	}
	for _, d := range disks {
		if d.Status == "nospace" {
			return backend.HaltNoSpace, nil
		}
	}
	return backend.HaltIOError, nil
}

// announce wakes waiters. The caller holds i.mu.
func (i *Instance) announce() {
	close(i.changed)
	i.changed = make(chan struct{})
}

var _ backend.Observer = (*Instance)(nil)
