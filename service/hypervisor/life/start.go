package life

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Start starts a VM and returns when its processors run.
func (l *Life) Start(ctx context.Context, id string) (record.VM, error) {
	return l.StartWith(ctx, id, plan.StartRequest{})
}

func startable(_ context.Context, r *record.VM) error {
	_, err := vm.Next(r.State, vm.Start)
	return err
}

// StartWith is Start with options for this start only.
func (l *Life) StartWith(ctx context.Context, id string, req plan.StartRequest) (record.VM, error) {
	var out record.VM
	err := l.machines.With(ctx, id, startable, func(ctx context.Context, m *machine.Machine, r record.VM) error {
		if err := checkServed(m, &r); err != nil {
			return err
		}
		start, err := l.plan.Start(ctx, &r, req)
		if err != nil {
			return err
		}
		defer start.Release()
		if start.Options != nil {
			// A daemon that is killed before the move leaves the files to the next start, or the deletion.
			if err := l.host.MakeStart(ctx, &r, start.Copies); err != nil {
				return err
			}
		}
		r, err = l.store.Move(ctx, id, vm.Start, "vm.start", start.Message, func(r *record.VM) {
			r.LastError, r.Reverting, r.StartedWith.V = "", "", start.Options
		})
		if err != nil {
			return err
		}
		// From here on, the start is finished whether or not the caller waits.
		out, err = l.BringUp(context.WithoutCancel(ctx), m, r)
		return err
	})
	return out, err
}

// Begin starts a process, either afresh or from a snapshot.
type Begin func(ctx context.Context, spec *backend.Spec) (backend.Instance, error)

// BringUp starts the process of a VM in state starting. The caller holds the VM's work lock.
func (l *Life) BringUp(ctx context.Context, m *machine.Machine, r record.VM) (record.VM, error) {
	b, err := l.host.Backend(&r)
	if err != nil {
		return r, err
	}
	if r.Instant == "" {
		return l.BringUpBy(ctx, m, r, b.Start)
	}
	start := l.templates.Start(&r, b.Start)
	return l.bringUp(ctx, m, r, start.Begin, start.Outcome)
}

// BringUpBy is BringUp with another way to start the process. A failed start leaves nothing on the
// host, and the VM in state failed.
func (l *Life) BringUpBy(ctx context.Context, m *machine.Machine, r record.VM, how Begin) (record.VM, error) {
	return l.bringUp(ctx, m, r, how, func() (string, func(*record.VM)) { return "", func(*record.VM) {} })
}

// bringUp is BringUpBy with an outcome that is stored when the VM came up.
func (l *Life) bringUp(
	ctx context.Context, m *machine.Machine, r record.VM, how Begin, outcome func() (string, func(*record.VM)),
) (record.VM, error) {
	began := l.now()
	var instance backend.Instance
	// A panic must also fail the VM: nothing can be done with a VM stuck in state starting.
	err := routine.Call(l.log, "VM start", func() (err error) {
		instance, r, err = l.launch(ctx, r, how)
		return err
	})
	result := map[bool]string{true: "ok", false: "error"}[err == nil]
	l.starts.WithLabelValues(r.Backend, result).Observe(l.now().Sub(began).Seconds())
	if err != nil {
		why := startMessage(err)
		failed, moveErr := l.store.Move(ctx, r.ID, vm.Crashed, "", why, func(r *record.VM) { r.LastError = why })
		if moveErr != nil && !fault.Is(moveErr, fault.Conflict) &&
			!fault.Is(moveErr, fault.NotFound) { // it is being deleted
			l.log.Error("a VM that did not start is not noted as failed", "vm", r.ID, "error", moveErr)
		}
		return failed, startFault(err)
	}
	l.Adopt(ctx, m, r, instance)
	message, change := outcome()
	up, err := l.store.Move(ctx, r.ID, vm.CameUp, "", message, func(up *record.VM) {
		up.StartedAt, up.Tap, up.IPs = db.At(l.now()), r.Tap, r.IPs
		change(up)
	})
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
		// It was stopped or deleted since, by a caller who waits for the work lock.
		return r, fault.New(fault.Conflict, "the VM was stopped while it started")
	}
	return up, err
}

// startFault returns the error that a caller gets for a failed start.
func startFault(err error) error {
	if f := fault.From(err); f.Kind != fault.Internal {
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "the VM did not start: %s", startMessage(err)).WithCode("start_failed")
}

// startMessage returns why a VM did not start, for those who may see it. It includes QEMU's own
// message, which names the cause.
func startMessage(err error) string {
	if f := fault.From(err); f.Kind != fault.Internal {
		return f.Message
	}
	return FirstLine(err.Error())
}

// FirstLine returns the first line of a program's output, at most 500 bytes.
func FirstLine(text string) string {
	const longest = 500
	for i, r := range text {
		if r == '\n' || i >= longest {
			return text[:i]
		}
	}
	return text
}

// launch creates a VM's runtime resources on the host and starts its process. If that fails, it
// leaves nothing.
func (l *Life) launch(ctx context.Context, r record.VM, how Begin) (backend.Instance, record.VM, error) {
	if err := l.host.DropRemoved(ctx, &r); err != nil {
		return nil, r, err
	}
	spec, err := l.host.Equip(ctx, &r)
	if err != nil {
		return nil, r, err
	}
	defer spec.Release()
	starting, cancel := context.WithTimeout(ctx, backend.MemoryLimit(r.AsRunning().MemoryMiB)) // may load memory
	instance, err := how(starting, spec)
	cancel()
	if err != nil {
		l.host.Strip(ctx, &r)
		return nil, r, err
	}
	if err := l.host.Confine(ctx, &r, instance); err != nil {
		if killErr := instance.Kill(ctx); killErr != nil {
			return nil, r, errors.Join(err, killErr)
		}
		<-instance.Done()
		_ = instance.Close() // it has ended
		l.host.Strip(ctx, &r)
		return nil, r, err
	}
	return instance, r, nil
}

// Adopt starts following a running VM: its end, halts, console and agent.
func (l *Life) Adopt(ctx context.Context, m *machine.Machine, r record.VM, instance backend.Instance) {
	m.Attach(instance)
	ctx = caller.ByItself(context.WithoutCancel(ctx))
	// Without it, the end of the VM would go unnoticed.
	l.machines.Keep(ctx, "VM end", func(ctx context.Context) { l.follow(ctx, m, r, instance) })
	if o, ok := instance.(backend.Observer); ok {
		l.machines.Keep(l.machines.Ending(), "VM halt", func(context.Context) { l.followHalts(ctx, m, instance, o) })
	}
	if r.Backend != backend.Sandbox {
		l.machines.Go("VM console", func() { l.machines.WatchConsole(m, instance, l.host.ConsoleLog(r.ID)) })
	}
	if r.Spec.V.Agent {
		l.machines.Keep(l.machines.Ending(), "guest agent", func(context.Context) { l.agent.Keep(m, instance) })
	}
}

// follow waits for the end of a VM's process and stores the resulting state.
func (l *Life) follow(ctx context.Context, m *machine.Machine, r record.VM, instance backend.Instance) {
	select {
	case <-instance.Done():
	case <-l.machines.Ending().Done():
		// The daemon ends; the VM keeps running.
		if err := instance.Close(); err != nil {
			l.log.Warn("letting go of a VM", "vm", r.ID, "error", err)
		}
		return
	}
	end := instance.Ended()
	l.host.Strip(ctx, &r)
	kind, message := vm.Ended, end.Reason
	if !end.Clean {
		kind = vm.Crashed
	}
	stopped, err := l.store.Move(ctx, r.ID, kind, "", message, func(r *record.VM) {
		r.StartedAt, r.KillAt = db.Time{}, db.Time{}
		if !end.Clean {
			r.LastError = end.Reason
		}
	})
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
		l.log.Error("the end of a VM is not noted", "vm", r.ID, "error", err)
	}
	_ = instance.Close() // it has ended
	m.Detach()
	if stopped.Restarting {
		l.GoOnRestarting(ctx, r.ID) // which drops them, too
	} else if len(stopped.Unsettled()) > 0 {
		l.machines.Go("disks of a VM", func() { l.dropRemoved(ctx, r.ID) })
	}
}

// dropRemoved removes the disks that the process of a VM had kept, unless it was started again meanwhile.
func (l *Life) dropRemoved(ctx context.Context, id string) {
	err := l.machines.With(ctx, id, machine.Any, func(ctx context.Context, _ *machine.Machine, r record.VM) error {
		if r.State != vm.Stopped && r.State != vm.Failed {
			return nil
		}
		return l.host.DropRemoved(ctx, &r)
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		l.log.Warn("disks of a VM that are removed still take room", "vm", id, "error", err)
	}
}
