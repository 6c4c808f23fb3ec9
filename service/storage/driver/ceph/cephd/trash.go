//go:build ceph

package cephd

import (
	"errors"
	"time"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// discard moves a volume to the trash, under its native name, so that the name that users have chosen is free. Every
// step can be repeated: librbd continues a move that was broken off when it is asked by the same name.
func (p *pool) discard(r *wire.Request) error {
	t := targetOf(r)
	_, err := p.ready(t)
	switch {
	case err == nil:
		if err := errors.Join(p.watched(t.name), p.bound(t.name)); err != nil {
			return err
		}
		if !t.chosen() {
			break
		}
		if err := p.unkept(t.name); err != nil {
			return err
		}
		if err := rbd.GetImage(p.IOContext, t.name).Rename(t.native); err != nil {
			return err
		}
	case reasonOf(err).Reason != wire.NotFound || !t.valid():
		return err
	default:
		// An earlier attempt may have renamed it. One that is marked as deleted must not come back.
		if image, err := p.look(t.native); err == nil && image.State == wire.Deleted {
			return noVolume(t.name)
		}
	}
	err = rbd.GetImage(p.IOContext, t.native).Trash(time.Duration(r.Keep) * time.Second)
	switch errno(err) {
	case unix.ENOENT:
		_, err = p.trashed(t)
	case unix.EBUSY:
		err = errors.Join(p.watched(t.native), &wire.Error{
			Reason: wire.Conflict, Message: "the volume is in use", Cause: err.Error(),
		})
	}
	return err
}

// trashed returns the id by which the trash has a volume.
func (p *pool) trashed(t target) (id string, err error) {
	all, err := rbd.GetTrashList(p.IOContext)
	if err != nil {
		return "", err
	}
	for _, entry := range all {
		if entry.Name == t.native {
			return entry.Id, nil
		}
	}
	return "", noVolume(t.name)
}

// undelete takes a volume out of the trash, and then gives it the name that users have chosen.
func (p *pool) undelete(r *wire.Request) (out wire.Response, err error) {
	t := targetOf(r)
	if !t.valid() {
		return out, noVolume(t.name)
	}
	switch image, err := p.ready(t); {
	case err == nil && !t.chosen():
		// An earlier attempt may have been killed before the trash had forgotten it.
		out.Volume = &image
		return out, p.forgotten(t)
	case err == nil:
		out.Volume = &image // an earlier attempt has brought it back
		return out, nil
	case reasonOf(err).Reason != wire.NotFound:
		return out, err
	}
	if t.chosen() {
		switch _, err := p.look(t.name); {
		case err == nil:
			return out, taken(t.name)
		case reasonOf(err).Reason != wire.NotFound:
			return out, err
		}
	}
	if err := p.untrash(t); err != nil {
		return out, err
	}
	if t.chosen() {
		err = p.sign(t.native, t.name, wire.Ready, t.native)
		if err == nil {
			err = rbd.GetImage(p.IOContext, t.native).Rename(t.name)
		}
		if errno(err) == unix.EEXIST { // somebody has taken the name at this moment
			return out, errors.Join(taken(t.name), rbd.GetImage(p.IOContext, t.native).Trash(0))
		}
		if err != nil {
			return out, err
		}
	}
	return p.volume(r)
}

// untrash has a volume be there under its native name again, where only this package sees it if users have chosen
// another one.
func (p *pool) untrash(t target) error {
	switch image, err := p.look(t.native); {
	case err == nil && image.State == wire.Ready:
		return p.forgotten(t) // an earlier attempt has done this
	case err == nil && image.State == wire.Deleted:
		return noVolume(t.name)
	case err == nil:
		return taken(t.native)
	case reasonOf(err).Reason != wire.NotFound:
		return err
	}
	id, err := p.trashed(t)
	if err != nil {
		return err
	}
	return rbd.TrashRestore(p.IOContext, id, t.native)
}

// forgotten has the trash forget a volume that is out of it, if a call that was killed has not come to that.
func (p *pool) forgotten(t target) error {
	id, err := p.trashed(t)
	if err != nil {
		if reasonOf(err).Reason == wire.NotFound {
			return nil
		}
		return err
	}
	return rbd.TrashRestore(p.IOContext, id, t.native)
}

// purge marks a volume in the trash as deleted. It reports whether the trash had it.
func (p *pool) purge(t target) (bool, error) {
	id, err := p.trashed(t)
	if err != nil {
		if reasonOf(err).Reason == wire.NotFound {
			err = nil
		}
		return false, err
	}
	if err := rbd.TrashRestore(p.IOContext, id, t.native); err != nil {
		return false, err
	}
	parent, err := p.parent(t.native)
	if err != nil {
		return false, err
	}
	return true, p.sign(t.native, t.native, wire.Deleted, parent)
}

// replace removes an image, and gives its names to another volume. A call that is repeated goes on: the one that is to
// be removed goes first, and the other one is complete.
func (p *pool) replace(r *wire.Request) error {
	t := targetOf(r)
	if !t.valid() {
		return noVolume(t.name)
	}
	fresh, err := p.look(r.By)
	if err != nil && reasonOf(err).Reason == wire.NotFound {
		_, err = p.ready(t) // an earlier call has done this
		return err
	}
	if err != nil {
		return err
	}
	if !is(&fresh, target{r.By, r.By}) {
		return noVolume(r.By)
	}
	switch old, err := p.look(t.name); {
	case err == nil && !is(&old, t):
		return taken(t.name)
	case err == nil:
		if err := p.replaceable(t.name, &old); err != nil {
			return err
		}
		if err := p.remove(t.name); err != nil {
			return err
		}
	case reasonOf(err).Reason != wire.NotFound:
		return err
	}
	rest := ""
	if t.chosen() {
		rest = t.native
	}
	if err := p.sign(r.By, t.name, wire.Ready, rest); err != nil {
		return err
	}
	return rbd.GetImage(p.IOContext, r.By).Rename(t.name)
}

// replaceable refuses an image that something needs.
func (p *pool) replaceable(name string, image *wire.Image) error {
	if err := errors.Join(p.watched(name), p.bound(name), p.unkept(name)); err != nil {
		return err
	}
	if image.Snapshots > 0 { // in the trash of snapshots
		return &wire.Error{
			Reason: wire.Conflict, Message: "clones of deleted snapshots of the volume need it; flatten or delete them first",
		}
	}
	return nil
}
