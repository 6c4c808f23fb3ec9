package image

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// The disk has a boot record with one partition, which begins after a MiB. The boot loader is in the record and
// in the room between the two, as GRUB does it on such disks.
const (
	sectorSize     = 512
	partitionStart = 1 << 20
	bootCode       = 440 // bytes of the record that are code
	partitionTable = 446
	gib            = 1 << 30
	mib            = 1 << 20
)

// bootModules are what the boot loader can do. It needs no file of its own from the disk but its menu.
var bootModules = []string{
	"biosdisk", "part_msdos", "ext2", "search", "search_fs_uuid", "normal", "linux", "echo", "test", "regexp", "sleep",
	"serial", "terminal", "configfile", "gzio", "minicmd", "halt", "reboot",
}

// bootRecord is GRUB's first stage, of the Debian package grub-pc-bin.
const bootRecord = "/usr/lib/grub/i386-pc/boot.img"

const bootHint = usePackage + "grub-common grub-pc-bin"

// bootMenu has the boot loader read its menu from the file system with an id.
func bootMenu(uuid string) string {
	return "search.fs_uuid " + uuid + " root\nset prefix=($root)/boot/grub\n"
}

// writeBoot writes the boot record, the partition table and the boot loader to a disk of size bytes.
func writeBoot(disk *os.File, loader []byte, size int64) error {
	first, err := os.ReadFile(bootRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.Unavailable, err, "this host has no boot loader for images: %s", bootHint).
			WithCode("image_tool_missing")
	}
	if err != nil {
		return err
	}
	if len(first) < bootCode || len(loader) > partitionStart-sectorSize || len(loader) == 0 {
		return fault.New(fault.Internal, "the boot loader of this host does not fit on a disk")
	}
	record := make([]byte, sectorSize)
	copy(record, first[:bootCode])
	entry := record[partitionTable:]
	entry[0], entry[4] = 0x80, 0x83 // bootable, Linux
	copy(entry[1:], []byte{0xfe, 0xff, 0xff})
	copy(entry[5:], []byte{0xfe, 0xff, 0xff}) // the BIOS counts in sectors
	binary.LittleEndian.PutUint32(entry[8:], partitionStart/sectorSize)
	binary.LittleEndian.PutUint32(entry[12:], uint32((size-partitionStart)/sectorSize)) //nolint:gosec // at most 2 TiB
	record[510], record[511] = 0x55, 0xaa
	if _, err := disk.WriteAt(record, 0); err != nil {
		return err
	}
	_, err = disk.WriteAt(loader, sectorSize)
	return err
}

// usage returns the bytes of storage that the files of a folder take, as far as it can be read.
func usage(folder string) (bytes int64) {
	_ = filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is removed while it is looked at, or another account's
		}
		if info, err := e.Info(); err == nil {
			bytes += allocated(info)
		}
		return nil
	})
	return bytes
}

// diskSize returns the bytes of a disk for files that take so many: there is room to begin with, and the file
// system grows with the disks of VMs.
func diskSize(used int64) int64 {
	const spare = 512 * mib
	need := used + used/4 + spare
	return max(2*gib, (need+gib-1)/gib*gib)
}
