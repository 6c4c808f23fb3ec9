package life

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// KeepTime deletes VMs when their time is over.
func (l *Life) KeepTime(ctx context.Context) {
	const (
		longest  = 30 * time.Second
		afterErr = time.Second // so that a database that fails is not asked without a pause
	)
	for ctx.Err() == nil {
		err := l.expire(ctx)
		wait := l.untilNextExpiry(ctx, longest)
		if err != nil && ctx.Err() == nil {
			l.log.Error("VMs whose time is over are not deleted", "error", err)
			wait = max(wait, afterErr)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.timed: // its time may be over before that of all others
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Timed has the time of a new VM be looked at, which may be over before that of all others.
func (l *Life) Timed() {
	select {
	case l.timed <- struct{}{}:
	default: // KeepTime looks anyway
	}
}

// expire begins to delete VMs whose time is over, and those whose deletion has failed. It waits
// for none of them.
func (l *Life) expire(ctx context.Context) error {
	ctx = caller.ByItself(ctx)
	due, err := l.store.Due(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range due {
		if m := l.machines.Peek(r.ID); m != nil && m.IsBeingDeleted() {
			continue
		}
		if r.State != vm.Deleting {
			l.log.Info("a VM's time is over", "vm", r.ID)
			var err error
			if r, err = l.operate.Doom(ctx, r.ID); fault.Is(err, fault.NotFound) {
				continue
			} else if err != nil {
				errs = append(errs, err)
				continue
			}
		}
		l.machines.Go("VM delete", func() {
			if err := l.destroy(ctx, r); err != nil && l.machines.Ending().Err() == nil {
				l.log.Error("a VM is not removed; that is tried again", "vm", r.ID, "error", err)
			}
		})
	}
	return errors.Join(errs...)
}

// untilNextExpiry is how long to wait for the next VM whose time is over, at most limit.
func (l *Life) untilNextExpiry(ctx context.Context, limit time.Duration) time.Duration {
	next, err := l.store.NextExpiry(ctx)
	if err != nil || next.IsZero() {
		return limit
	}
	return min(max(next.Sub(l.now()), 0), limit)
}
