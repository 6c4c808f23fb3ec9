package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Format is an image's storage format.
type Format string

// Supported formats.
const (
	Qcow2 Format = "qcow2"
	Raw   Format = "raw"
)

// Info is the information in an image's header.
type Info struct {
	Format Format
	// VirtualSize is the size of the disk that a guest sees, in bytes.
	VirtualSize int64
}

// strangers are known but unsupported formats, identified by their first bytes.
var strangers = []struct{ name, magic string }{
	{
		"VMDK",
		"KDMV",
	},
	{"VMDK", "COWD"},
	{"VMDK", "# Disk DescriptorFile"},
	{"VHDX", "vhdxfile"},
	{"VHD", "conectix"},
	{"VDI", "<<< Oracle VM VirtualBox Disk Image >>>"},
	{
		"VDI",
		"<<< Sun VirtualBox Disk Image >>>",
	},
	{"QED", "QED\x00"},
	{"LUKS", "LUKS\xba\xbe"},
	{"Parallels", "WithoutFreeSpace"},
	{"Parallels", "WithouFreSpacExt"},
	{"gzip", "\x1f\x8b"},
	{"xz", "\xfd7zXZ\x00"},
	{"zstd", "\x28\xb5\x2f\xfd"},
	{"zip", "PK\x03\x04"},
}

const (
	qcow2Magic = "QFI\xfb"
	sector     = 512
	// maxL1 is QEMU's own limit for a table that it reads completely, in bytes.
	maxL1 = 32 << 20
)

// Inspect detects the format of an image of size bytes. It rejects images that refer to other
// files, are encrypted, or are not understood, with a fault of kind Invalid.
func Inspect(r io.ReaderAt, size int64) (Info, error) {
	head, err := headOf(r, size)
	if err != nil {
		return Info{}, err
	}
	if bytes.HasPrefix(head, []byte(qcow2Magic)) {
		return qcow2Info(r, head, size, "")
	}
	for _, s := range strangers {
		if bytes.HasPrefix(head, []byte(s.magic)) {
			return Info{}, refused(
				"is in the format %s; qcow2 and raw are taken: convert it first, for example with qemu-img convert -O qcow2",
				s.name,
			)
		}
	}
	if size == 0 || size%sector != 0 {
		return Info{}, refused(
			"is neither qcow2 nor raw: a raw disk has a multiple of %d bytes, and this has %d", sector, size,
		)
	}
	return Info{Format: Raw, VirtualSize: size}, nil
}

// InspectLayer is like Inspect for a qcow2 image that may have a backing file, but only with
// exactly the given name. Any other name in a file that a VM's process could write to is tampering.
func InspectLayer(r io.ReaderAt, size int64, backing string) (Info, error) {
	head, err := headOf(r, size)
	if err != nil {
		return Info{}, err
	}
	if !bytes.HasPrefix(head, []byte(qcow2Magic)) {
		return Info{}, refused("is not qcow2")
	}
	return qcow2Info(r, head, size, backing)
}

func headOf(r io.ReaderAt, size int64) ([]byte, error) {
	head := make([]byte, min(size, 128))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	return head, nil
}

// VirtualSize returns the size of the disk in a qcow2 file, as the guest sees it, from its header
// alone. Files that it refers to are not opened.
func VirtualSize(path string) (int64, error) {
	f, err := os.Open(path) //nolint:gosec // a file of ours
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	head, err := headOf(f, 128)
	if err != nil {
		return 0, err
	}
	h, err := parsed(head)
	if err != nil {
		return 0, err
	}
	if h.Magic != binary.BigEndian.Uint32([]byte(qcow2Magic)) || h.Size == 0 || h.Size%sector != 0 || h.Size > 1<<62 {
		return 0, refused("claims a size of %d bytes", h.Size)
	}
	return int64(h.Size), nil //nolint:gosec // it was checked to have 62 bits
}

// standsOn returns the name of an image's backing file.
func standsOn(r io.ReaderAt, h *qcow2Header) (string, error) {
	const longest = 1023 // QEMU's own bound
	if h.BackingSize > longest || h.BackingOffset > math.MaxInt64 {
		return "", refused("refers to a backing file by a name of %d bytes", h.BackingSize)
	}
	name := make([]byte, h.BackingSize)
	if _, err := r.ReadAt(name, int64(h.BackingOffset)); err != nil { //nolint:gosec // it was checked above
		return "", refused("refers to a backing file beyond its end")
	}
	return string(name), nil
}

func refused(format string, args ...any) error {
	return fault.New(fault.Invalid, "the image "+format, args...).WithCode("image_refused")
}

// qcow2Header is the beginning of the file (docs/interop/qcow2.txt of QEMU), in network
// byte order.
type qcow2Header struct {
	Magic            uint32
	Version          uint32
	BackingOffset    uint64
	BackingSize      uint32
	ClusterBits      uint32
	Size             uint64
	CryptMethod      uint32
	L1Size           uint32
	L1Offset         uint64
	RefcountOffset   uint64
	RefcountClusters uint32
	Snapshots        uint32
	SnapshotsOffset  uint64
	Incompatible     uint64 // version 3 from here on
	Compatible       uint64
	Autoclear        uint64
	RefcountOrder    uint32
	HeaderLength     uint32
	_                [8]byte
	_                [16]byte
}

// Incompatible features that are harmless: dirty, corrupt (qemu-img refuses what it
// cannot read), compression type, extended L2 entries.
const (
	externalData = 1 << 2
	known        = 1<<0 | 1<<1 | 1<<3 | 1<<4
)

func parsed(head []byte) (h qcow2Header, err error) {
	padded := make([]byte, binary.Size(qcow2Header{}))
	copy(padded, head)
	err = binary.Read(bytes.NewReader(padded), binary.BigEndian, &h)
	return h, err
}

// qcow2Info checks a header. The image may only have the backing file named in backing, or none.
func qcow2Info(r io.ReaderAt, head []byte, size int64, backing string) (Info, error) {
	h, err := parsed(head)
	if err != nil {
		return Info{}, err
	}
	if len(head) < 72 || h.Version == 3 && len(head) < 104 {
		return Info{}, refused("has an incomplete qcow2 header")
	}
	if backing != "" && h.BackingOffset != 0 {
		name, err := standsOn(r, &h)
		if err != nil {
			return Info{}, err
		}
		if name != backing {
			return Info{}, refused("refers to a backing file that is not the one it was made on")
		}
		h.BackingOffset, h.BackingSize = 0, 0 // it is known
	}
	if h.Version < 3 {
		h.Incompatible = 0 // what follows the header of version 2 is something else
	}
	switch {
	case h.Version != 2 && h.Version != 3:
		return Info{}, refused("has the qcow2 version %d; 2 and 3 are known", h.Version)
	case h.BackingOffset != 0 || h.BackingSize != 0:
		return Info{}, refused("refers to a backing file; flatten it first, for example with qemu-img convert -O qcow2")
	case h.Incompatible&externalData != 0:
		return Info{}, refused(
			"keeps its data in another file; convert it first, for example with qemu-img convert -O qcow2",
		)
	case h.Incompatible&^known != 0:
		return Info{}, refused("uses qcow2 features that are not known (%#x)", h.Incompatible&^known)
	case h.CryptMethod != 0:
		return Info{}, refused("is encrypted")
	case h.ClusterBits < 9 || h.ClusterBits > 21:
		return Info{}, refused("has clusters of 2^%d bytes; 2^9 to 2^21 are possible", h.ClusterBits)
	case h.Size == 0 || h.Size%sector != 0 || h.Size > 1<<62:
		return Info{}, refused("claims a size of %d bytes", h.Size)
	case uint64(h.L1Size)*8 > maxL1:
		return Info{}, refused("has a table of %d entries, which is more than QEMU reads", h.L1Size)
	case outside(h.L1Offset, uint64(h.L1Size)*8, size),
		outside(h.RefcountOffset, uint64(h.RefcountClusters)<<h.ClusterBits, size):
		return Info{}, refused("has tables beyond its end; is it complete?")
	}
	return Info{Format: Qcow2, VirtualSize: int64(h.Size)}, nil //nolint:gosec // it was checked to have 62 bits
}

// outside reports whether a part of a file is not within it.
func outside(offset, length uint64, size int64) bool {
	end := offset + length
	return end < offset || end > uint64(size) //nolint:gosec // sizes are not negative
}
