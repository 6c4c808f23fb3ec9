//go:build ceph

package cephd

import (
	"errors"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

func (p *pool) volume(r *wire.Request) (out wire.Response, err error) {
	image, err := p.ready(targetOf(r))
	out.Volume = &image
	return out, err
}

// make makes a volume of an image that do makes under the volume's native name, unless it is there.
func (p *pool) make(r *wire.Request, do func() error) (out wire.Response, err error) {
	t := targetOf(r)
	if !t.valid() {
		return out, noVolume(t.name)
	}
	if t.chosen() {
		image, err := p.look(t.name)
		switch {
		case err == nil && is(&image, t):
			out.Volume = &image
			return out, nil
		case err == nil:
			return out, taken(t.name)
		case reasonOf(err).Reason != wire.NotFound:
			return out, err
		}
	}
	image, err := p.look(t.native)
	switch {
	case err == nil && image.State == wire.Ready:
		out.Volume = &image
		return out, nil
	case err == nil && image.State == wire.Deleted:
		return out, &wire.Error{
			Reason: wire.Conflict, Message: "a volume of that name was deleted, and its snapshots are still there",
		}
	case err == nil || reasonOf(err).Reason == wire.NotFound:
		err = p.remove(t.native) // what an attempt has left
	}
	if err == nil {
		err = do()
	}
	if errno(err) == unix.EEXIST {
		err = &wire.Error{Reason: wire.Failed, Message: "the volume is being made by another process"}
	}
	if err == nil {
		err = p.complete(t)
	}
	if err != nil {
		return out, err
	}
	return p.volume(r)
}

func taken(name string) error {
	return &wire.Error{Reason: wire.Conflict, Message: "the pool has an image " + name + " already"}
}

// complete makes an image that was made under its native name a volume, under the name that users have chosen.
func (p *pool) complete(t target) error {
	if !t.chosen() {
		return p.sign(t.native, t.native, wire.Ready, "")
	}
	if err := p.sign(t.native, t.name, wire.Ready, t.native); err != nil {
		return err
	}
	err := rbd.GetImage(p.IOContext, t.native).Rename(t.name)
	if errno(err) == unix.EEXIST {
		return errors.Join(taken(t.name), p.remove(t.native))
	}
	return err
}

func (p *pool) createVolume(r *wire.Request) (wire.Response, error) {
	return p.make(r, func() error {
		options := rbd.NewRbdImageOptions()
		defer options.Destroy()
		return rbd.CreateImage(p.IOContext, r.Volume, uint64(r.Size), options)
	})
}

func (p *pool) expandVolume(r *wire.Request) (wire.Response, error) {
	image, err := p.ready(targetOf(r))
	if err == nil && image.Size < r.Size {
		err = p.grow(image.Name, r.Size)
	}
	if err != nil {
		return wire.Response{}, err
	}
	return p.volume(r)
}

// grow makes an image larger.
func (p *pool) grow(name string, size int64) error {
	return p.with(name, true, func(image *rbd.Image) error {
		// Another client may have made it larger meanwhile: it must not shrink.
		return image.Resize2(uint64(size), false, func(uint64, uint64, any) int { return 0 }, nil)
	})
}

// deleteVolume marks a volume as deleted. One with a chosen name gets its native name back, so that the other is free.
// Leftover is the native name if there is something to collect.
func (p *pool) deleteVolume(c *cluster, r *wire.Request) (out wire.Response, err error) {
	t := targetOf(r)
	if !t.valid() {
		return out, nil
	}
	image, err := p.look(t.name)
	if t.chosen() && (err == nil && !is(&image, t) || err != nil && reasonOf(err).Reason == wire.NotFound) {
		t.name = t.native // it is deleted already, or was never complete
		image, err = p.look(t.name)
	}
	if err != nil && reasonOf(err).Reason == wire.NotFound {
		if found, err := p.purge(t); found || err != nil {
			out.Leftover = t.native
			return out, err
		}
		return out, p.remove(t.native) // an attempt to make it may have left something
	}
	if err != nil {
		return out, err
	}
	if image.State == wire.Building && r.Complete {
		return out, taken(t.name)
	}
	if image.State == wire.Building && t.name == t.native { // only an attempt to make it can have it open
		err := p.bound(t.native) // a copy of another site's that has not arrived yet
		if err == nil {
			err = p.evict(c, t.native)
		}
		if err == nil {
			err = p.remove(t.native)
		}
		return out, err
	}
	out.Leftover = t.native
	if t.name == t.native {
		if err := p.forgotten(t); err != nil {
			return out, err
		}
	}
	if image.State == wire.Deleted {
		return out, nil
	}
	if err := errors.Join(p.watched(t.name), p.bound(t.name)); err != nil {
		return out, err
	}
	if t.chosen() {
		if err := p.unkept(t.name); err != nil {
			return out, err
		}
	}
	parent, err := p.parent(t.name)
	if err != nil {
		return out, err
	}
	if err := p.sign(t.name, t.native, wire.Deleted, parent); err != nil || !t.chosen() {
		return out, err
	}
	return out, rbd.GetImage(p.IOContext, t.name).Rename(t.native)
}

// unkept refuses an image that has snapshots: others may have made them, and count on them.
func (p *pool) unkept(name string) error {
	return p.with(name, false, func(image *rbd.Image) error {
		return each(image, func(s rbd.SnapInfo) error {
			return &wire.Error{
				Reason: wire.Conflict, Message: "the image has snapshots, for example " + s.Name + "; delete them first",
			}
		})
	})
}

// collect removes an image that is deleted, if nothing needs it, and then in the same way what it was
// cloned from. If something needs it, only its own data goes.
func (p *pool) collect(name string) error {
	for {
		image, err := p.look(name)
		if err != nil && reasonOf(err).Reason == wire.NotFound {
			return nil
		}
		if err != nil || image.State != wire.Deleted {
			return err
		}
		if image.Snapshots > 0 {
			if image.Size == 0 {
				return nil
			}
			return p.with(name, true, func(image *rbd.Image) error { return image.Resize(0) })
		}
		if err := p.remove(name); err != nil {
			return err
		}
		if name = image.Parent; !driver.IsMade(name) {
			return nil
		}
	}
}

// parent returns the gateway's image that an image was cloned from, if there is one in this pool.
func (p *pool) parent(name string) (parent string, err error) {
	err = p.with(name, false, func(image *rbd.Image) error {
		info, err := image.GetParent()
		if errno(err) == unix.ENOENT {
			return nil
		}
		if err == nil && info.Image.PoolName == p.name && driver.IsMade(info.Image.ImageName) {
			parent = info.Image.ImageName
		}
		return err
	})
	return parent, err
}
