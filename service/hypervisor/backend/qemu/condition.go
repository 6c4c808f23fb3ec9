//go:build linux

package qemu

import (
	"context"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// told are the events that change a VM's condition.
var told = []string{qmp.EventReset, qmp.EventVSerPortChange, qmp.EventStop, qmp.EventResume, qmp.EventBlockIOError}

// Condition is how the VM is, as QEMU told it last.
func (i *Instance) Condition() (backend.Condition, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.condition, i.changed
}

// observe keeps the condition up to date. Events say that there is something to ask for: QEMU
// leaves some out, and so does the queue of a guest that causes too many.
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

// news is what an event says of the agent's port, beside whether it is open now.
type news int

const (
	nothing news = iota
	doubt        // it was opened or closed, perhaps both, or is told of late
	reset        // whoever had it open is gone
)

// askAgent asks whether the agent's port is open.
func (i *Instance) askAgent(ctx context.Context, n news) {
	open, err := i.monitor.PortIsOpen(ctx, agentChardev)
	if err != nil {
		return // it ended, or does not answer: whoever uses it next is told
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

// askHalt asks whether QEMU halted the guest of its own accord. It is announced even if the
// answer is the one of before: the guest may have gone on in between.
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
		return "", nil // somebody asked for it, or it is over soon
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

// announce tells those who wait. The lock is held.
func (i *Instance) announce() {
	close(i.changed)
	i.changed = make(chan struct{})
}

var _ backend.Observer = (*Instance)(nil)
