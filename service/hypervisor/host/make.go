package host

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/seed"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// Parts is what a new VM is made from.
type Parts struct {
	Copies []Copy        // files that are copied to the VM's folder
	Disk   *storage.Base // initial content of its disk; nil: an empty disk, or none
	Secret string        // of its agent; empty: no agent
}

// Copy is an open file that was checked, and its name in the VM's folder.
type Copy struct {
	File *os.File
	Name string
}

// Make creates a VM's folder, disk and seed.
func (h *Host) Make(ctx context.Context, r *record.VM, p Parts) error {
	folder := h.Folder(r.ID)
	if err := os.Mkdir(folder, 0o711); err != nil { //nolint:gosec // its process, under another uid, passes through
		return err
	}
	if err := h.copyIn(ctx, r, p.Copies); err != nil {
		return err
	}
	if r.HasDisk() {
		if err := h.pool(r).Create(ctx, h.Volume(r), p.Disk); err != nil {
			return err
		}
	}
	return h.WriteSeed(r, p.Secret)
}

// MakeFolderAnew creates an empty folder for a VM and removes what an earlier attempt left there.
func (h *Host) MakeFolderAnew(id string) error {
	folder := h.Folder(id)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Mkdir(folder, 0o711) //nolint:gosec // its process, under another uid, passes through
}

func chown(path string, uid, gid int) error {
	if uid == 0 {
		return nil
	}
	return os.Lchown(path, uid, gid)
}

// File names in a VM's folder.
const (
	seedFile   = "seed.iso"
	secretFile = "secret"
)

// WriteSeed creates the disk from which the guest learns its identity. A sandbox gets its secret as
// a file instead.
func (h *Host) WriteSeed(r *record.VM, secret string) error {
	uid, gid := h.Owner(r)
	if r.Backend == backend.Sandbox {
		if secret == "" {
			return nil
		}
		path := filepath.Join(h.Folder(r.ID), secretFile)
		return errors.Join(os.WriteFile(path, []byte(secret+"\n"), 0o600), chown(path, uid, gid))
	}
	ci := &r.Spec.V.CloudInit
	content := seed.Content{
		InstanceID: r.ID, Hostname: Hostname(r), UserData: ci.UserData, SSHAuthorizedKeys: ci.SSHAuthorizedKeys,
		Secret: secret,
	}
	if secret != "" && r.Spec.V.Boot.Kernel == "" {
		content.Agent = h.agent() // a guest with a disk may not have an agent of its own
	}
	path := filepath.Join(h.Folder(r.ID), seedFile)
	if err := seed.Write(path, content); err != nil {
		return err
	}
	return chown(path, uid, gid)
}

// Hostname returns the host name that a VM's guest gets.
func Hostname(r *record.VM) string {
	return cmp.Or(r.Spec.V.CloudInit.Hostname, strings.ReplaceAll(r.Name, "_", "-"))
}

// The firmware files of a VM whose request gave a path to its firmware.
const (
	FirmwareCode = "firmware_CODE.fd"
	FirmwareVars = "firmware_VARS.fd"
)

// The files of a VM that was started with a kernel or firmware for this start only, in its folder.
const (
	StartKernel       = "start-kernel"
	StartInitrd       = "start-initrd"
	StartFirmwareCode = "start_CODE.fd"
	StartFirmwareVars = "start_VARS.fd"
	startVars         = "start-vars.fd" // its own copy of the variables
)

// MakeStart copies the files that a VM boots from for one start only, in place of those of an earlier one.
func (h *Host) MakeStart(ctx context.Context, r *record.VM, copies []Copy) error {
	for _, name := range []string{StartKernel, StartInitrd, StartFirmwareCode, StartFirmwareVars, startVars} {
		if err := os.RemoveAll(filepath.Join(h.Folder(r.ID), name)); err != nil {
			return err
		}
	}
	return h.copyIn(ctx, r, copies)
}

// copyIn copies files to a VM's folder.
func (h *Host) copyIn(ctx context.Context, r *record.VM, copies []Copy) error {
	uid, gid := h.Owner(r)
	for _, c := range copies {
		path := filepath.Join(h.Folder(r.ID), c.Name)
		if _, err := catalog.Keep(ctx, c.File, path, 2<<30); err != nil {
			return err
		}
		if err := chown(path, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// BootFiles returns the names of the files in a VM's folder that it boots from, including the
// variables of its firmware.
func BootFiles(boot *record.Boot) (names []string) {
	for _, name := range []string{boot.Kernel, boot.Initrd, boot.Firmware} {
		if name != "" && !filepath.IsAbs(name) {
			names = append(names, name)
		}
	}
	if boot.Firmware != "" && !filepath.IsAbs(boot.Firmware) {
		names = append(names, FirmwareVars)
	}
	if boot.Firmware != "" {
		names = append(names, backend.VarsFile)
	}
	return names
}

// CopyBoot copies the boot files from one folder to another and gives them to uid and gid. If uid
// is 0, the daemon owns them.
func CopyBoot(ctx context.Context, boot *record.Boot, from, to string, uid, gid int) error {
	for _, name := range BootFiles(boot) {
		limit := int64(2 << 30)
		if name == backend.VarsFile || name == FirmwareVars {
			limit = 64 << 20 // OVMF's take half a MiB
		}
		err := copyFile(ctx, filepath.Join(from, name), filepath.Join(to, name), limit)
		if errors.Is(err, os.ErrNotExist) && name == backend.VarsFile {
			continue // the VM has never run
		}
		if err != nil {
			return err
		}
		if err := chown(filepath.Join(to, name), uid, gid); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, from, to string, limit int64) error {
	f, err := os.Open(from) //nolint:gosec // our own folder
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	_, err = catalog.Keep(ctx, f, to, limit)
	return err
}

// sweepFolders removes the folders of unknown VMs, and working copies of disks that a killed daemon
// left. Their operation may not be repeated, for example if the new VM is gone.
func (h *Host) sweepFolders(known func(id string) bool) error {
	entries, err := os.ReadDir(filepath.Join(h.data, "vms"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !known(e.Name()) {
			err = errors.Join(err, os.RemoveAll(h.Folder(e.Name())))
			continue
		}
		if left := os.Remove(filepath.Join(h.Folder(e.Name()), workCopy)); !errors.Is(left, os.ErrNotExist) {
			err = errors.Join(err, left)
		}
	}
	return err
}
