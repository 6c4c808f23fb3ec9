package life

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// KeepTime deletes VMs when they expire.
func (l *Life) KeepTime(ctx context.Context) {
	const (
		longest  = 30 * time.Second
		afterErr = time.Second // pause between attempts while the database fails
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
		case <-l.timed: // a new VM may expire before all others
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Timed wakes KeepTime after a VM with a time to live was created, which may expire before all
// others.
func (l *Life) Timed() {
	select {
	case l.timed <- struct{}{}:
	default: // KeepTime is about to look already
	}
}

// expire starts deleting VMs that have expired, and VMs whose deletion failed. It does not wait for
// them.
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

// untilNextExpiry returns the time until the next VM expires, at most limit.
func (l *Life) untilNextExpiry(ctx context.Context, limit time.Duration) time.Duration {
	next, err := l.store.NextExpiry(ctx)
	if err != nil || next.IsZero() {
		return limit
	}
	return min(max(next.Sub(l.now()), 0), limit)
}
