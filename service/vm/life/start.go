package life

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Start begins to start a VM. While the daemon still makes the VM, the start follows that; then it
// takes no options.
func (l *Life) Start(ctx context.Context, id string, o driver.StartOptions) (record.VM, error) {
	follow := o.None()
	return l.store.Start(ctx, id, follow, audit.Entry{Action: "vm.start"}, func(tx *db.Tx, r *record.VM) error {
		j := record.NewJob(record.JobStart, r)
		t := targetOf(ctx, r)
		t.Start = o
		return l.jobs.Begin(ctx, tx, &j, t)
	})
}

// provision is the job vm.provision.
func (l *Life) provision(ctx context.Context, t target, _ func(float64)) error {
	ctx = caller.Acting(ctx, t.Actor)
	r, err := l.store.VM(ctx, t.VM)
	if err != nil {
		return forgotten(err)
	}
	if _, err = l.make(ctx, &r); err != nil {
		return l.failed(ctx, &r, record.Stopped, err)
	}
	return nil
}

// Make has the daemon make a VM that it has not made yet, for a job, and returns what is stored then.
func (l *Life) Make(ctx context.Context, r *record.VM) (record.VM, error) { return l.make(ctx, r) }

// make has the daemon make a VM that it has not made yet, and stores where it is.
func (l *Life) make(ctx context.Context, r *record.VM) (record.VM, error) {
	if r.Provisioned() {
		return *r, nil
	}
	seen, err := l.askPatiently(ctx, r)
	if err != nil {
		return *r, err
	}
	// The VM exists now, and must not be forgotten because the job is cancelled at this moment.
	ctx = context.WithoutCancel(ctx)
	if err := l.store.Made(ctx, r.ID, seen, l.begin(ctx, record.JobStart)); err != nil {
		return *r, err
	}
	return l.store.VM(ctx, r.ID)
}

// The waits between attempts to have a VM made while the daemon does not answer, as when it restarts.
const (
	firstWait = time.Second
	longWait  = 16 * time.Second
)

// askPatiently asks the daemon to make a VM, again and again for half a minute while it is away.
func (l *Life) askPatiently(ctx context.Context, r *record.VM) (record.Seen, error) {
	for wait := firstWait; ; wait *= 2 {
		seen, err := l.ask(ctx, r)
		if !fault.Is(err, fault.Unavailable) || wait > longWait {
			return seen, err
		}
		if !backoff.Sleep(ctx, wait) {
			return seen, context.Cause(ctx)
		}
	}
}

// ask asks the daemon to make a VM, as a copy of another one or from an image.
func (l *Life) ask(ctx context.Context, r *record.VM) (record.Seen, error) {
	if r.Spec.V.Source == "" {
		var init record.CloudInit
		if r.Secret != "" {
			text, err := l.sealer.Open(r.Secret, r.ID)
			if err == nil {
				err = json.Unmarshal(text, &init)
			}
			if err != nil {
				return record.Seen{}, fault.Wrap(fault.Internal, err, "the VM's settings for cloud-init cannot be read: "+
					"the secret key was lost; create the VM again")
			}
		}
		// The image may have come into being after the VM was recorded.
		if err := l.store.CheckImage(ctx, r); err != nil {
			return record.Seen{}, err
		}
		return l.driver.Make(ctx, r, init)
	}
	found, err := l.driver.Find(ctx, r)
	if err != nil {
		return record.Seen{}, err
	}
	if found != nil {
		return *found, nil
	}
	source, err := l.store.VM(ctx, r.Spec.V.Source)
	if err != nil {
		return record.Seen{}, fault.New(fault.Conflict, "the VM that this one is a clone of was deleted")
	}
	return l.driver.Clone(ctx, r, &source)
}

// start is the job vm.start.
func (l *Life) start(ctx context.Context, t target, _ func(float64)) error {
	ctx = caller.Acting(ctx, t.Actor)
	r, err := l.store.VM(ctx, t.VM)
	if err != nil {
		return forgotten(err)
	}
	if r, err = l.make(ctx, &r); err != nil {
		return l.failed(ctx, &r, record.Stopped, err)
	}
	if err := l.guard(ctx, r.ID); err != nil {
		return l.failed(ctx, &r, "", fault.Wrap(fault.KindOf(err), err, "the VM's network policy is not in force: %s",
			fault.From(err).Message))
	}
	seen, err := l.driver.Start(ctx, driver.PlaceOf(&r), t.Start)
	if fault.Is(err, fault.Conflict) {
		// Whoever repeats a job finds what it did the last time.
		now, again := l.driver.Get(ctx, driver.PlaceOf(&r))
		if again == nil && (now.State == record.Running || now.State == record.Paused) {
			seen, err = now, nil
		}
	}
	if err != nil {
		return l.failed(ctx, &r, "", err)
	}
	if err := l.store.Observed(context.WithoutCancel(ctx), r.ID, seen, true); err != nil || len(t.Start.Mounts) == 0 {
		return err
	}
	if err := l.driver.MountShares(ctx, driver.PlaceOf(&r), t.Start.Mounts); err != nil {
		return l.failed(ctx, &r, "", err)
	}
	return nil
}

// failed stores why a job for a VM failed, and returns the error. state is the VM's state then; empty:
// the one that the daemon tells. A job that is broken off because the service ends has not failed.
func (l *Life) failed(ctx context.Context, r *record.VM, state record.State, cause error) error {
	if job.BrokenOff(ctx) {
		return cause
	}
	reason := fault.From(cause).Message
	if ctx.Err() != nil {
		reason = "the job was cancelled"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
	defer cancel()
	if state == "" {
		state = record.Failed
		if now, err := l.driver.Get(ctx, driver.PlaceOf(r)); err == nil {
			state = now.State
			if now.LastError != "" {
				reason = now.LastError
			}
		}
	}
	if err := l.store.Failed(ctx, r.ID, state, reason); err != nil {
		l.log.Error("the end of a job was not stored", "vm", r.ID, "error", err)
	}
	return cause
}

// readLimit bounds what is asked of the daemon after a failure.
const readLimit = 20 * time.Second

// cancelled ends a job that was cancelled before it ran.
func (l *Life) cancelled(ctx context.Context, t target) error {
	return l.store.Failed(caller.ByItself(ctx), t.VM, record.Stopped, "the job was cancelled")
}

// forgotten ends the job of a VM that was deleted meanwhile without a failure.
func forgotten(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
