package life

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// startLimit is how long a request waits for a job that makes or starts the VM.
const startLimit = 30 * time.Second

// settled returns a VM that no job changes. It waits for a job that makes or starts the VM.
func (l *Life) settled(ctx context.Context, id string) (record.VM, error) {
	r, err := l.store.VM(ctx, id)
	if err != nil || r.Job == nil {
		return r, err
	}
	if r.Job.Kind == record.JobProvision || r.Job.Kind == record.JobStart {
		if _, err := l.jobs.Await(ctx, r.Job.ID, startLimit); err != nil {
			return r, err
		}
		if r, err = l.store.VM(ctx, id); err != nil {
			return r, err
		}
	}
	return r, r.Busy()
}

// giveUpStart cancels the job that starts a VM, if there is one: it may wait for the guest's agent.
func (l *Life) giveUpStart(ctx context.Context, id string) error {
	r, err := l.store.VM(ctx, id)
	if err != nil || r.Job == nil || r.Job.Kind != record.JobStart {
		return err
	}
	if _, err = l.jobs.Cancel(ctx, r.Job.ID); fault.Is(err, fault.Conflict) {
		return nil // it has just ended
	}
	return err
}

// Stop asks the guest to shut down, and returns when the VM has stopped. With force, it switches the VM off at once,
// also while it starts.
func (l *Life) Stop(ctx context.Context, id string, grace time.Duration, force bool) error {
	if force {
		if err := l.giveUpStart(ctx, id); err != nil {
			return err
		}
	}
	r, err := l.settled(ctx, id)
	if err != nil {
		return err
	}
	if err := l.store.Note(ctx, audit.Entry{Action: "vm.stop", Target: r.ID, Tenant: r.Tenant}); err != nil {
		return err
	}
	if !r.Provisioned() {
		return nil // never made, so it does not run
	}
	return l.power(ctx, &r, func(at driver.Place) (record.Seen, error) {
		seen, err := l.driver.Stop(ctx, at, grace, force)
		if fault.Is(err, fault.Conflict) {
			if now, again := l.driver.Get(ctx, at); again == nil && (now.State == record.Stopped || now.State == record.Failed) {
				return now, nil // it has stopped already
			}
		}
		return seen, err
	})
}

// Restart reboots a running VM.
func (l *Life) Restart(ctx context.Context, id string) error {
	return l.verb(ctx, id, "vm.restart", l.driver.Restart)
}

// Pause halts the processors of a running VM. A paused VM stays paused.
func (l *Life) Pause(ctx context.Context, id string) error {
	return l.verb(ctx, id, "vm.pause", l.until(record.Paused, l.driver.Pause))
}

// Resume lets a paused VM continue. A running VM keeps running.
func (l *Life) Resume(ctx context.Context, id string) error {
	return l.verb(ctx, id, "vm.resume", l.until(record.Running, l.driver.Resume))
}

// InsertCD puts an image, as the daemon names it, into a VM's CD drive.
func (l *Life) InsertCD(ctx context.Context, id, image string) error {
	return l.verb(ctx, id, "vm.insert_cd", func(ctx context.Context, at driver.Place) (record.Seen, error) {
		return l.driver.InsertCD(ctx, at, image)
	})
}

// EjectCD empties a VM's CD drive.
func (l *Life) EjectCD(ctx context.Context, id string) error {
	return l.verb(ctx, id, "vm.eject_cd", l.driver.EjectCD)
}

// until returns a verb that succeeds if the VM is in the wanted state already.
func (l *Life) until(
	want record.State, do func(context.Context, driver.Place) (record.Seen, error),
) func(context.Context, driver.Place) (record.Seen, error) {
	return func(ctx context.Context, at driver.Place) (record.Seen, error) {
		seen, err := do(ctx, at)
		if fault.Is(err, fault.Conflict) {
			if now, again := l.driver.Get(ctx, at); again == nil && now.State == want {
				return now, nil
			}
		}
		return seen, err
	}
}

// verb records a verb in the audit log and has the daemon do it.
func (l *Life) verb(
	ctx context.Context, id, action string, do func(context.Context, driver.Place) (record.Seen, error),
) error {
	r, err := l.settled(ctx, id)
	if err != nil {
		return err
	}
	if !r.Provisioned() {
		return fault.New(fault.Conflict, "the VM is %s, and the daemon has not made it yet", r.State)
	}
	if err := l.store.Note(ctx, audit.Entry{Action: action, Target: r.ID, Tenant: r.Tenant}); err != nil {
		return err
	}
	return l.power(ctx, &r, func(at driver.Place) (record.Seen, error) { return do(ctx, at) })
}

// power calls the daemon, and stores the state that its answer tells.
func (l *Life) power(ctx context.Context, r *record.VM, do func(at driver.Place) (record.Seen, error)) error {
	seen, err := do(driver.PlaceOf(r))
	after := context.WithoutCancel(ctx)
	switch {
	case fault.Is(err, fault.NotFound):
		return l.vanished(after, r, err)
	case err != nil:
		return err
	}
	return l.store.Observed(after, r.ID, seen, true)
}

// vanished stores that the daemon does not know a VM any more, and returns the fault about it. If the daemon
// does know it, it returns the fault that led here, which is about something else.
func (l *Life) vanished(ctx context.Context, r *record.VM, cause error) error {
	switch _, err := l.driver.Get(ctx, driver.PlaceOf(r)); {
	case err == nil:
		return cause
	case !fault.Is(err, fault.NotFound):
		return err
	}
	if err := l.store.Observed(ctx, r.ID, record.Vanished(r), true); err != nil {
		return err
	}
	return fault.New(fault.Conflict,
		"the hypervisor daemon does not know the VM any more; restore it from a backup, or delete it")
}
