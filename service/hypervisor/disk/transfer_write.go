package disk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// writable serves a transfer that writes. The caller holds the VM's work lock.
func (w *Manager) writable(
	ctx context.Context, _ *machine.Machine, r *record.VM, t *transfer, q TransferRequest, ready func(),
) (err error) {
	keeper, err := w.diskKeeper(r)
	if err != nil {
		return err
	}
	if t.Size = q.Size; t.Size == 0 {
		t.Size = int64(r.Spec.V.DiskGiB) * record.GiB
	}
	t.Consistency = ConsistencyStopped
	work := w.host.WorkCopy(r.ID)
	defer func() { _ = os.Remove(work) }() // moved to its place by then, or useless
	if err := storage.CreateQcow2(ctx, work, t.Size, w.host.Volume(r)); err != nil {
		return err
	}
	spec := *w.host.Spec(r)
	spec.Disks = []backend.Disk{{ID: w.host.Disk(r).ID, Target: work, Format: "qcow2"}}
	d, err := keeper.OpenDisks(ctx, &spec)
	if err != nil {
		return err
	}
	closed := false
	closeIt := func() error {
		if closed {
			return nil
		}
		closed = true
		return d.Close()
	}
	defer func() { err = errors.Join(err, closeIt()) }()
	served, err := d.Export(ctx, backend.DiskExport{Writable: true})
	if err != nil {
		return err
	}
	all, err := t.dial(ctx, served)
	if err != nil {
		return err
	}
	defer t.hangUp(all)
	ready()
	return t.wait(ctx, func(ctx context.Context) error {
		for range all { // those that serve a request come back first
			c := <-t.conns
			if err := c.Flush(ctx); err != nil {
				return w.transferFailed(t, err)
			}
		}
		t.hangUp(all)
		if err := errors.Join(d.EndExport(ctx), closeIt()); err != nil {
			return err
		}
		if err := syncFile(work); err != nil {
			return err
		}
		if err := w.exchange(ctx, r, work, t.Size, "the disk was written by "+caller.From(ctx).Name); err != nil {
			return err
		}
		return w.store.Note(ctx, audit.Entry{
			Action: "vm.transfer.finish", Target: r.ID, Tenant: r.Tenant,
			Message: fmt.Sprintf("%s: %d bytes written", r.Name, t.Size),
		})
	})
}

// syncFile makes a file durable that another process has written.
func syncFile(path string) error {
	f, err := os.Open(path) //nolint:gosec // our own folder
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
