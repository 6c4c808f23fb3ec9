//go:build ceph

package cephd

import (
	"errors"
	"strconv"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// limit stores what librbd lets the clients of an image read and write. It tells them, so that they obey at once.
func (p *pool) limit(r *wire.Request) error {
	t := targetOf(r)
	if _, err := p.ready(t); err != nil {
		return err
	}
	return p.with(t.name, true, func(image *rbd.Image) error {
		for _, l := range []struct {
			key   string
			value *int64
		}{{iopsKey, r.IOPS}, {bpsKey, r.BPS}} {
			var err error
			switch {
			case l.value == nil:
			case *l.value == 0:
				err = image.RemoveMetadata(l.key)
			default:
				err = image.SetMetadata(l.key, strconv.FormatInt(*l.value, 10))
			}
			if err != nil && errno(err) != unix.ENOENT {
				return err
			}
		}
		return nil
	})
}

// flatten copies into a clone what it has of its parent.
func (p *pool) flatten(r *wire.Request) error {
	t := targetOf(r)
	image, err := p.ready(t)
	if err != nil || !image.Clone {
		return err
	}
	err = p.with(t.name, true, (*rbd.Image).Flatten)
	if errno(err) == unix.EINVAL { // another client has flattened it meanwhile
		if image, again := p.ready(t); again == nil && !image.Clone {
			return nil
		}
	}
	return err
}

func part(done, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return min(1, float64(done)/float64(of))
}

// shrink makes an image smaller.
func (p *pool) shrink(r *wire.Request, progress func(float64)) (out wire.Response, err error) {
	t := targetOf(r)
	image, err := p.ready(t)
	if err == nil && image.Size > r.Size {
		if err = p.watched(t.name); err == nil {
			err = p.with(t.name, true, func(image *rbd.Image) error {
				return image.Resize2(uint64(r.Size), true, func(done, of uint64, _ any) int {
					progress(part(done, of))
					return 0
				}, nil)
			})
		}
	}
	if err != nil {
		return out, err
	}
	return p.volume(r)
}

// revert puts an image back to a snapshot of it.
func (p *pool) revert(r *wire.Request) error {
	t := targetOf(r)
	if _, err := p.ready(t); err != nil {
		return err
	}
	_, l, err := p.find(r.Snapshot)
	if err != nil {
		return err
	}
	if l.volume != t.native {
		return noSnapshot(r.Snapshot)
	}
	if err := p.watched(t.name); err != nil {
		return err
	}
	return p.with(t.name, true, func(image *rbd.Image) error { return image.GetSnapshot(l.snap).Rollback() })
}

// move moves an image with its snapshots to another pool, by the migration of librbd:
//
//	(none) --prepare--> prepared --execute--> executed --commit--> (none), in the other pool
//
// From "prepared" on, the image is in the other pool for its clients, and reads what is not there yet from this one. An
// earlier attempt may have ended in any state.
func (p *pool) move(r *wire.Request, to *pool) error {
	t := targetOf(r)
	if !t.valid() {
		return noVolume(t.name)
	}
	entries := map[string][]byte{}
	for native, snap := range r.Snapshots {
		if !validSnapshot(native) {
			return noSnapshot(native)
		}
		entries[native] = []byte(place{volume: t.native, image: t.name, snap: snap}.entry(native))
	}
	state, err := to.migration(t.name)
	if err != nil {
		return err
	}
	if state == nil {
		switch _, err := p.ready(t); {
		case err == nil:
			if err = p.prepare(t, to, entries); err != nil {
				return err
			}
		case reasonOf(err).Reason == wire.NotFound:
			if _, arrived := to.ready(t); arrived != nil {
				return err
			}
			return p.forget(entries) // an earlier attempt has moved it
		default:
			return err
		}
	}
	if state == nil || *state != rbd.MigrationImageExecuted {
		if err := rbd.MigrationExecute(to.IOContext, t.name); err != nil {
			return err
		}
	}
	if err := rbd.MigrationCommit(to.IOContext, t.name); err != nil {
		return err
	}
	return p.forget(entries)
}

// migration returns the state of the migration that has an image as its target, or nil if there is none.
func (p *pool) migration(name string) (*rbd.MigrationImageState, error) {
	status, err := rbd.MigrationStatus(p.IOContext, name)
	switch errno(err) {
	case unix.ENOENT, unix.EINVAL: // no such image, or one that does not migrate
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &status.State, nil
}

// prepare begins a migration.
func (p *pool) prepare(t target, to *pool, entries map[string][]byte) error {
	if err := errors.Join(p.watched(t.name), p.bound(t.name)); err != nil {
		return err
	}
	if _, err := to.look(t.name); err == nil {
		return taken(t.name)
	} else if reasonOf(err).Reason != wire.NotFound {
		return err
	}
	if len(entries) > 0 {
		if err := to.SetOmap(index, entries); err != nil {
			return err
		}
	}
	options := rbd.NewRbdImageOptions()
	defer options.Destroy()
	err := rbd.MigrationPrepare(p.IOContext, t.name, to.IOContext, t.name, options)
	if errno(err) == unix.EBUSY {
		return &wire.Error{Reason: wire.Conflict, Message: "the volume is in use; its clients must close it first"}
	}
	return err
}

// forget removes entries of the index whose snapshots are in another pool.
func (p *pool) forget(entries map[string][]byte) error {
	var keys []string
	for native := range entries {
		keys = append(keys, native)
	}
	if len(keys) == 0 {
		return nil
	}
	err := p.RmOmapKeys(index, keys)
	if errno(err) == unix.ENOENT {
		return nil
	}
	return err
}

// moveBack ends a migration that has not ended, so that the image is where it was.
func (p *pool) moveBack(r *wire.Request, to *pool) error {
	t := targetOf(r)
	state, err := to.migration(t.name)
	if err != nil || state == nil {
		return err
	}
	if *state == rbd.MigrationImageExecuted {
		return errors.New("the content is copied already: the migration can only be completed")
	}
	if err := rbd.MigrationAbort(to.IOContext, t.name); err != nil {
		return err
	}
	entries := map[string][]byte{}
	for native := range r.Snapshots {
		entries[native] = nil
	}
	return to.forget(entries)
}

// used returns what the images of a pool hold, page by page.
func (p *pool) used(r *wire.Request, progress func(float64)) (out wire.Response, err error) {
	page, err := p.page(r)
	if err != nil {
		return out, err
	}
	out.Next = page.Next
	for i, image := range page.Images {
		progress(part(uint64(i), uint64(len(page.Images))))
		if image.State != wire.Ready && image.State != wire.Foreign {
			continue
		}
		image.Used, err = p.count(image.Name)
		switch {
		case errno(err) == unix.ENOENT:
			continue // it was deleted meanwhile
		case err != nil:
			return out, err
		}
		out.Images = append(out.Images, image)
	}
	return out, nil
}

// count returns how many bytes an image itself holds. With the features fast-diff and object-map that is known by the
// list of its objects; without, each of them is asked.
func (p *pool) count(name string) (used int64, err error) {
	err = p.with(name, false, func(image *rbd.Image) error {
		size, err := image.GetSize()
		if err != nil || size == 0 {
			return err
		}
		return image.DiffIterate(rbd.DiffIterateConfig{
			Length: size, IncludeParent: rbd.ExcludeParent, WholeObject: rbd.EnableWholeObject,
			Callback: func(_, length uint64, exists int, _ any) int {
				if exists != 0 {
					used += int64(length)
				}
				return 0
			},
		})
	})
	return used, err
}
