package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// The files of a template, in its folder. Its disk is a base, as linked clones share them.
const (
	templateMemory = "memory"
	templateState  = "state" // of the devices
)

// TemplateFolder returns the folder of a template.
func (h *Host) TemplateFolder(id string) string {
	return filepath.Join(h.data, "templates", filepath.Base(id))
}

// MakeTemplateFolder creates the folder of a template, and removes what an earlier attempt left there.
func (h *Host) MakeTemplateFolder(id string) error {
	if err := h.RemoveTemplate(id); err != nil {
		return err
	}
	return os.Mkdir(h.TemplateFolder(id), 0o700)
}

// CreateTemplateState creates the file for the state of a template's devices.
func (h *Host) CreateTemplateState(id string) (*os.File, error) {
	path := filepath.Join(h.TemplateFolder(id), templateState)
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// MakeMemoryFile creates the file from which the memory of a VM that becomes a template is mapped, and
// returns its path.
func (h *Host) MakeMemoryFile(r *record.VM) (string, error) {
	path := filepath.Join(h.Folder(r.ID), templateMemory)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // our own folder
	if err != nil {
		return "", err
	}
	uid, gid := h.Owner(r)
	return path, errors.Join(f.Truncate(int64(r.MemoryMiB)<<20), f.Close(), chown(path, uid, gid))
}

// TakeTemplate moves the memory and the disk of a VM whose process has ended to a template, durably.
// backing is the file that the disk must stand on. It returns what the template's row tells of them.
func (h *Host) TakeTemplate(ctx context.Context, r *record.VM, id, backing string) (t record.Template, err error) {
	folder := h.TemplateFolder(id)
	memory := filepath.Join(folder, templateMemory)
	if err := os.Rename(filepath.Join(h.Folder(r.ID), templateMemory), memory); err != nil {
		return t, err
	}
	if r.HasDisk() {
		if t.DiskBytes, err = h.takeDisk(r, id, backing); err != nil {
			return t, err
		}
	}
	for _, file := range []struct {
		name string
		sum  *string
	}{{templateMemory, &t.MemorySHA256}, {templateState, &t.StateSHA256}} {
		path := filepath.Join(folder, file.name)
		if *file.sum, err = settle(ctx, path); err != nil {
			return t, err
		}
	}
	if t.Size, err = h.templateSize(id); err != nil {
		return t, err
	}
	return t, durable.SyncFolder(folder)
}

// takeDisk makes the disk of a VM the base of a template, and returns its size.
func (h *Host) takeDisk(r *record.VM, id, backing string) (int64, error) {
	disk, base := h.Disk(r).Target, h.BasePath(id)
	f, err := os.Open(disk) //nolint:gosec // our own folder
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	stat, err := f.Stat()
	if err != nil {
		return 0, err
	}
	info, err := image.InspectLayer(f, stat.Size(), backing)
	if err != nil {
		return 0, err
	}
	if err := os.Rename(disk, base); err != nil {
		return 0, err
	}
	if err := os.Chmod(base, 0o444); err != nil { //nolint:gosec // VMs under other uids read it
		return 0, err
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(base, 0, 0); err != nil {
			return 0, err
		}
	}
	return info.VirtualSize, errors.Join(f.Sync(), durable.SyncFolder(filepath.Dir(base)))
}

// templateSize returns what the files of a template take on disk.
func (h *Host) templateSize(id string) (size int64, err error) {
	for _, path := range []string{
		filepath.Join(h.TemplateFolder(id), templateMemory), filepath.Join(h.TemplateFolder(id), templateState),
		h.BasePath(id),
	} {
		n, statErr := allocated(path)
		if errors.Is(statErr, fs.ErrNotExist) && path == h.BasePath(id) {
			continue // it has no disk
		}
		size, err = size+n, errors.Join(err, statErr)
	}
	return size, err
}

// RemoveTemplate removes the files of a template. Its disk stays while VMs stand on it. It is
// idempotent.
func (h *Host) RemoveTemplate(id string) error {
	h.images.forget(id)
	return os.RemoveAll(h.TemplateFolder(id))
}

// SweepTemplates removes the files of templates that have no row, which a killed daemon left.
func (h *Host) SweepTemplates(ctx context.Context, known func(id string) bool) error {
	entries, err := os.ReadDir(filepath.Join(h.data, "templates"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if known(e.Name()) {
			continue
		}
		err = errors.Join(err, h.DropTemplate(ctx, e.Name()))
	}
	return err
}

// DropTemplate removes the files of a template that has no row, its disk too if that was never stored.
func (h *Host) DropTemplate(ctx context.Context, id string) error {
	// Nothing stands on the disk of a template that never had a row. On that of one that was deleted,
	// VMs may: then it has a row of its own.
	used, err := h.store.HasBase(ctx, id)
	if err != nil {
		return err
	}
	if !used {
		if err := os.Remove(h.BasePath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return h.RemoveTemplate(id)
}

// ErrTouched is the reason for which a disk cannot be replaced by one that stands on a template.
var ErrTouched = fault.New(fault.Conflict, "something was written to its disk")

// StandOn replaces the disk of a VM that has never run by one that stands on a template's. It fails with
// ErrTouched if something was written to it.
func (h *Host) StandOn(ctx context.Context, r *record.VM, t *record.Template) error {
	v := h.Volume(r)
	old, err := os.Stat((storage.DirPool{}).Path(v))
	if err != nil {
		return err
	}
	over := v
	over.Folder, over.Size = filepath.Join(v.Folder, "instant"), t.DiskBytes
	if err := errors.Join(os.RemoveAll(over.Folder), os.Mkdir(over.Folder, 0o700)); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(over.Folder) }() // its content was moved
	stands := &storage.Base{Path: h.BasePath(t.ID), Format: "qcow2", Size: t.DiskBytes}
	if err := (storage.DirPool{}).Create(ctx, over, stands); err != nil {
		return err
	}
	fresh, err := os.Stat((storage.DirPool{}).Path(over))
	if err != nil {
		return err
	}
	// A disk grows with the first write.
	if r.DiskBase == "" && old.Size() != fresh.Size() {
		return ErrTouched
	}
	if err := h.store.StandOnTemplate(ctx, r.ID, t.ID); err != nil {
		return err
	}
	r.DiskBase = t.ID
	return os.Rename((storage.DirPool{}).Path(over), (storage.DirPool{}).Path(v))
}

// StandOnImage undoes StandOn.
func (h *Host) StandOnImage(ctx context.Context, r *record.VM, base *storage.Base) error {
	if err := h.pool(r).Create(ctx, h.Volume(r), base); err != nil {
		return err
	}
	if err := h.store.StandOnImage(ctx, r.ID); err != nil {
		return err
	}
	r.DiskBase = ""
	return nil
}
