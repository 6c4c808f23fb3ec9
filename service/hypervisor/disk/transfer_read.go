package disk

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/nbd"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// readable serves a transfer that reads. The caller holds the VM's work lock.
func (w *Manager) readable(
	ctx context.Context, m *machine.Machine, r *record.VM, t *transfer, q TransferRequest, ready func(),
) (err error) {
	d, err := w.openDisk(ctx, m, r)
	if err != nil {
		return err
	}
	if !r.State.HasProcess() {
		defer func() { err = errors.Join(err, d.Close()) }()
	}
	export := backend.DiskExport{}
	if q.Consumer != "" {
		prefix := checkpointBitmap(q.Consumer)
		t.Checkpoint = t.ID
		export.Note = prefix + t.ID
		keep := []string{}
		if q.Since != "" {
			since := prefix + q.Since
			if t.Changed, err = d.HasBitmap(ctx, since); err != nil {
				return err
			}
			if t.Changed {
				export.Since, keep = since, []string{since}
			}
		}
		if err := makeRoom(ctx, d, prefix); err != nil {
			return err
		}
		// Bitmaps of reads that were never finished are useless.
		if err := d.DropBitmaps(ctx, prefix, keep...); err != nil {
			return err
		}
	}
	t.Consistency = ConsistencyStopped
	if r.State.HasProcess() {
		t.Consistency = ConsistencyCrash
		if err := w.scratch(ctx, r, &export); err != nil {
			return err
		}
		if instance, _ := m.Process(); instance != nil {
			var ended context.CancelCauseFunc
			ctx, ended = context.WithCancelCause(ctx)
			defer ended(nil)
			w.machines.Go("disk transfer's VM", func() {
				select {
				case <-instance.Done():
					ended(errEnded)
				case <-ctx.Done():
				}
			})
		}
		_, frozen, thaw := w.freeze(ctx, r)
		defer thaw() // in case the export does not begin
		if export.Begun = thaw; frozen {
			t.Consistency = ConsistencyFilesystem
		}
	}
	served, err := d.Export(ctx, export)
	if err != nil {
		return errors.Join(err, os.RemoveAll(w.host.Scratch(r.ID)))
	}
	kept := export.Since
	defer func() {
		// The disk is as before, whatever happened, but for the bitmap of a read that was finished.
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), machine.CallLimit)
		defer cancel()
		left := w.endExport(after, r.ID, d)
		if export.Note != "" {
			left = errors.Join(left, d.DropBitmaps(after, checkpointBitmap(q.Consumer), kept))
		}
		expected := errors.Is(err, errEnded) || errors.Is(err, life.ErrDeleted) || errors.Is(err, machine.ErrEnding)
		if left != nil && !expected {
			w.log.Warn("a transfer left something behind; the next use of the disk removes it",
				"vm", r.ID, "error", left)
		}
	}()
	if err := t.measure(ctx, served); err != nil {
		return err
	}
	all, err := t.dial(ctx, served)
	if err != nil {
		return err
	}
	defer t.hangUp(all)
	ready()
	return t.wait(ctx, func(ctx context.Context) error {
		if export.Note != "" {
			kept = export.Note
		}
		return w.store.Note(ctx, audit.Entry{
			Action: "vm.transfer.finish", Target: r.ID, Tenant: r.Tenant, Message: r.Name + ": read",
		})
	})
}

// makeRoom removes the oldest checkpoints of other consumers than the one with a prefix, if there are too
// many. They end with ids, which are in the order of their time.
func makeRoom(ctx context.Context, d backend.Disks, prefix string) error {
	names, err := d.Bitmaps(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, checkpointPrefix) || strings.HasPrefix(name, prefix)
	})
	id := func(name string) string { return name[max(0, len(name)-len(record.NewID())):] }
	slices.SortFunc(others, func(a, b string) int { return strings.Compare(id(a), id(b)) })
	for len(others) >= maxConsumers {
		if err := d.DropBitmaps(ctx, others[0]); err != nil {
			return err
		}
		others = others[1:]
	}
	return nil
}

// scratch creates the file for what a guest overwrites.
func (w *Manager) scratch(ctx context.Context, r *record.VM, e *backend.DiskExport) error {
	size, err := image.VirtualSize(w.host.Disk(r).Target)
	if err != nil {
		return err
	}
	e.Scratch, e.ScratchSize = w.host.Scratch(r.ID), max(size/4, minScratch)
	if err := storage.CreateQcow2(ctx, e.Scratch, size, w.host.Volume(r)); err != nil {
		return err
	}
	return os.Truncate(e.Scratch, e.ScratchSize)
}

// endExport ends an export and removes its scratch file, if there is one. The caller holds the VM's
// work lock.
func (w *Manager) endExport(ctx context.Context, id string, d backend.Disks) error {
	if !w.Unended(id) {
		return nil
	}
	if err := d.EndExport(ctx); err != nil {
		return err
	}
	return os.Remove(w.host.Scratch(id))
}

// Unended reports whether a daemon was killed while a VM's disk was read.
func (w *Manager) Unended(id string) bool {
	_, err := os.Lstat(w.host.Scratch(id))
	return err == nil
}

// measure asks for the size of an export, and for the ranges that have to be read.
func (t *transfer) measure(ctx context.Context, e backend.Export) error {
	metaContext, wanted := nbd.AllocationContext, func(flags uint32) bool { return flags&nbd.Zero == 0 }
	if e.Bitmap != "" {
		metaContext, wanted = nbd.BitmapContext(e.Bitmap), func(flags uint32) bool { return flags&nbd.Dirty != 0 }
	}
	c, err := openNBD(ctx, e, metaContext)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it was only read
	t.Size = c.Size()
	gap := int64(0)
	for at := int64(0); at < t.Size; {
		extents, err := c.Extents(ctx, at, t.Size-at)
		if err != nil {
			return err
		}
		for _, x := range extents {
			if wanted(x.Flags) {
				t.ranges = appendRange(t.ranges, Range{x.Offset, x.Length}, gap)
			}
			at = x.Offset + x.Length
		}
		for len(t.ranges) > maxRanges {
			gap = max(2*gap, 64<<10)
			var fewer []Range
			for _, r := range t.ranges {
				fewer = appendRange(fewer, r, gap)
			}
			t.ranges = fewer
		}
	}
	return nil
}

// appendRange appends a range, which becomes part of the last one if there are at most gap bytes
// between them.
func appendRange(all []Range, r Range, gap int64) []Range {
	if n := len(all); n > 0 && r.Offset-(all[n-1].Offset+all[n-1].Length) <= gap {
		all[n-1].Length = r.Offset + r.Length - all[n-1].Offset
		return all
	}
	return append(all, r)
}
