//go:build linux

package volumes

import (
	"bytes"
	"encoding/binary"
	"io"
)

// signature is how a kind of content begins.
type signature struct {
	kind   string
	offset int64
	magic  string
	label  int64 // where the file system keeps its label; 0: nowhere
	length int   // of the label, in bytes
}

// signatures are those of file systems, and of what holds none that can be mounted. The first that
// fits counts: a volume may keep the signature of what it held before.
var signatures = []signature{
	{kind: "luks", magic: "LUKS\xba\xbe"},
	{kind: "lvm", offset: 512, magic: "LABELONE"},
	{kind: "lvm", magic: "LABELONE"},
	{kind: "xfs", magic: "XFSB", label: 108, length: 12},
	{kind: "btrfs", offset: 0x10040, magic: "_BHRfS_M", label: 0x1012b, length: 256},
	{kind: "ext4", offset: 0x438, magic: "\x53\xef", label: 0x478, length: 16},
	{kind: "swap", offset: 4086, magic: "SWAPSPACE2"},
	{kind: "ntfs", offset: 3, magic: "NTFS    "},
	{kind: "exfat", offset: 3, magic: "EXFAT   "},
	{kind: "vfat", offset: 82, magic: "FAT32   ", label: 71, length: 11},
	{kind: "vfat", offset: 54, magic: "FAT1", label: 43, length: 11},
	{kind: "squashfs", magic: "hsqs"},
	{kind: "iso9660", offset: 0x8001, magic: "CD001", label: 0x8028, length: 32},
}

// identify returns what a volume holds and its label, or nothing if that is not known.
func identify(volume io.ReaderAt) (kind, label string) {
	for _, s := range signatures {
		found := make([]byte, len(s.magic))
		if _, err := volume.ReadAt(found, s.offset); err != nil || string(found) != s.magic {
			continue
		}
		raw := make([]byte, s.length)
		if _, err := volume.ReadAt(raw, s.label); err == nil {
			raw, _, _ = bytes.Cut(raw, []byte{0})
			label = string(bytes.ToValidUTF8(bytes.TrimRight(raw, " "), []byte("?")))
		}
		if label == "NO NAME" { // as FAT has it
			label = ""
		}
		return s.kind, label
	}
	return "", ""
}

// why says why a kind of content cannot be read; empty: it can, or may be.
var why = map[string]string{
	"luks": "it is encrypted", "lvm": "it is a part of an LVM volume group, which cannot be read yet",
	"swap": "it holds no files", "ntfs": "NTFS cannot be read yet", "": "it holds nothing that is known",
}

// isPartitioned reports whether a disk begins with a table of partitions. Boot sectors of FAT look
// like one, so this is only asked if nothing else was found.
func isPartitioned(disk io.ReaderAt) bool {
	raw := make([]byte, 2)
	_, err := disk.ReadAt(raw, 510)
	return err == nil && binary.LittleEndian.Uint16(raw) == 0xaa55
}
