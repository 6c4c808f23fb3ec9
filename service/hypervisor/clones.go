package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// copyArgs are those of the jobs that make a VM of another, or of a backup, or put a
// backup's disk back.
type copyArgs struct {
	VM     string // the one that is made, or gets the disk
	Source string // the VM that is cloned
	Backup string
	Linked bool
	Actor  Caller
}

// Clone begins to make a VM with a copy of another's disk.
func (s *Service) Clone(ctx context.Context, id, name string, linked bool) (Operation, error) {
	source, err := s.record(ctx, s.db, id)
	if err != nil {
		return Operation{}, err
	}
	switch {
	case linked:
		err = s.linkable(ctx, &source)
	case source.hasDisk():
		_, err = s.diskKeeper(&source)
	}
	if err != nil {
		return Operation{}, err
	}
	r, err := s.admitCopy(ctx, name, source.Tenant, source.Backend, &source.Spec.V, source.Base, "vm.clone")
	if err != nil {
		return Operation{}, err
	}
	args := copyArgs{VM: r.ID, Source: id, Linked: linked, Actor: callerFrom(ctx)}
	return s.enqueue(ctx, Operation{Kind: kindClone, Tenant: r.Tenant, VM: r.ID}, args, audit.Entry{Action: "vm.clone", Target: id, Tenant: r.Tenant, Message: source.Name + " to " + name})
}

// admitCopy makes the row of a VM that is a copy, which is held against the policy like
// any other.
func (s *Service) admitCopy(ctx context.Context, name, tenant, backendName string, of *Spec, content, action string) (Record, error) {
	req := Request{Name: name, Tenant: tenant, Backend: backendName, Spec: *of}
	req.Spec.Network.IP = "" // two VMs cannot have one address
	b := &base{sha256: content, boot: of.Boot}
	return s.admit(ctx, &req, b, action)
}

// linkable says whether a VM's disk can be shared.
func (s *Service) linkable(ctx context.Context, r *Record) error {
	switch {
	case !r.hasDisk() || r.Spec.V.Storage != storage.Dir:
		return fault.New(fault.Conflict, "linked clones take a VM with a disk on the storage dir").WithCode("disk_unsupported")
	case r.State != vm.Stopped && r.State != vm.Failed:
		return fault.New(fault.Conflict, "the VM is %s; linked clones take one that is stopped", r.State).WithCode("wrong_state")
	}
	var n int
	if err := s.db.Get(ctx, &n, "SELECT COUNT(*) FROM snapshots WHERE vm_id = ?", r.ID); err != nil {
		return err
	}
	if n > 0 {
		return fault.New(fault.Conflict, "the VM has %d snapshots, which its disk would lose by being shared: remove them, or make a full clone", n).WithCode("has_snapshots")
	}
	return nil
}

// runClone is the job behind a clone. If it is repeated, it begins anew.
func (s *Service) runClone(ctx context.Context, a copyArgs, progress func(float64)) error {
	return s.makeCopy(ctx, a, func(ctx context.Context, r *Record) error {
		source, err := s.record(ctx, s.db, a.Source)
		if err != nil {
			return err
		}
		if err := s.copyBoot(ctx, &source, r); err != nil {
			return err
		}
		switch {
		case !source.hasDisk():
			return nil
		case a.Linked:
			return s.link(ctx, source.ID, r)
		}
		return s.withDisk(ctx, a.Source, func(ctx context.Context, source Record, d backend.Disks) error {
			work := filepath.Join(s.folder(source.ID), "copy.qcow2")
			defer func() { _ = os.Remove(work) }() // it is in its place then, or of no use
			size, err := storage.VirtualSize(ctx, s.pool(&source).Disk(s.volume(&source)).Target)
			if err != nil {
				return err
			}
			if err := storage.CreateQcow2(ctx, work, size, s.volume(&source)); err != nil {
				return err
			}
			if _, err := s.copyQuietly(ctx, &source, d, backend.DiskCopy{Target: work}, progress); err != nil {
				return err
			}
			disk := s.pool(r).Disk(s.volume(r)).Target
			return errors.Join(os.Rename(work, disk), storage.Own(disk, s.volume(r)))
		})
	})
}

// makeCopy makes a VM whose row is there, with what fill puts into its folder, or undoes it.
func (s *Service) makeCopy(ctx context.Context, a copyArgs, fill func(ctx context.Context, r *Record) error) error {
	defer s.hold()()
	m := s.machines.get(a.VM)
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	r, err := s.record(ctx, s.db, a.VM)
	if err != nil {
		return err
	}
	if r.State != vm.Creating {
		return nil // it was made before the daemon ended
	}
	folder := s.folder(r.ID)
	err = errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o711)) //nolint:gosec // its process, under another uid, passes through
	if err == nil {
		err = fill(ctx, &r)
	}
	if err == nil {
		var secrets []string
		if r.Spec.V.Agent {
			secrets, err = s.secretsOf(ctx, r.ID)
		}
		if err == nil {
			err = s.writeSeed(&r, firstOf(secrets))
		}
	}
	if err != nil && brokenOff(ctx) {
		return err // the daemon ends: it goes on when it is there again
	}
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		return s.undo(ctx, r, err)
	}
	_, err = s.move(ctx, r.ID, vm.Made, "", "", func(row *Record) { row.DiskBase, row.Base = r.DiskBase, r.Base })
	return err
}

func firstOf(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// copyBoot copies the files to boot that a VM has in its own folder.
func (s *Service) copyBoot(ctx context.Context, from, to *Record) error {
	boot := &from.Spec.V.Boot
	for _, name := range []string{boot.Kernel, boot.Initrd, boot.Firmware} {
		if name == "" || filepath.IsAbs(name) {
			continue
		}
		names := []string{name}
		if name == boot.Firmware {
			names = append(names, "firmware_VARS.fd")
		}
		for _, name := range names {
			if err := s.copyFile(ctx, from, to, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) copyFile(ctx context.Context, from, to *Record, name string) error {
	f, err := os.Open(filepath.Join(s.folder(from.ID), name)) //nolint:gosec // our own folder
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	path := filepath.Join(s.folder(to.ID), name)
	if _, err := catalog.Keep(ctx, f, path, 2<<30); err != nil {
		return err
	}
	uid, gid := s.owner(to)
	return chown(path, uid, gid)
}

func (s *Service) basePath(id string) string {
	return filepath.Join(s.data, "bases", filepath.Base(id)+".qcow2")
}

// link makes a stopped VM's disk the base of both, the VM itself and its clone.
func (s *Service) link(ctx context.Context, source string, clone *Record) error {
	m := s.machines.get(source)
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	r, err := s.record(ctx, s.db, source)
	if err != nil {
		return err
	}
	if err := s.linkable(ctx, &r); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	v := s.volume(&r)
	disk := s.pool(&r).Disk(v).Target
	size, err := storage.VirtualSize(ctx, disk)
	if err != nil {
		return err
	}
	id := newID()
	// The base is known before it is there, and there before anything stands on it. Until
	// the VM's own disk is replaced, by one rename, both names are the same file, which does
	// no harm.
	if _, err := s.change(ctx, source, eventDisk, "", "the disk is shared with linked clones", func(tx *db.Tx, row *Record) error {
		if _, err := tx.Exec(ctx, "UPDATE backups SET bitmap = '' WHERE vm_id = ?", source); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO bases (id, parent, content) VALUES (?, ?, ?)", id, row.DiskBase, row.Base); err != nil {
			return err
		}
		row.DiskBase = id
		return nil
	}); err != nil {
		return err
	}
	if err := os.Link(disk, s.basePath(id)); err != nil {
		return err
	}
	over := v
	over.Folder = filepath.Join(v.Folder, "linked")
	if err := errors.Join(os.RemoveAll(over.Folder), os.Mkdir(over.Folder, 0o700)); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(over.Folder) }() // what is in it was moved
	stands := &storage.Base{Path: s.basePath(id), Format: "qcow2", Size: size}
	over.Size = size
	if err := (storage.DirPool{}).Create(ctx, over, stands); err != nil {
		return err
	}
	if err := os.Rename((storage.DirPool{}).Path(over), disk); err != nil {
		return err
	}
	if err := os.Chmod(s.basePath(id), 0o444); err != nil { //nolint:gosec // VMs under other uids read it
		return err
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(s.basePath(id), 0, 0); err != nil {
			return err
		}
	}
	clone.DiskBase = id
	cv := s.volume(clone)
	cv.Size = size
	return (storage.DirPool{}).Create(ctx, cv, stands)
}

// sweepBases removes disks that no VM stands on any more.
func (s *Service) sweepBases(ctx context.Context) error {
	for {
		var ids []string
		if err := s.db.Select(ctx, &ids, "SELECT id FROM bases b WHERE NOT EXISTS (SELECT 1 FROM vms WHERE disk_base = b.id) AND NOT EXISTS (SELECT 1 FROM bases c WHERE c.parent = b.id)"); err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := os.Remove(s.basePath(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			if err := s.db.Update(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, "DELETE FROM bases WHERE id = ?", id)
				return err
			}); err != nil {
				return err
			}
		}
	}
}

// RestoreBackup begins to make a VM of a backup or, with the id of one, to put its disk back.
func (s *Service) RestoreBackup(ctx context.Context, id, name, into string) (Operation, error) {
	b, err := s.backup(ctx, s.db, id)
	if err != nil {
		return Operation{}, err
	}
	if (name == "") == (into == "") {
		return Operation{}, fault.InvalidField("name", "give either name, for a new VM, or vm")
	}
	args := copyArgs{VM: into, Source: b.VM, Backup: id, Actor: callerFrom(ctx)}
	if into != "" {
		r, err := s.record(ctx, s.db, into)
		if err != nil {
			return Operation{}, err
		}
		if err := s.replaceableDisk(ctx, &r); err != nil {
			return Operation{}, err
		}
	} else {
		boot := &b.Spec.V.Boot
		if relative := boot.Kernel != "" && !filepath.IsAbs(boot.Kernel); relative {
			if _, err := s.record(ctx, s.db, b.VM); err != nil {
				return Operation{}, fault.New(fault.Conflict, "the VM of the backup, whose kernel a new one needs, is gone; restore into a VM that has one")
			}
		}
		r, err := s.admitCopy(ctx, name, b.Tenant, b.Backend, &b.Spec.V, b.Base, "backup.restore")
		if err != nil {
			return Operation{}, err
		}
		args.VM = r.ID
	}
	return s.enqueue(ctx, Operation{Kind: kindRestore, Tenant: b.Tenant, VM: args.VM, Backup: id}, args, audit.Entry{Action: "backup.restore", Target: id, Tenant: b.Tenant, Message: b.VMName})
}

// replaceableDisk says whether a VM's disk can be put in another's place.
func (s *Service) replaceableDisk(ctx context.Context, r *Record) error {
	if err := s.linkable(ctx, r); err != nil {
		if fault.From(err).PublicCode() == "has_snapshots" {
			return fault.New(fault.Conflict, "the VM has snapshots, which its disk would lose: remove them first").WithCode("has_snapshots")
		}
		return err
	}
	return nil
}

// runRestore is the job behind a restore. If it is repeated, it begins anew.
func (s *Service) runRestore(ctx context.Context, a copyArgs, progress func(float64)) error {
	b, err := s.backup(ctx, s.db, a.Backup)
	if err != nil {
		return err
	}
	target, err := s.record(ctx, s.db, a.VM)
	if err != nil {
		return err
	}
	if target.State == vm.Creating {
		return s.makeCopy(ctx, a, func(ctx context.Context, r *Record) error {
			if boot := &r.Spec.V.Boot; boot.Kernel != "" && !filepath.IsAbs(boot.Kernel) {
				source, err := s.record(ctx, s.db, b.VM)
				if err != nil {
					return err
				}
				if err := s.copyBoot(ctx, &source, r); err != nil {
					return err
				}
			}
			disk := s.pool(r).Disk(s.volume(r)).Target
			return errors.Join(image.Copy(ctx, s.backupPath(b.ID), disk, progress), os.Chmod(disk, 0o600), storage.Own(disk, s.volume(r)))
		})
	}
	return s.replaceDisk(ctx, a.VM, &b, progress)
}

// replaceDisk puts a backup's disk in the place of a stopped VM's.
func (s *Service) replaceDisk(ctx context.Context, id string, b *Backup, progress func(float64)) error {
	m := s.machines.get(id)
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	r, err := s.record(ctx, s.db, id)
	if err != nil {
		return err
	}
	if err := s.replaceableDisk(ctx, &r); err != nil {
		return err
	}
	v := s.volume(&r)
	work := filepath.Join(v.Folder, "copy.qcow2")
	defer func() { _ = os.Remove(work) }() // it is in its place then, or of no use
	if err := image.Copy(ctx, s.backupPath(b.ID), work, progress); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(work, 0o600), storage.Own(work, v)); err != nil {
		return err
	}
	// The notes of the disk that goes are of no use; and so that no backup builds on them
	// this is known before.
	_, err = s.change(ctx, id, eventDisk, "", fmt.Sprintf("the disk is as in backup %s", b.ID), func(tx *db.Tx, r *Record) error {
		if _, err := tx.Exec(ctx, "UPDATE backups SET bitmap = '' WHERE vm_id = ?", id); err != nil {
			return err
		}
		r.Spec.V.DiskGiB = int((b.VirtualSize + gib - 1) / gib)
		return os.Rename(work, s.pool(r).Disk(v).Target)
	})
	return err
}
