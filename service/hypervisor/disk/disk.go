// Package disk works on the disks of VMs: it resizes, snapshots, reverts, backs up and copies them.
//
//	disk.go      a Manager; exclusive access to a disk; resizing
//	attach.go    disks beside the system disk, and the medium of the CD drive
//	freeze.go    quiescing the guest's file systems
//	snapshot.go, revert.go
//	backup.go    point-in-time copies of a disk, and the bitmaps for incremental ones
//	transfer.go  transfers: disks that callers read as of one moment (transfer_read.go), or write
//	             (transfer_write.go)
//	clone.go     VMs made from another's disk or from a backup; disks that clones share
//	settle.go    finishes or undoes what was in progress when the daemon ended
//
// # Invariants
//
//   - A change inside a disk takes three steps in this order: the intent is stored, the change is
//     made, the result is stored (settled). A restarted daemon finds intents and finishes or undoes
//     them.
//   - Undoing and finishing use the same idempotent steps.
//   - Long work is an operation, which is its own intent: it is repeated from the start.
//   - A bitmap is forgotten before the disk changes in a way that it does not track.
//   - Files that a VM's process could write to are copied to a file of the daemon's own and
//     inspected there before anyone else uses them.
//
// It imports record, machine, host, life, plan, catalog, operation, backend, storage, image and nbd.
package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/operation"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Config holds the dependencies of a Manager.
type Config struct {
	Store      *record.Store
	Machines   *machine.Set
	Host       *host.Host
	Life       *life.Life
	Plan       *plan.Planner
	Catalog    *catalog.Catalog
	Operations *operation.Runner
	Policy     *admission.Policy
	Log        *slog.Logger
	Now        func() time.Time
}

// Manager works on the disks of the VMs of this host.
type Manager struct {
	store    *record.Store
	machines *machine.Set
	host     *host.Host
	life     *life.Life
	plan     *plan.Planner
	catalog  *catalog.Catalog
	operate  *operation.Runner
	policy   *admission.Policy
	log      *slog.Logger
	now      func() time.Time

	transfers transfers
}

// New returns a Manager and registers the operations on disks.
func New(c Config) *Manager {
	w := &Manager{
		store: c.Store, machines: c.Machines, host: c.Host, life: c.Life, plan: c.Plan, catalog: c.Catalog,
		operate: c.Operations, policy: c.Policy, log: c.Log, now: c.Now,
	}
	w.operations()
	return w
}

// operations registers the jobs of operations.
func (w *Manager) operations() {
	operation.Register(w.operate, record.OperationBackup, operation.Kind[backupArgs]{
		Run: func(ctx context.Context, a backupArgs, progress func(float64)) error {
			return w.runBackup(shell.As(ctx, a.Actor), a, progress)
		},
	})
	for kind, run := range map[string]func(context.Context, copyArgs, func(float64)) error{
		record.OperationClone: w.runClone, record.OperationRestore: w.runRestore,
	} {
		operation.Register(w.operate, kind, operation.Kind[copyArgs]{
			Run: func(ctx context.Context, a copyArgs, progress func(float64)) error {
				ctx = shell.As(ctx, a.Actor)
				err := run(ctx, a, progress)
				if err == nil || operation.BrokenOff(ctx) {
					return err
				}
				return errors.Join(err, w.unmake(ctx, a.VM, fault.From(err).Message))
			},
			Cancelled: func(ctx context.Context, a copyArgs) error {
				return w.unmake(ctx, a.VM, "the operation was cancelled")
			},
		})
	}
}

// work is called with exclusive access to a VM and its disk. The disk is nil for a sandbox.
type work func(ctx context.Context, r record.VM, d backend.Disks) error

// withDisk calls do with the disk of a VM that is running, paused, stopped or failed. It holds the
// VM's work lock.
func (w *Manager) withDisk(ctx context.Context, id string, do work) error {
	return w.machines.With(ctx, id, machine.Any, func(ctx context.Context, m *machine.Machine, r record.VM) error {
		ctx, done := m.Breakable(ctx)
		defer done()
		d, err := w.openDisk(ctx, m, &r)
		if err != nil {
			return err
		}
		err = do(ctx, r, d)
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, life.ErrDeleted) {
			err = cause
		}
		if !r.State.HasProcess() {
			err = errors.Join(err, d.Close())
		}
		return err
	})
}

// diskKeeper returns the backend of a VM's disk. Snapshots, backups and copies need a backend that
// supports them, and a qcow2 disk.
func (w *Manager) diskKeeper(r *record.VM) (backend.DiskKeeper, error) {
	if !r.HasDisk() {
		return nil, fault.New(fault.Conflict,
			"the VM has no disk of its own; give it disk_gib when it is made").WithCode("no_disk")
	}
	b, err := w.host.Backend(r)
	if err != nil {
		return nil, err
	}
	keeper, ok := b.(backend.DiskKeeper)
	if !ok || w.host.Disk(r).Format != "qcow2" {
		return nil, fault.New(fault.Conflict,
			"disks of the backend %s on the storage %s cannot do this; backend qemu on storage dir can",
			r.Backend, r.Spec.V.Storage).WithCode("disk_unsupported")
	}
	return keeper, nil
}

// openDisk returns the VM's disk, from its process or by opening it, and removes unfinished
// snapshots from it. The caller holds the VM's work lock.
func (w *Manager) openDisk(ctx context.Context, m *machine.Machine, r *record.VM) (backend.Disks, error) {
	keeper, err := w.diskKeeper(r)
	if err != nil {
		return nil, err
	}
	switch r.State {
	case vm.Running, vm.Paused:
		instance, _ := m.Process()
		d, ok := instance.(backend.Disks)
		if !ok {
			return nil, fault.New(fault.Conflict, "the VM is ending")
		}
		return d, errors.Join(w.endExport(ctx, r.ID, d), w.tidy(ctx, r.ID, d))
	case vm.Stopped, vm.Failed:
		d, err := keeper.OpenDisks(ctx, w.host.Spec(r))
		if err != nil && ctx.Err() == nil && fault.From(err).Kind == fault.Internal {
			err = fault.Wrap(fault.Conflict, err, "the VM's disk cannot be opened: %s", life.FirstLine(err.Error())).
				WithCode("disk_broken")
		}
		if err != nil {
			return nil, err
		}
		if err := errors.Join(w.endExport(ctx, r.ID, d), w.tidy(ctx, r.ID, d)); err != nil {
			return nil, errors.Join(err, d.Close())
		}
		return d, nil
	case vm.Creating, vm.Starting, vm.Stopping, vm.Deleting:
	}
	return nil, fault.New(fault.Conflict, "the VM is %s; try again when that is over", r.State).WithCode("wrong_state")
}

// Resize grows a VM's system disk to diskGiB.
func (w *Manager) Resize(ctx context.Context, id string, diskGiB int) (record.VM, error) {
	return w.resizeTo(ctx, id, diskGiB, "disk_gib")
}

// resizeTo is Resize. field is what the request calls the size.
func (w *Manager) resizeTo(ctx context.Context, id string, diskGiB int, field string) (record.VM, error) {
	var out record.VM
	err := w.withDisk(ctx, id, func(ctx context.Context, r record.VM, d backend.Disks) error {
		if diskGiB <= r.Spec.V.DiskGiB {
			return fault.InvalidField(field,
				"must be more than the %d that the disk has; disks only grow", r.Spec.V.DiskGiB)
		}
		has, err := w.SystemGiB(&r)
		if err == nil {
			err = w.roomFor(&r, field, diskGiB-has)
		}
		if err != nil {
			return err
		}
		ctx = context.WithoutCancel(ctx)
		if err := d.Resize(ctx, int64(diskGiB)*record.GiB); err != nil {
			return err
		}
		out, err = w.store.Change(
			ctx, id, record.EventDisk, "vm.resize", fmt.Sprintf("the disk has %d GiB now", diskGiB),
			func(r *record.VM) { r.Spec.V.DiskGiB = diskGiB },
		)
		return err
	})
	return out, err
}
