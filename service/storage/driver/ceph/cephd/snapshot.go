//go:build ceph

package cephd

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// index is the object of each pool that tells by the native names of snapshots where they are. An entry is made before
// its snapshot, with pending before it, which goes when the snapshot is complete. It goes after its snapshot: one
// without a snapshot means nothing.
const (
	index   = "mainstay.snapshots"
	pending = "~"
)

// place is where a snapshot is.
type place struct {
	volume string // native name of the volume
	image  string // name of the image
	snap   string // name of the snapshot, for that image
	// pending: the snapshot may be there, but not be complete. Librbd shows it before it has its object map, without
	// which it cannot be cloned.
	pending bool
}

// entry writes a place as entries of the index have it: VOLUME, or if users have chosen names VOLUME/IMAGE@SNAP. Names
// of images and snapshots have neither a slash nor an at sign.
func (l place) entry(native string) string {
	if l.image == l.volume && l.snap == native {
		return l.volume
	}
	return l.volume + "/" + l.image + "@" + l.snap
}

func placeIn(entry, native string) place {
	entry, half := strings.CutPrefix(entry, pending)
	volume, names, named := strings.Cut(entry, "/")
	if !named {
		return place{volume: volume, image: volume, snap: native, pending: half}
	}
	image, snap, _ := strings.Cut(names, "@")
	return place{volume: volume, image: image, snap: snap, pending: half}
}

// validSnapshot reports whether a name is one that gateways give to snapshots.
func validSnapshot(native string) bool {
	return strings.HasPrefix(native, "snap-") && driver.IsMade(native)
}

// placeOf returns where a snapshot is, or would be, also if it is not complete.
func (p *pool) placeOf(native string) (place, error) {
	if !validSnapshot(native) {
		return place{}, noSnapshot(native)
	}
	found, err := p.GetOmapValues(index, "", native, 1)
	if err != nil && errno(err) != unix.ENOENT {
		return place{}, err
	}
	if l := placeIn(string(found[native]), native); driver.IsMade(l.volume) {
		return l, nil
	}
	return place{}, noSnapshot(native)
}

// find returns a snapshot.
func (p *pool) find(native string) (snap wire.Snap, l place, err error) {
	if l, err = p.placeOf(native); err == nil && l.pending {
		err = noSnapshot(native)
	}
	if err != nil {
		return snap, l, err
	}
	err = p.with(l.image, false, func(image *rbd.Image) error {
		snap, err = lookFor(image, l.snap)
		return err
	})
	if errno(err) == unix.ENOENT {
		err = noSnapshot(native)
	}
	snap.Name, snap.Source = native, l.volume
	return snap, l, err
}

// each calls do with the snapshots of an image that users see: not with those that belong to groups or mirrors, nor
// with those that were removed and only clones need.
func each(image *rbd.Image, do func(rbd.SnapInfo) error) error {
	all, err := image.GetSnapshotNames()
	if err != nil {
		return err
	}
	for _, s := range all {
		kind, err := image.GetSnapNamespaceType(s.Id)
		if errno(err) == unix.ENOENT {
			continue // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		if kind != rbd.SnapNamespaceTypeUser {
			continue
		}
		if err := do(s); err != nil {
			return err
		}
	}
	return nil
}

func lookFor(image *rbd.Image, name string) (snap wire.Snap, err error) {
	found := false
	err = each(image, func(s rbd.SnapInfo) error {
		if found || s.Name != name {
			return nil
		}
		found = true
		created, err := image.GetSnapTimestamp(s.Id)
		if err != nil {
			return err
		}
		id, err := image.GetId()
		snap = wire.Snap{Name: name, ID: fmt.Sprintf("%s/%d", id, s.Id), Size: int64(s.Size), CreatedAt: at(created)}
		return err
	})
	if err == nil && !found {
		err = noSnapshot(name)
	}
	return snap, err
}

// listSnapshots returns the snapshots of an image, oldest first.
func (p *pool) listSnapshots(r *wire.Request) (out wire.Response, err error) {
	t := targetOf(r)
	if _, err := p.ready(t); err != nil {
		return out, err
	}
	return out, p.with(t.name, false, func(image *rbd.Image) error {
		return each(image, func(s rbd.SnapInfo) error {
			created, err := image.GetSnapTimestamp(s.Id)
			if err != nil {
				return err
			}
			protected, err := image.GetSnapshot(s.Name).IsProtected()
			out.Snapshots = append(out.Snapshots, wire.Snap{
				Name: s.Name, Size: int64(s.Size), CreatedAt: at(created), Protected: protected,
			})
			return err
		})
	})
}

func (p *pool) snapshot(r *wire.Request) (out wire.Response, err error) {
	snap, _, err := p.find(r.Snapshot)
	out.Snapshot = &snap
	return out, err
}

func (p *pool) createSnapshot(r *wire.Request) (out wire.Response, err error) {
	if !validSnapshot(r.Snapshot) {
		return out, noSnapshot(r.Snapshot)
	}
	out, err = p.snapshot(r)
	if err == nil || reasonOf(err).Reason != wire.NotFound {
		return out, err
	}
	t := targetOf(r)
	if _, err := p.ready(t); err != nil {
		return out, err
	}
	l := place{volume: t.native, image: t.name, snap: cmp.Or(r.Snap, r.Snapshot)}
	if err := p.with(t.name, true, func(image *rbd.Image) error { return p.keep(image, l, r.Snapshot) }); err != nil {
		return out, err
	}
	return p.snapshot(r)
}

// keep takes a snapshot of an image. What an earlier attempt has left of it is taken again.
func (p *pool) keep(image *rbd.Image, l place, native string) error {
	before, err := p.placeOf(native)
	begun := err == nil && before.pending && before.image == l.image && before.snap == l.snap
	if err != nil && reasonOf(err).Reason != wire.NotFound {
		return err
	}
	switch _, err := lookFor(image, l.snap); {
	case err == nil && begun:
		if err := image.GetSnapshot(l.snap).Remove(); err != nil {
			return err
		}
	case err == nil: // without an entry, it is somebody else's
		return snapshotTaken(l.snap)
	case reasonOf(err).Reason != wire.NotFound:
		return err
	}
	entry := l.entry(native)
	if err := p.SetOmap(index, map[string][]byte{native: []byte(pending + entry)}); err != nil {
		return err
	}
	_, err = image.CreateSnapshot(l.snap)
	if errno(err) == unix.EEXIST {
		return errors.Join(snapshotTaken(l.snap), p.RmOmapKeys(index, []string{native}))
	}
	if err != nil {
		return err
	}
	return p.SetOmap(index, map[string][]byte{native: []byte(entry)})
}

func snapshotTaken(name string) error {
	return &wire.Error{Reason: wire.Conflict, Message: "the image has a snapshot " + name + " already"}
}

// deleteSnapshot removes a snapshot. If clones hang on it, Ceph keeps its data for them under another
// name, in the trash of snapshots, and removes it with the last clone.
func (p *pool) deleteSnapshot(r *wire.Request) (out wire.Response, err error) {
	l, err := p.placeOf(r.Snapshot)
	if err != nil {
		if reasonOf(err).Reason == wire.NotFound {
			err = nil
		}
		return out, err
	}
	err = p.with(l.image, true, func(image *rbd.Image) error {
		if _, err := lookFor(image, l.snap); err != nil {
			return err
		}
		return image.GetSnapshot(l.snap).Remove()
	})
	if errno(err) == unix.EBUSY {
		return out, &wire.Error{
			Reason: wire.Conflict, Message: "the snapshot is protected, or in use by another program", Cause: err.Error(),
		}
	}
	if err != nil && errno(err) != unix.ENOENT && reasonOf(err).Reason != wire.NotFound {
		return out, err
	}
	out.Leftover = l.volume // collecting does nothing unless it is deleted
	return out, p.RmOmapKeys(index, []string{r.Snapshot})
}

func (p *pool) cloneSnapshot(r *wire.Request) (wire.Response, error) {
	return p.make(r, func() error {
		snap, l, err := p.find(r.Snapshot)
		if err != nil {
			return err
		}
		options := rbd.NewRbdImageOptions()
		defer options.Destroy()
		// Version 2: the snapshot need not be protected, and may be deleted.
		if err := options.SetUint64(rbd.ImageOptionCloneFormat, 2); err != nil {
			return err
		}
		err = rbd.CloneImage(p.IOContext, l.image, l.snap, p.IOContext, r.Volume, options)
		if errno(err) == unix.ENOENT {
			if _, _, again := p.find(r.Snapshot); again != nil {
				return again // it was deleted meanwhile
			}
			return &wire.Error{
				Reason: wire.Failed, Message: "the storage cannot clone the snapshot; if it has lost its object map, " +
					"rbd object-map rebuild makes it again", Cause: err.Error(),
			}
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
