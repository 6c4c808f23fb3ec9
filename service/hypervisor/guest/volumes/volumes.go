//go:build linux

package volumes

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Volume is a disk or a partition of one.
type Volume struct {
	Name  string `json:"name"`  // of its device, such as vdb1
	Size  int64  `json:"size"`  // in bytes
	Kind  string `json:"kind"`  // such as ext4, swap or luks; empty: not known
	Label string `json:"label"` // of the file system; empty: none
	Error string `json:"error"` // why its files cannot be read; empty: they can
}

// Paths of a guest, which tests replace.
type Paths struct {
	Devices string // /dev
	Blocks  string // /sys/class/block
	Modules string // the folder with lists of modules that file systems need
	Mounts  string // where file systems are mounted
	Mounted string // /proc/mounts
}

// Guest are the paths of a guest.
var Guest = Paths{
	Devices: "/dev", Blocks: "/sys/class/block", Modules: "/lib/modules", Mounts: "/run/volumes", Mounted: "/proc/mounts",
}

// Open finds the volumes of all disks that the guest does not use itself, and mounts those that have
// a file system.
func (p Paths) Open() ([]Volume, error) {
	names, err := p.volumes()
	if err != nil {
		return nil, err
	}
	all := make([]Volume, 0, len(names))
	for _, name := range names {
		v, err := p.look(name)
		if err != nil {
			return nil, err
		}
		if v.Kind == "iso9660" && v.Label == seedLabel {
			continue // the guest's own
		}
		if v.Error == "" {
			if err := p.mount(&v); err != nil {
				v.Error = err.Error()
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// seedLabel is the label of the disk with which a guest learns who it is, as cloud-init has it.
const seedLabel = "cidata"

// volumes returns the names of devices: partitions, and disks without any.
func (p Paths) volumes() (names []string, err error) {
	entries, err := os.ReadDir(p.Blocks)
	if err != nil {
		return nil, err
	}
	used, err := p.used()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, "vd") || used[name] {
			continue
		}
		parts, err := filepath.Glob(filepath.Join(p.Blocks, name, name+"*"))
		if err != nil {
			return nil, err
		}
		if len(parts) == 0 {
			names = append(names, name)
		}
	}
	// vdb10 comes after vdb9.
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return names, nil
}

// used returns the devices that are mounted elsewhere, such as the guest's seed.
func (p Paths) used() (map[string]bool, error) {
	f, err := os.Open(p.Mounted)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	out := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && strings.HasPrefix(fields[0], p.Devices+"/") && !strings.HasPrefix(fields[1], p.Mounts+"/") {
			out[filepath.Base(fields[0])] = true
		}
	}
	return out, lines.Err()
}

func (p Paths) look(name string) (Volume, error) {
	v := Volume{Name: name}
	raw, err := os.ReadFile(filepath.Join(p.Blocks, name, "size"))
	if err != nil {
		return v, err
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil {
		return v, err
	}
	v.Size = sectors * 512
	device, err := os.Open(filepath.Join(p.Devices, name))
	if err != nil {
		return v, err
	}
	defer func() { _ = device.Close() }() // it was only read
	v.Kind, v.Label = identify(device)
	if v.Error = why[v.Kind]; v.Kind == "" && isPartitioned(device) {
		v.Error = "its partitions cannot be read"
	}
	return v, nil
}

// where returns the folder at which a volume is mounted.
func (p Paths) where(volume string) string { return filepath.Join(p.Mounts, volume) }

// options are those with which file systems are mounted if the disk was not at rest. Journals are
// replayed: the disk is a copy that takes what is written. A damaged file system may ask the kernel to
// panic at the first error; the rest of it is read all the same.
var options = map[string]string{"xfs": "nouuid", "ext4": "errors=continue"}

func (p Paths) mount(v *Volume) error {
	at := p.where(v.Name)
	if mounted, err := isMountPoint(at); err != nil || mounted {
		return err
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	if err := p.load(v.Kind); err != nil {
		return err
	}
	const flags = unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC
	err := unix.Mount(filepath.Join(p.Devices, v.Name), at, v.Kind, flags, options[v.Kind])
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("this guest cannot read %s; build its image anew", v.Kind)
	case err != nil:
		return fmt.Errorf("the file system %s cannot be mounted: %w", v.Kind, err)
	}
	return nil
}

func isMountPoint(path string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Stat(path, &here); errors.Is(err, unix.ENOENT) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	err := unix.Stat(filepath.Dir(path), &above)
	return here.Dev != above.Dev, err
}

// load loads the modules that a file system needs. Their list is missing if the kernel has it built
// in, or the guest was made without them.
func (p Paths) load(kind string) error {
	raw, err := os.ReadFile(filepath.Join(p.Modules, kind+".order"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(raw)) {
		if err := loadModule(filepath.Join(p.Modules, name+".ko")); err != nil {
			return fmt.Errorf("the kernel module %s: %w", name, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	err = unix.FinitModule(int(f.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}
