//go:build ceph

package cephd

import (
	"strings"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// index is the object of each pool that tells by the names of snapshots of which images they are. An
// entry is made before its snapshot and goes after it: one without a snapshot means nothing.
const index = "mainstay.snapshots"

// sourceOf returns the image that a snapshot is of, or would be of.
func (p *pool) sourceOf(native string) (string, error) {
	if !strings.HasPrefix(native, "snap-") || !driver.IsMade(native) {
		return "", noSnapshot(native)
	}
	found, err := p.GetOmapValues(index, "", native, 1)
	if err != nil && errno(err) != unix.ENOENT {
		return "", err
	}
	if source := string(found[native]); driver.IsMade(source) {
		return source, nil
	}
	return "", noSnapshot(native)
}

// find returns a snapshot.
func (p *pool) find(native string) (snap wire.Snap, err error) {
	source, err := p.sourceOf(native)
	if err != nil {
		return snap, err
	}
	err = p.with(source, false, func(image *rbd.Image) error {
		snap, err = lookFor(image, source, native)
		return err
	})
	if errno(err) == unix.ENOENT {
		err = noSnapshot(native)
	}
	return snap, err
}

func lookFor(image *rbd.Image, source, native string) (snap wire.Snap, err error) {
	all, err := image.GetSnapshotNames()
	if err != nil {
		return snap, err
	}
	for _, s := range all {
		if s.Name != native {
			continue
		}
		created, err := image.GetSnapTimestamp(s.Id)
		return wire.Snap{Name: native, Source: source, Size: int64(s.Size), CreatedAt: at(created)}, err
	}
	return snap, noSnapshot(native)
}

func (p *pool) snapshot(r *wire.Request) (out wire.Response, err error) {
	snap, err := p.find(r.Snapshot)
	out.Snapshot = &snap
	return out, err
}

func (p *pool) createSnapshot(r *wire.Request) (out wire.Response, err error) {
	if !strings.HasPrefix(r.Snapshot, "snap-") || !driver.IsMade(r.Snapshot) {
		return out, noSnapshot(r.Snapshot)
	}
	out, err = p.snapshot(r)
	if err == nil || reasonOf(err).Reason != wire.NotFound {
		return out, err
	}
	if _, err := p.ready(r.Volume); err != nil {
		return out, err
	}
	if err := p.SetOmap(index, map[string][]byte{r.Snapshot: []byte(r.Volume)}); err != nil {
		return out, err
	}
	if err := p.with(r.Volume, true, func(image *rbd.Image) error {
		_, err := image.CreateSnapshot(r.Snapshot)
		return err
	}); err != nil {
		return out, err
	}
	return p.snapshot(r)
}

// deleteSnapshot removes a snapshot. If clones hang on it, Ceph keeps its data for them under another
// name, in the trash of snapshots, and removes it with the last clone.
func (p *pool) deleteSnapshot(r *wire.Request) (out wire.Response, err error) {
	source, err := p.sourceOf(r.Snapshot)
	if err != nil {
		if reasonOf(err).Reason == wire.NotFound {
			err = nil
		}
		return out, err
	}
	err = p.with(source, true, func(image *rbd.Image) error {
		if _, err := lookFor(image, source, r.Snapshot); err != nil {
			return err
		}
		return image.GetSnapshot(r.Snapshot).Remove()
	})
	if err != nil && errno(err) != unix.ENOENT && reasonOf(err).Reason != wire.NotFound {
		return out, err
	}
	out.Leftover = source // collecting does nothing unless it is deleted
	return out, p.RmOmapKeys(index, []string{r.Snapshot})
}

func (p *pool) cloneSnapshot(r *wire.Request) (wire.Response, error) {
	return p.make(r.Volume, func() error {
		snap, err := p.find(r.Snapshot)
		if err != nil {
			return err
		}
		options := rbd.NewRbdImageOptions()
		defer options.Destroy()
		// Version 2: the snapshot need not be protected, and may be deleted.
		if err := options.SetUint64(rbd.ImageOptionCloneFormat, 2); err != nil {
			return err
		}
		err = rbd.CloneImage(p.IOContext, snap.Source, snap.Name, p.IOContext, r.Volume, options)
		if errno(err) == unix.ENOENT {
			return noSnapshot(r.Snapshot) // it was deleted meanwhile
		}
		if err != nil {
			return err
		}
		if r.Size <= snap.Size {
			return nil
		}
		return p.grow(r.Volume, r.Size)
	})
}
