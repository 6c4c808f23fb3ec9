package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/life"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// withDisk does something with the disk of a VM that runs, is paused or is stopped, while
// nobody else works on the VM.
func (s *Service) withDisk(ctx context.Context, id string, do func(ctx context.Context, r record.VM, d backend.Disks) error) error {
	return s.machines.With(ctx, id, machine.Any, func(ctx context.Context, m *machine.Machine, r record.VM) error {
		ctx, done := m.Breakable(ctx)
		defer done()
		d, err := s.openDisk(ctx, m, &r)
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

// diskKeeper is who works on a VM's disk: snapshots, backups and copies take a backend
// that can, and a file that holds more than bytes.
func (s *Service) diskKeeper(r *record.VM) (backend.DiskKeeper, error) {
	if !r.HasDisk() {
		return nil, fault.New(fault.Conflict, "the VM has no disk of its own; give it disk_gib when it is made").WithCode("no_disk")
	}
	b, err := s.host.Backend(r)
	if err != nil {
		return nil, err
	}
	keeper, ok := b.(backend.DiskKeeper)
	if !ok || s.host.Disk(r).Format != "qcow2" {
		return nil, fault.New(fault.Conflict, "disks of the backend %s on the storage %s cannot do this; backend qemu on storage dir can", r.Backend, r.Spec.V.Storage).WithCode("disk_unsupported")
	}
	return keeper, nil
}

// openDisk finds who has the VM's disk, or opens it, and has what was left unfinished in it
// cleaned up. The VM's work is locked.
func (s *Service) openDisk(ctx context.Context, m *machine.Machine, r *record.VM) (backend.Disks, error) {
	keeper, err := s.diskKeeper(r)
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
		return d, s.tidy(ctx, r.ID, d)
	case vm.Stopped, vm.Failed:
		d, err := keeper.OpenDisks(ctx, s.host.Spec(r))
		if err != nil && ctx.Err() == nil && fault.From(err).Kind == fault.Internal {
			err = fault.Wrap(fault.Conflict, err, "the VM's disk cannot be opened: %s", life.FirstLine(err.Error())).WithCode("disk_broken")
		}
		if err != nil {
			return nil, err
		}
		if err := s.tidy(ctx, r.ID, d); err != nil {
			return nil, errors.Join(err, d.Close())
		}
		return d, nil
	case vm.Creating, vm.Starting, vm.Stopping, vm.Deleting:
	}
	return nil, fault.New(fault.Conflict, "the VM is %s; try again when that is over", r.State).WithCode("wrong_state")
}

// Resize makes a VM's disk larger.
func (s *Service) Resize(ctx context.Context, id string, diskGiB int) (record.VM, error) {
	var out record.VM
	err := s.withDisk(ctx, id, func(ctx context.Context, r record.VM, d backend.Disks) error {
		if diskGiB <= r.Spec.V.DiskGiB {
			return fault.InvalidField("disk_gib", "must be more than the %d that the disk has; disks only grow", r.Spec.V.DiskGiB)
		}
		if limit := s.policy.MaxDiskGiB; limit > 0 && diskGiB > limit {
			return admission.RefuseField("policy.max_disk_gib", "disk_gib", "a VM may have %d; the limit is policy.max_disk_gib", limit)
		}
		ctx = context.WithoutCancel(ctx)
		if err := d.Resize(ctx, int64(diskGiB)*record.GiB); err != nil {
			return err
		}
		var err error
		out, err = s.store.Change(ctx, id, record.EventDisk, "vm.resize", fmt.Sprintf("the disk has %d GiB now", diskGiB),
			func(r *record.VM) { r.Spec.V.DiskGiB = diskGiB })
		return err
	})
	return out, err
}

// freezeLimit is how long a guest's file systems may stand still for a snapshot, and
// freezePatience how long the guest may take to stop them.
const (
	freezeLimit    = 30 * time.Second
	freezePatience = 10 * time.Second
)

// quiet does something while the file systems of a guest that runs stand still, if its
// agent can see to that, and says how it went.
func (s *Service) quiet(ctx context.Context, r *record.VM, do func() error) (how string, err error) {
	client, agentErr := s.machines.Get(r.ID).Session()
	if r.State != vm.Running || agentErr != nil {
		return "as the disk was", do()
	}
	freezing, cancel := context.WithTimeout(ctx, freezePatience)
	n, freezeErr := client.Freeze(freezing, freezeLimit)
	cancel()
	err = do()
	if freezeErr != nil {
		return "as the disk was, since the guest's file systems could not be stopped", err
	}
	thawing, cancel := context.WithTimeout(ctx, freezePatience)
	defer cancel()
	if thawed, thawErr := client.Thaw(thawing); thawErr != nil || thawed < n {
		return "as the disk was: the guest's file systems did not stand still to the end", err
	}
	return fmt.Sprintf("with the guest's %d file systems at rest", n), err
}
