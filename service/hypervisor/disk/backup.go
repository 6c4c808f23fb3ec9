package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// dropBackup removes a backup's files.
func (w *Manager) dropBackup(id string) error {
	return errors.Join(os.RemoveAll(w.host.BackupBoot(id)), os.RemoveAll(w.host.BackupFile(id)))
}

// backupBitmap begins the names of the bitmaps of the daemon's own backups.
const backupBitmap = "backup-"

// backupArgs are the arguments of a backup job.
type backupArgs struct {
	Backup, VM, Kind, Description string
	Actor                         caller.Caller
}

// CreateBackup starts an operation that copies a VM's disk.
func (w *Manager) CreateBackup(ctx context.Context, id, kind, description string) (record.Operation, error) {
	r, err := w.store.VM(ctx, id)
	if err != nil {
		return record.Operation{}, err
	}
	if _, err := w.diskKeeper(&r); err != nil {
		return record.Operation{}, err
	}
	args := backupArgs{Backup: record.NewID(), VM: id, Kind: kind, Description: description, Actor: caller.From(ctx)}
	op := record.NewOperation(record.OperationBackup, r.Tenant)
	op.VM, op.Backup = id, args.Backup
	return w.operate.Begin(
		ctx, op, args, audit.Entry{Action: "vm.backup", Target: id, Tenant: r.Tenant, Message: r.Name},
	)
}

// runBackup is the job of a backup. If it is repeated, it starts over.
func (w *Manager) runBackup(ctx context.Context, a backupArgs, progress func(float64)) error {
	if _, err := w.store.Backup(caller.ByItself(ctx), a.Backup); err == nil {
		return nil // it was stored before the daemon ended
	}
	return w.withDisk(ctx, a.VM, func(ctx context.Context, r record.VM, d backend.Disks) error {
		b := record.Backup{
			ID:          a.Backup,
			VM:          r.ID,
			VMName:      r.Name,
			Tenant:      r.Tenant,
			Kind:        record.BackupFull,
			Bitmap:      backupBitmap + a.Backup,
			Description: a.Description,
			Spec:        r.Spec,
			Backend:     r.Backend,
			Base:        r.Base,
			CreatedAt:   db.At(w.now()),
		}
		b.LeftOut.V = []string{}
		for _, one := range r.Disks.V {
			b.LeftOut.V = append(b.LeftOut.V, one.Name)
		}
		parent, err := w.parentOf(ctx, &r, d, a.Kind)
		if err != nil {
			return err
		}
		work := w.host.WorkCopy(r.ID)
		defer func() { _ = os.Remove(work) }() // moved to its place by then, or useless
		if b.VirtualSize, err = image.VirtualSize(w.host.Disk(&r).Target); err != nil {
			return err
		}
		if err := storage.CreateQcow2(ctx, work, b.VirtualSize, w.host.Volume(&r)); err != nil {
			return err
		}
		// Bitmaps of backups that were never stored are useless.
		keep := []string{}
		copying := backend.DiskCopy{Target: work, Note: b.Bitmap}
		if parent != nil {
			b.Kind, b.Parent, copying.Since, keep = record.BackupIncremental, parent.ID, parent.Bitmap, []string{
				parent.Bitmap,
			}
		}
		if err := d.DropBitmaps(ctx, backupBitmap, keep...); err != nil {
			return err
		}
		how, err := w.copyQuietly(ctx, &r, d, copying, progress)
		if err != nil {
			return err
		}
		if err := w.keepBackup(ctx, &b, work, parent); err != nil {
			return errors.Join(err, w.dropBackup(b.ID))
		}
		if err := w.store.AddBackup(context.WithoutCancel(ctx), &b, how); err != nil {
			return errors.Join(err, w.dropBackup(b.ID))
		}
		// Only now may the bitmaps that this backup was made from be dropped. If that fails, the
		// next backup drops them.
		if err := d.DropBitmaps(context.WithoutCancel(ctx), backupBitmap, b.Bitmap); err != nil {
			w.log.Warn("a disk keeps notes that are of no use any more", "vm", r.ID, "error", err)
		}
		return nil
	})
}

// parentOf returns the backup that an incremental one can build on, or nil if there is none or a
// full backup was requested. A VM whose process was killed from outside has lost its bitmaps.
func (w *Manager) parentOf(ctx context.Context, r *record.VM, d backend.Disks, kind string) (*record.Backup, error) {
	if kind != record.BackupIncremental {
		return nil, nil
	}
	b, err := w.store.LastNoted(ctx, r.ID)
	if b == nil || err != nil {
		return nil, err
	}
	usable, err := d.HasBitmap(ctx, b.Bitmap)
	if err != nil || !usable {
		return nil, err
	}
	return b, nil
}

// keepBackup moves a copy to its final place, durably. The VM's process could write to the copy and
// may still be able to. The backup is therefore an inspected file of the daemon's own.
func (w *Manager) keepBackup(ctx context.Context, b *record.Backup, work string, parent *record.Backup) error {
	path := w.host.BackupFile(b.ID)
	if err := w.dropBackup(b.ID); err != nil {
		return err // it starts over
	}
	if boot := &b.Spec.V.Boot; len(host.BootFiles(boot)) > 0 {
		if err := os.Mkdir(w.host.BackupBoot(b.ID), 0o700); err != nil {
			return err
		}
		if err := host.CopyBoot(ctx, boot, w.host.Folder(b.VM), w.host.BackupBoot(b.ID), 0, 0); err != nil {
			return err
		}
	}
	if err := image.Adopt(ctx, work, path, image.LimitsOf(b.VirtualSize)); err != nil {
		return err
	}
	if parent != nil {
		// The path is relative to the file's folder, so that backups can be moved together.
		if err := storage.SetBacking(ctx, path, filepath.Base(w.host.BackupFile(parent.ID))); err != nil {
			return err
		}
	}
	f, err := os.Open(path) //nolint:gosec // our own folder
	if err != nil {
		return err
	}
	b.Size, b.SHA256, err = sumOf(ctx, f)
	return errors.Join(err, f.Sync(), f.Close())
}

// sumOf returns the size and SHA-256 of a file's content.
func sumOf(ctx context.Context, f *os.File) (size int64, sum string, err error) {
	hash := sha256.New()
	buffer := make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return 0, "", err
		}
		n, err := f.Read(buffer)
		size += int64(n)
		hash.Write(buffer[:n])
		if errors.Is(err, io.EOF) {
			return size, hex.EncodeToString(hash.Sum(nil)), nil
		}
		if err != nil {
			return 0, "", err
		}
	}
}

// readBackup writes the disk of a backup to a new file, after verifying the checksums of the backup
// and of all backups that it builds on.
func (w *Manager) readBackup(ctx context.Context, b *record.Backup, result string, progress func(float64)) error {
	chain, err := w.chainOf(ctx, b)
	if err != nil {
		return err
	}
	return image.Flatten(ctx, chain, result, image.LimitsOf(b.VirtualSize), progress)
}

// chainOf returns the files of a backup and of those that it builds on, the backup's own first.
func (w *Manager) chainOf(ctx context.Context, b *record.Backup) (chain []string, err error) {
	for one := *b; ; {
		if err := w.checkBackup(ctx, &one); err != nil {
			return nil, err
		}
		if chain = append(chain, w.host.BackupFile(one.ID)); one.Parent == "" {
			return chain, nil
		}
		// A caller who sees a backup may read its parents.
		if one, err = w.store.Backup(caller.ByItself(ctx), one.Parent); err != nil {
			return nil, err
		}
	}
}

// checkBackup fails with backup_damaged if a backup's file is not the one that was stored, or
// refers to a file that it must not refer to.
func (w *Manager) checkBackup(ctx context.Context, b *record.Backup) error {
	damaged := func(cause error) error {
		return fault.Wrap(fault.Conflict, cause,
			"the backup %s is damaged: its file is not the one that was stored", b.ID).WithCode("backup_damaged")
	}
	f, err := os.Open(w.host.BackupFile(b.ID))
	if errors.Is(err, os.ErrNotExist) {
		return damaged(err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	backing := ""
	if b.Parent != "" {
		backing = filepath.Base(w.host.BackupFile(b.Parent))
	}
	size, sum, err := sumOf(ctx, f)
	if err != nil {
		return err
	}
	if size != b.Size || sum != b.SHA256 {
		return damaged(fmt.Errorf("it has %d bytes and the SHA-256 %s", size, sum))
	}
	if _, err := image.InspectLayer(f, size, backing); err != nil {
		return damaged(err)
	}
	return nil
}

// DeleteBackup removes a backup. It fails if another backup builds on it, or if a running operation
// may create one that does.
func (w *Manager) DeleteBackup(ctx context.Context, id string) error {
	if err := w.store.RemoveBackup(ctx, id); err != nil {
		return err
	}
	return w.dropBackup(id)
}

// SweepBackups removes the files of backups that were never stored.
func (w *Manager) SweepBackups(ctx context.Context) error {
	ids, err := w.store.BackupIDs(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[filepath.Base(w.host.BackupFile(id))], known[filepath.Base(w.host.BackupBoot(id))] = true, true
	}
	entries, err := os.ReadDir(w.host.BackupFolder())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !known[e.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(w.host.BackupFolder(), e.Name())))
		}
	}
	return err
}

// ExportBackup returns a backup's disk as one file, which is removed when the reader is closed.
func (w *Manager) ExportBackup(ctx context.Context, id string) (io.ReadCloser, error) {
	b, err := w.store.Backup(ctx, id)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(w.host.BackupFolder(), ".export-")
	if err != nil {
		return nil, err
	}
	// An unlinked file goes with its last reader, whatever happens to the daemon.
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "disk.qcow2")
	if err := w.readBackup(ctx, &b, path, nil); err != nil {
		return nil, err
	}
	return os.Open(path) //nolint:gosec // made above
}
