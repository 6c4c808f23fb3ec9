package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Start starts a VM, and answers when its processors run.
func (s *Service) Start(ctx context.Context, id string) (record.VM, error) {
	var out record.VM
	err := s.machines.With(ctx, id, machine.Any, func(ctx context.Context, m *machine.Machine, _ record.VM) error {
		r, err := s.store.Move(ctx, id, vm.Start, "vm.start", "", func(r *record.VM) { r.LastError = "" })
		if err != nil {
			return err
		}
		// From here on it is finished whether or not the caller waits.
		out, err = s.bringUp(context.WithoutCancel(ctx), m, r)
		return err
	})
	return out, err
}

// begin is how a process is started: anew, or from a snapshot.
type begin func(ctx context.Context, spec *backend.Spec) (backend.Instance, error)

// bringUp starts the process of a VM in state starting. The VM's work is locked.
func (s *Service) bringUp(ctx context.Context, m *machine.Machine, r record.VM) (record.VM, error) {
	b, err := s.host.Backend(&r)
	if err != nil {
		return r, err
	}
	return s.bringUpBy(ctx, m, r, b.Start)
}

func (s *Service) bringUpBy(ctx context.Context, m *machine.Machine, r record.VM, how begin) (record.VM, error) {
	began := s.now()
	var instance backend.Instance
	// After a panic the VM has failed, too: in state starting nobody could do anything with it.
	err := routine.Call(s.log, "VM start", func() (err error) {
		instance, r, err = s.launch(ctx, r, how)
		return err
	})
	s.metrics.starts.WithLabelValues(r.Backend, map[bool]string{true: "ok", false: "error"}[err == nil]).Observe(s.now().Sub(began).Seconds())
	if err != nil {
		why := startMessage(err)
		failed, moveErr := s.store.Move(ctx, r.ID, vm.Crashed, "", why, func(r *record.VM) { r.LastError = why })
		if moveErr != nil && !fault.Is(moveErr, fault.Conflict) && !fault.Is(moveErr, fault.NotFound) { // it is being deleted
			s.log.Error("a VM that did not start is not noted as failed", "vm", r.ID, "error", moveErr)
		}
		return failed, startFault(err)
	}
	s.adopt(ctx, m, r, instance)
	up, err := s.store.Move(ctx, r.ID, vm.CameUp, "", "", func(up *record.VM) {
		up.StartedAt, up.Tap, up.IPs = db.At(s.now()), r.Tap, r.IPs
	})
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
		// It was stopped or deleted meanwhile, by somebody who waits for its work.
		return r, fault.New(fault.Conflict, "the VM was stopped while it started")
	}
	return up, err
}

// startFault is what a caller is told of a start that failed.
func startFault(err error) error {
	if f := fault.From(err); f.Kind != fault.Internal {
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "the VM did not start: %s", startMessage(err)).WithCode("start_failed")
}

// startMessage is why a VM did not start, for who may see it: QEMU's own words matter.
func startMessage(err error) string {
	if f := fault.From(err); f.Kind != fault.Internal {
		return f.Message
	}
	return firstLine(err.Error())
}

func firstLine(text string) string {
	const longest = 500
	for i, r := range text {
		if r == '\n' || i >= longest {
			return text[:i]
		}
	}
	return text
}

// launch gives a VM what it has on the host while it runs, and starts its process. What
// failed leaves nothing.
func (s *Service) launch(ctx context.Context, r record.VM, how begin) (backend.Instance, record.VM, error) {
	spec, err := s.host.Equip(ctx, &r)
	if err != nil {
		return nil, r, err
	}
	starting, cancel := context.WithTimeout(ctx, backend.MemoryLimit(r.MemoryMiB)) // memory may be loaded
	instance, err := how(starting, spec)
	cancel()
	if err != nil {
		s.host.Strip(ctx, &r)
		return nil, r, err
	}
	if err := s.host.Confine(ctx, &r, instance); err != nil {
		if killErr := instance.Kill(ctx); killErr != nil {
			return nil, r, errors.Join(err, killErr)
		}
		<-instance.Done()
		_ = instance.Close() // it has ended
		s.host.Strip(ctx, &r)
		return nil, r, err
	}
	return instance, r, nil
}

// adopt takes a running VM under the daemon's eyes.
func (s *Service) adopt(ctx context.Context, m *machine.Machine, r record.VM, instance backend.Instance) {
	m.Attach(instance)
	ctx = caller.ByItself(context.WithoutCancel(ctx))
	// Without it, nobody would learn that the VM has ended.
	s.machines.Keep(ctx, "VM end", func(ctx context.Context) { s.follow(ctx, m, r, instance) })
	if o, ok := instance.(backend.Observer); ok {
		s.machines.Keep(s.machines.Ending(), "VM halt", func(context.Context) { s.followHalts(ctx, m, instance, o) })
	}
	if r.Backend != backend.Sandbox {
		s.machines.Go("VM console", func() { s.machines.WatchConsole(m, instance) })
	}
	if r.Spec.V.Agent {
		s.machines.Keep(s.machines.Ending(), "guest agent", func(context.Context) { s.agent.Keep(m, instance) })
	}
}

// follow waits for the end of a VM's process, and draws the conclusion.
func (s *Service) follow(ctx context.Context, m *machine.Machine, r record.VM, instance backend.Instance) {
	select {
	case <-instance.Done():
	case <-s.machines.Ending().Done():
		// The daemon ends; the VM goes on.
		if err := instance.Close(); err != nil {
			s.log.Warn("letting go of a VM", "vm", r.ID, "error", err)
		}
		return
	}
	end := instance.Ended()
	s.host.Strip(ctx, &r)
	kind, message := vm.Ended, end.Reason
	if !end.Clean {
		kind = vm.Crashed
	}
	_, err := s.store.Move(ctx, r.ID, kind, "", message, func(r *record.VM) {
		r.StartedAt, r.KillAt = db.Time{}, db.Time{}
		if !end.Clean {
			r.LastError = end.Reason
		}
	})
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
		s.log.Error("the end of a VM is not noted", "vm", r.ID, "error", err)
	}
	_ = instance.Close() // it has ended
	m.Detach()
}

// Stop asks the guest to shut down, kills the VM when its time is over, and answers when
// it has stopped. Who asks again with less patience is heard.
func (s *Service) Stop(ctx context.Context, id string, grace time.Duration, force bool) (record.VM, error) {
	r, err := s.store.Move(ctx, id, vm.Stop, "vm.stop", "", func(r *record.VM) {
		killAt := db.At(s.now().Add(grace))
		if force || r.KillAt.IsZero() || killAt.Before(r.KillAt.Time) {
			r.KillAt = killAt
		}
	})
	if err != nil {
		return r, err
	}
	if err := s.bringDown(context.WithoutCancel(ctx), s.machines.Get(id), r, force || grace == 0); err != nil {
		return r, err
	}
	return s.store.VM(ctx, id)
}

// bringDown ends the process of a VM in state stopping.
func (s *Service) bringDown(ctx context.Context, m *machine.Machine, r record.VM, force bool) error {
	instance, ended := m.Process()
	if instance == nil {
		// It is being started, did not come up, or has ended by itself.
		err := s.machines.With(ctx, r.ID, machine.Any, func(ctx context.Context, m *machine.Machine, r record.VM) error {
			if instance, ended = m.Process(); instance != nil {
				return nil
			}
			_, err := s.store.Move(ctx, r.ID, vm.Ended, "", "", func(r *record.VM) { r.StartedAt, r.KillAt = db.Time{}, db.Time{} })
			return err
		})
		if instance == nil {
			if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
				return nil // that is stored already
			}
			return err
		}
	}
	if !force {
		s.askToPowerDown(ctx, m, instance)
		timer := time.NewTimer(r.KillAt.Sub(s.now()))
		defer timer.Stop()
		select {
		case <-ended:
			return nil
		case <-timer.C:
		case <-s.machines.Ending().Done():
			return fault.New(fault.Unavailable, "the daemon is ending; the VM will be stopped when it is there again").WithRetryAfter(time.Second)
		}
	}
	return s.kill(ctx, instance, ended)
}

// killLimit is how long the kernel may take to end a process that was killed. One that waits
// for a disk which does not answer takes as long as that.
const killLimit = 30 * time.Second

// kill ends a process, and returns when that is stored.
func (s *Service) kill(ctx context.Context, instance backend.Instance, ended <-chan struct{}) error {
	if err := instance.Kill(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(killLimit)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return fault.New(fault.Unavailable, "the VM's process (%d) was killed and does not end: it waits for a disk of the host that does not answer", instance.PID()).WithCode("vm_silent")
	case <-s.machines.Ending().Done():
		return machine.ErrEnding
	}
}

// askLimit is how long asking a guest for its shutdown may take.
const askLimit = 5 * time.Second

// askToPowerDown asks in the way that works for the guest: its agent if it is there, and
// the power button else. A VM that is paused cannot hear either.
func (s *Service) askToPowerDown(ctx context.Context, m *machine.Machine, instance backend.Instance) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if paused, err := instance.Paused(ctx); err == nil && paused {
		if err := instance.Resume(ctx); err != nil {
			s.log.Warn("a VM that is to be stopped does not go on", "vm", m.ID, "error", err)
		}
	}
	if err := instance.PowerDown(ctx); err != nil {
		s.log.Warn("a VM cannot be asked to power down", "vm", m.ID, "error", err)
	}
	if client, err := m.Session(); err == nil {
		if err := client.Shutdown(ctx, "poweroff"); err != nil {
			s.log.Info("a guest's agent does not shut it down", "vm", m.ID, "error", err)
		}
	}
}

// Pause halts the processors of a VM.
func (s *Service) Pause(ctx context.Context, id string) (record.VM, error) {
	return s.halt(ctx, id, vm.Pause, "vm.pause", backend.Instance.Pause)
}

// Resume lets them go on.
func (s *Service) Resume(ctx context.Context, id string) (record.VM, error) {
	return s.halt(ctx, id, vm.Resume, "vm.resume", backend.Instance.Resume)
}

func (s *Service) halt(ctx context.Context, id string, kind vm.Move, action string, do func(backend.Instance, context.Context) error) (record.VM, error) {
	var out record.VM
	allowed := func(_ context.Context, r *record.VM) error {
		_, err := vm.Next(r.State, kind)
		return err
	}
	err := s.machines.With(ctx, id, allowed, func(ctx context.Context, m *machine.Machine, r record.VM) (err error) {
		instance, _ := m.Process()
		if instance == nil {
			return fault.New(fault.Conflict, "the VM is ending")
		}
		// The processors are halted first: which of both states a killed daemon left is asked
		// of the backend when it starts again.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), machine.CallLimit)
		defer cancel()
		if err := do(instance, ctx); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		out, err = s.store.Move(ctx, id, kind, action, "", nil)
		return err
	})
	return out, err
}

// Wait answers when a VM is in a state, at once if it is, or fails with a conflict when
// the time is over.
func (s *Service) Wait(ctx context.Context, id string, state vm.State, limit time.Duration) (record.VM, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		m := s.machines.Get(id)
		bell := m.Bell() // before the row is read, so that no change is missed
		r, err := s.store.VM(ctx, id)
		if err != nil {
			s.machines.Forget(id) // unless it is there, and another's; then nobody holds it
			return r, err
		}
		if r.State == state {
			return r, nil
		}
		select {
		case <-bell:
		case <-timer.C:
			return r, fault.New(fault.Conflict, "the VM is %s, and was not %s in time", r.State, state).WithCode("wait_timeout")
		case <-s.machines.Ending().Done():
			return r, machine.ErrEnding
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// Metrics are what a VM uses now.
func (s *Service) Metrics(ctx context.Context, id string) (backend.Metrics, error) {
	r, err := s.store.VM(ctx, id)
	if err != nil {
		return backend.Metrics{}, err
	}
	instance, _ := s.machines.Get(id).Process()
	if instance == nil {
		return backend.Metrics{}, fault.New(fault.Conflict, "the VM is %s and uses nothing", r.State)
	}
	ctx, cancel := context.WithTimeout(ctx, machine.CallLimit)
	defer cancel()
	metrics, err := instance.Metrics(ctx)
	if err == nil && r.Tap != "" {
		metrics.NetReceivedBytes, metrics.NetSentBytes = host.NetworkCounters(&r)
	}
	return metrics, err
}

// errDeleted ends the work on the disk of a VM that is deleted.
var errDeleted = fault.New(fault.Conflict, "the VM is being deleted")

// Delete stops a VM at once and removes all it has on the host. It waits for nobody who works
// on the VM: operations are cancelled, and the process is killed first.
func (s *Service) Delete(ctx context.Context, id string) error {
	r, err := s.operate.Doom(ctx, id)
	if err != nil {
		return err
	}
	return s.destroy(context.WithoutCancel(ctx), r)
}

// destroy removes all that a VM in state deleting has. It can be repeated.
func (s *Service) destroy(ctx context.Context, r record.VM) error {
	m := s.machines.Get(r.ID)
	m.Deleting(1)
	defer m.Deleting(-1)
	for pause := firstDestroyPause; ; pause = min(2*pause, maxDestroyPause) {
		if err := s.destroyProcesses(ctx, m, &r); err != nil {
			return err
		}
		m.BreakOff(errDeleted)
		// Whoever works on the VM may have started a process since.
		waiting, cancel := context.WithTimeout(ctx, pause)
		release, err := m.Work(waiting)
		cancel()
		if err == nil {
			defer release()
			break
		}
		if s.machines.Ending().Err() != nil {
			return machine.ErrEnding
		}
	}
	if err := s.destroyProcesses(ctx, m, &r); err != nil {
		return err
	}
	return s.erase(ctx, r)
}

// The pauses are how long a VM that is being deleted is left to those who work on it, before
// their processes are killed once more.
const (
	firstDestroyPause = 100 * time.Millisecond
	maxDestroyPause   = 2 * time.Second
)

// destroyProcesses kills the process of a VM, or the one that has its disk open meanwhile.
func (s *Service) destroyProcesses(ctx context.Context, m *machine.Machine, r *record.VM) error {
	if instance, ended := m.Process(); instance != nil {
		return s.kill(ctx, instance, ended)
	}
	b := s.host.Backends()[r.Backend]
	if _, ok := b.(backend.DiskKeeper); !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, host.CleanLimit)
	defer cancel()
	return b.Clean(ctx, s.host.Spec(r))
}
