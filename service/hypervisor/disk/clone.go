package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// copyArgs are the arguments of the jobs that create a VM from another or from a backup, or restore
// a backup to a VM's disk.
type copyArgs struct {
	VM     string // the VM that is created, or gets the disk
	Source string // the VM that is cloned
	Backup string
	Linked bool
	Actor  caller.Caller
}

// Clone starts an operation that creates a VM with a copy of another's disk.
func (w *Manager) Clone(ctx context.Context, id, name string, linked bool) (record.Operation, error) {
	source, err := w.store.VM(ctx, id)
	if err != nil {
		return record.Operation{}, err
	}
	err = noDataDisks(&source, "a clone")
	switch {
	case err != nil:
	case linked:
		err = w.linkable(ctx, &source)
	case source.HasDisk():
		_, err = w.diskKeeper(&source)
	}
	if err != nil {
		return record.Operation{}, err
	}
	r, err := w.admitCopy(ctx, name, source.Tenant, source.Backend, &source.Spec.V, source.Base, "vm.clone")
	if err != nil {
		return record.Operation{}, err
	}
	args := copyArgs{VM: r.ID, Source: id, Linked: linked, Actor: caller.From(ctx)}
	op := record.NewOperation(record.OperationClone, r.Tenant)
	op.VM = r.ID
	return w.begin(ctx, op, args,
		audit.Entry{Action: "vm.clone", Target: id, Tenant: r.Tenant, Message: source.Name + " to " + name})
}

// admitCopy creates the row of a VM that is a copy. It is checked against the policy like any
// other.
func (w *Manager) admitCopy(
	ctx context.Context, name, tenant, backendName string, of *record.Spec, content, action string,
) (record.VM, error) {
	req := plan.Request{Name: name, Tenant: tenant, Backend: backendName, Spec: *of}
	req.Spec.Network.IP, req.Spec.Network.Forwards = "", nil // two VMs cannot share an address or a port
	return w.plan.Admit(ctx, &req, plan.Again(content, of.Boot), action)
}

// linkable checks that a VM's disk can be shared.
func (w *Manager) linkable(ctx context.Context, r *record.VM) error {
	switch {
	case !r.HasDisk() || r.Spec.V.Storage != storage.Dir:
		return fault.New(fault.Conflict,
			"linked clones take a VM with a disk on the storage dir").WithCode("disk_unsupported")
	case r.State != vm.Stopped && r.State != vm.Failed:
		return fault.New(fault.Conflict,
			"the VM is %s; linked clones take one that is stopped", r.State).WithCode("wrong_state")
	}
	// Remains of failed snapshots do not count: they are removed when the disk is opened.
	n, _, err := w.store.CountSnapshots(ctx, r.ID)
	if err != nil {
		return err
	}
	if n > 0 {
		return fault.New(fault.Conflict, "the VM has %d snapshots, which its disk would lose by being shared: "+
			"remove them, or make a full clone", n).WithCode("has_snapshots")
	}
	return nil
}

// runClone is the job of a clone. If it is repeated, it starts over.
func (w *Manager) runClone(ctx context.Context, a copyArgs, progress func(float64)) error {
	return w.makeCopy(ctx, a, func(ctx context.Context, r *record.VM) error {
		source, err := w.store.VM(ctx, a.Source)
		if err != nil {
			return err
		}
		if err := noDataDisks(&source, "a clone"); err != nil { // it got one since
			return err
		}
		uid, gid := w.host.Owner(r)
		from, to := w.host.Folder(source.ID), w.host.Folder(r.ID)
		if err := host.CopyBoot(ctx, &source.Spec.V.Boot, from, to, uid, gid); err != nil {
			return err
		}
		switch {
		case !source.HasDisk():
			return nil
		case a.Linked:
			return w.link(ctx, source.ID, r)
		}
		return w.withDisk(ctx, a.Source, func(ctx context.Context, source record.VM, d backend.Disks) error {
			work := w.host.WorkCopy(source.ID)
			defer func() { _ = os.Remove(work) }() // moved to its place by then, or useless
			size, err := image.VirtualSize(w.host.Disk(&source).Target)
			if err != nil {
				return err
			}
			if err := storage.CreateQcow2(ctx, work, size, w.host.Volume(&source)); err != nil {
				return err
			}
			if _, err := w.copyQuietly(ctx, &source, d, backend.DiskCopy{Target: work}, progress); err != nil {
				return err
			}
			// The other VM's process may still have the copy open, so the clone gets a file that
			// the process never had access to.
			disk := w.host.Disk(r).Target
			if err := image.Adopt(ctx, work, disk, image.LimitsOf(size)); err != nil {
				return err
			}
			return storage.Own(disk, w.host.Volume(r))
		})
	})
}

// begin enqueues the operation that creates a VM whose row exists, or replaces a disk.
func (w *Manager) begin(
	ctx context.Context, op record.Operation, args copyArgs, entry audit.Entry,
) (record.Operation, error) {
	op, err := w.operate.Begin(ctx, op, args, entry)
	if err != nil {
		return op, errors.Join(err, w.unmake(ctx, args.VM, fault.From(err).Message))
	}
	return op, nil
}

// unmake removes a VM that an operation failed to create. A VM that was already created, or existed
// before, stays.
func (w *Manager) unmake(ctx context.Context, id, why string) error {
	ctx = context.WithoutCancel(ctx)
	r, err := w.store.VM(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil || r.State != vm.Creating {
		return err // a VM that stays: do not wait for its work lock
	}
	err = w.machines.With(ctx, id, machine.Any, func(ctx context.Context, _ *machine.Machine, r record.VM) error {
		if r.State != vm.Creating {
			return nil
		}
		return w.life.Undo(ctx, r, why)
	})
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// makeCopy creates a VM whose row exists. fill provides the content of its folder.
func (w *Manager) makeCopy(ctx context.Context, a copyArgs, fill func(ctx context.Context, r *record.VM) error) error {
	defer w.catalog.Hold()()
	return w.machines.With(ctx, a.VM, machine.Any, func(ctx context.Context, _ *machine.Machine, r record.VM) error {
		if r.State != vm.Creating {
			return nil // it was created before the daemon ended
		}
		return w.makeCopyOf(ctx, r, fill)
	})
}

func (w *Manager) makeCopyOf(
	ctx context.Context, r record.VM, fill func(ctx context.Context, r *record.VM) error,
) error {
	err := w.host.MakeFolderAnew(r.ID)
	if err == nil {
		err = fill(ctx, &r)
	}
	if err == nil {
		var secrets []string
		if r.Spec.V.Agent {
			secrets, err = w.store.Secrets(ctx, r.ID)
		}
		if err == nil {
			err = w.host.WriteSeed(&r, firstOf(secrets))
		}
	}
	if err != nil {
		return err
	}
	_, err = w.store.Move(context.WithoutCancel(ctx), r.ID, vm.Made, "", "", func(row *record.VM) {
		row.DiskBase, row.Base = r.DiskBase, r.Base
	})
	return err
}

func firstOf(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// link turns a stopped VM's disk into a base that the VM and its clone share.
func (w *Manager) link(ctx context.Context, source string, clone *record.VM) error {
	return w.machines.With(ctx, source, w.linkable, func(ctx context.Context, m *machine.Machine, r record.VM) error {
		ctx = context.WithoutCancel(ctx)
		if err := w.tidyStopped(ctx, m, &r); err != nil {
			return err
		}
		return w.share(ctx, r, clone)
	})
}

func (w *Manager) share(ctx context.Context, r record.VM, clone *record.VM) error {
	v := w.host.Volume(&r)
	disk := w.host.Disk(&r).Target
	size, err := w.shareable(&r, disk)
	if err != nil {
		return err
	}
	id := record.NewID()
	// The base is stored before its file exists, and its file exists before any disk uses it. Until
	// one rename replaces the VM's own disk, both names are the same file, which is harmless.
	if err := w.store.ShareDisk(ctx, r.ID, id); err != nil {
		return err
	}
	if err := os.Link(disk, w.host.BasePath(id)); err != nil {
		return err
	}
	over := v
	over.Folder = filepath.Join(v.Folder, "linked")
	if err := errors.Join(os.RemoveAll(over.Folder), os.Mkdir(over.Folder, 0o700)); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(over.Folder) }() // its content was moved
	stands := &storage.Base{Path: w.host.BasePath(id), Format: "qcow2", Size: size}
	over.Size = size
	if err := (storage.DirPool{}).Create(ctx, over, stands); err != nil {
		return err
	}
	if err := os.Rename((storage.DirPool{}).Path(over), disk); err != nil {
		return err
	}
	if err := os.Chmod(w.host.BasePath(id), 0o444); err != nil { //nolint:gosec // VMs under other uids read it
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(w.host.BasePath(id), 0, 0); err != nil {
			return err
		}
	}
	clone.DiskBase = id
	cv := w.host.Volume(clone)
	cv.Size = size
	return (storage.DirPool{}).Create(ctx, cv, stands)
}

// shareable returns the size of a stopped VM's disk. It fails if the disk has another backing file
// than it was created with: the VM's process could have written one into the header, and its clones
// would read that file.
func (w *Manager) shareable(r *record.VM, disk string) (int64, error) {
	f, err := os.Open(disk) //nolint:gosec // our own folder
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	stat, err := f.Stat()
	if err != nil {
		return 0, err
	}
	backing := ""
	if r.DiskBase != "" {
		backing = w.host.BasePath(r.DiskBase)
	} else if content, err := w.catalog.Content(r.Base); err == nil && content.Kind == catalog.Disk {
		backing = content.DiskPath()
	}
	info, err := image.InspectLayer(f, stat.Size(), backing)
	return info.VirtualSize, err
}

// RestoreBackup starts an operation that creates a VM from a backup. If into is a VM's id, it
// replaces that VM's disk instead.
func (w *Manager) RestoreBackup(ctx context.Context, id, name, into string) (record.Operation, error) {
	b, err := w.store.Backup(ctx, id)
	if err != nil {
		return record.Operation{}, err
	}
	if (name == "") == (into == "") {
		return record.Operation{}, fault.InvalidField("name", "give either name, for a new VM, or vm")
	}
	args := copyArgs{VM: into, Source: b.VM, Backup: id, Actor: caller.From(ctx)}
	if into != "" {
		r, err := w.store.VM(ctx, into)
		if err != nil {
			return record.Operation{}, err
		}
		if err := w.replaceableDisk(ctx, &r); err != nil {
			return record.Operation{}, err
		}
	} else {
		if _, err := w.bootOf(ctx, &b); err != nil {
			return record.Operation{}, err
		}
		r, err := w.admitCopy(ctx, name, b.Tenant, b.Backend, &b.Spec.V, b.Base, "backup.restore")
		if err != nil {
			return record.Operation{}, err
		}
		args.VM = r.ID
	}
	op := record.NewOperation(record.OperationRestore, b.Tenant)
	op.VM, op.Backup = args.VM, id
	return w.begin(
		ctx, op, args, audit.Entry{Action: "backup.restore", Target: id, Tenant: b.Tenant, Message: b.VMName},
	)
}

// bootOf returns the folder with the boot files of a VM made from a backup: the backup's own, or
// the original VM's if the backup is from a version that did not keep them.
func (w *Manager) bootOf(ctx context.Context, b *record.Backup) (string, error) {
	kept := w.host.BackupBoot(b.ID)
	_, err := os.Stat(kept)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return kept, err
	}
	names := host.BootFiles(&b.Spec.V.Boot)
	if len(names) == 0 || len(names) == 1 && names[0] == backend.VarsFile {
		return kept, nil
	}
	if _, err := w.store.VM(ctx, b.VM); err != nil {
		return "", fault.New(
			fault.Conflict,
			"the VM of the backup, whose kernel or firmware a new one needs, is gone; "+
				"restore into a VM that has one",
		)
	}
	return w.host.Folder(b.VM), nil
}

// replaceableDisk checks that a VM's disk can be replaced.
func (w *Manager) replaceableDisk(ctx context.Context, r *record.VM) error {
	err := w.linkable(ctx, r)
	if err == nil {
		return nil
	}
	switch code := fault.From(err).PublicCode(); code {
	case "has_snapshots":
		return fault.New(
			fault.Conflict, "the VM has snapshots, which its disk would lose: remove them first",
		).WithCode(code)
	case "wrong_state":
		return fault.New(fault.Conflict,
			"the VM is %s: stop it before a backup is put in the place of its disk", r.State).WithCode(code)
	case "disk_unsupported":
		return fault.New(
			fault.Conflict, "the VM has no disk on the storage dir, where a backup can be put",
		).WithCode(code)
	}
	return err
}

// runRestore is the job of a restore. If it is repeated, it starts over.
func (w *Manager) runRestore(ctx context.Context, a copyArgs, progress func(float64)) error {
	b, err := w.store.Backup(ctx, a.Backup)
	if err != nil {
		return err
	}
	target, err := w.store.VM(ctx, a.VM)
	if err != nil {
		return err
	}
	if target.State == vm.Creating {
		return w.makeCopy(ctx, a, func(ctx context.Context, r *record.VM) error {
			from, err := w.bootOf(ctx, &b)
			if err != nil {
				return err
			}
			uid, gid := w.host.Owner(r)
			if err := host.CopyBoot(ctx, &b.Spec.V.Boot, from, w.host.Folder(r.ID), uid, gid); err != nil {
				return err
			}
			disk := w.host.Disk(r).Target
			if err := w.readBackup(ctx, &b, disk, progress); err != nil {
				return err
			}
			return errors.Join(os.Chmod(disk, 0o600), storage.Own(disk, w.host.Volume(r)))
		})
	}
	return w.replaceDisk(ctx, a.VM, &b, progress)
}

// replaceDisk replaces a stopped VM's disk with a backup's.
func (w *Manager) replaceDisk(ctx context.Context, id string, b *record.Backup, progress func(float64)) error {
	return w.machines.With(
		ctx,
		id,
		w.replaceableDisk,
		func(ctx context.Context, _ *machine.Machine, r record.VM) error {
			return w.replaceDiskOf(ctx, r, b, progress)
		},
	)
}

func (w *Manager) replaceDiskOf(ctx context.Context, r record.VM, b *record.Backup, progress func(float64)) error {
	v := w.host.Volume(&r)
	work := w.host.WorkCopy(r.ID)
	defer func() { _ = os.Remove(work) }() // moved to its place by then, or useless
	if err := os.Remove(work); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // left by a daemon that was killed
	}
	if err := w.readBackup(ctx, b, work, progress); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(work, 0o600), storage.Own(work, v)); err != nil {
		return err
	}
	// The intent is stored in two ways: by the operation, which is repeated if the daemon is
	// killed, and by forgetting the bitmaps of the old disk, so that no backup builds on them.
	return w.exchange(ctx, &r, work, b.VirtualSize, "the disk is as in backup "+b.ID)
}

// exchange puts a file of size bytes in the place of a stopped VM's disk. The caller holds the VM's
// work lock.
func (w *Manager) exchange(ctx context.Context, r *record.VM, file string, size int64, message string) error {
	if err := w.store.ForgetBitmaps(ctx, r.ID); err != nil {
		return err
	}
	disk := w.host.Disk(r).Target
	if err := errors.Join(os.Rename(file, disk), durable.SyncFolder(filepath.Dir(disk))); err != nil {
		return err
	}
	return w.store.SettleDisk(context.WithoutCancel(ctx), r.ID, size, message)
}
