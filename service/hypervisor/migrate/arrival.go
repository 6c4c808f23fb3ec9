package migrate

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/image"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// MaxPiece is the largest piece of a file, in bytes.
const MaxPiece = 8 << 20

// arrival is an offer whose files are being written.
type arrival struct {
	id, vm    string
	diskBytes int64 // as its guest sees it
	now       func() time.Time

	mu    sync.Mutex // held while a file is written
	files []*incoming
	used  time.Time
	over  bool
}

// incoming is a file that is being written.
type incoming struct {
	name, path string
	size       int64
	file       *os.File
	end        int64 // of what was written
	sum        sum

	bytes int64 // of a disk beside the system disk, as its guest sees it

	// Of a layer:
	backing string // the name of the file below it, as the other host has it
	below   string // the file below it here; empty: none
}

// create makes an empty file.
func (f *incoming) create() (err error) {
	f.sum = newSum()
	f.file, err = os.OpenFile(f.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.file.Truncate(f.size)
	}
	return err
}

// write writes a piece of a file.
func (a *arrival) write(name string, offset int64, piece []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return record.ErrUnknownMigration
	}
	a.used = a.now()
	for _, f := range a.files {
		if f.name != name {
			continue
		}
		length := int64(len(piece))
		if offset < f.end || offset > f.size || length > f.size-offset {
			return fault.InvalidField("offset", "%d bytes at %d do not follow the %d that were written of %d", length, offset, f.end, f.size)
		}
		if _, err := f.file.WriteAt(piece, offset); err != nil {
			return err
		}
		f.sum.add(offset, piece)
		f.end = offset + length
		return nil
	}
	return fault.New(fault.NotFound, "the migration needs no file %s", name)
}

// close ends the writing. The files stay.
func (a *arrival) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	for _, f := range a.files {
		if f.file != nil {
			_ = f.file.Close() // what matters was synced
		}
	}
}

// silent reports whether nothing was written for a long time.
func (a *arrival) silent() bool {
	if !a.mu.TryLock() {
		return false // it is being written
	}
	defer a.mu.Unlock()
	return a.now().Sub(a.used) > silence
}

// complete compares all files with their sums, inspects the layers, and makes everything durable. v is the VM's
// volume. The caller holds mu.
func (a *arrival) complete(ctx context.Context, v storage.Volume, sums hypervisorapi.MigrationSums) error {
	given := map[string]string{}
	for _, s := range sums.Files {
		given[s.Name] = s.Sha256
	}
	for _, f := range a.files {
		if f.sum.String() != given[f.name] {
			return fault.New(fault.Conflict, "what arrived of the file %s is not what was sent", f.name).WithCode("sum_mismatch")
		}
		if isLayer(f.name) {
			size := f.bytes // of lower layers: any
			if f.name == diskName {
				size = a.diskBytes
			}
			if err := f.settleLayer(ctx, size); err != nil {
				return err
			}
		}
		if err := f.file.Sync(); err != nil {
			return err
		}
		if isLayer(f.name) && f.name != diskName && !isData(f.name) {
			if err := os.Chmod(f.path, 0o444); err != nil { //nolint:gosec // VMs under other uids read it
				return err
			}
		} else if err := storage.Own(f.path, v); err != nil {
			return err
		}
		if err := durable.SyncFolder(filepath.Dir(f.path)); err != nil {
			return err
		}
	}
	return nil
}

// settleLayer inspects a layer of a disk and puts it on the file below it. Unless size is 0, its guest must see
// so many bytes.
func (f *incoming) settleLayer(ctx context.Context, size int64) error {
	info, err := image.InspectLayer(f.file, f.size, f.backing)
	if err != nil {
		return err
	}
	if size != 0 && info.VirtualSize != size {
		return fault.New(fault.Invalid, "the disk has %d bytes; %d were offered", info.VirtualSize, size).
			WithCode("image_refused")
	}
	if f.below == "" {
		return nil
	}
	if err := storage.SetBacking(ctx, f.path, f.below); err != nil {
		return err
	}
	_, err = image.InspectLayer(f.file, f.size, f.below)
	return err
}
