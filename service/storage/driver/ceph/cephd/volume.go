//go:build ceph

package cephd

import (
	"strings"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

func (p *pool) volume(r *wire.Request) (out wire.Response, err error) {
	image, err := p.ready(r.Volume)
	out.Volume = &image
	return out, err
}

// make makes a volume of an image that do makes, unless it is there.
func (p *pool) make(name string, do func() error) (out wire.Response, err error) {
	if !strings.HasPrefix(name, "vol-") || !driver.IsMade(name) {
		return out, noVolume(name)
	}
	image, err := p.look(name)
	switch {
	case err == nil && image.State == wire.Ready:
		out.Volume = &image
		return out, nil
	case err == nil && image.State == wire.Deleted:
		return out, &wire.Error{
			Reason: wire.Conflict, Message: "a volume of that name was deleted, and its snapshots are still there",
		}
	case err == nil || reasonOf(err).Reason == wire.NotFound:
		err = p.remove(name) // what an attempt has left
	}
	if err == nil {
		err = do()
	}
	if errno(err) == unix.EEXIST {
		err = &wire.Error{Reason: wire.Failed, Message: "the volume is being made by another process"}
	}
	if err == nil {
		err = p.sign(name, wire.Ready, "")
	}
	if err != nil {
		return out, err
	}
	return p.volume(&wire.Request{Volume: name})
}

func (p *pool) createVolume(r *wire.Request) (wire.Response, error) {
	return p.make(r.Volume, func() error {
		options := rbd.NewRbdImageOptions()
		defer options.Destroy()
		return rbd.CreateImage(p.IOContext, r.Volume, uint64(r.Size), options)
	})
}

func (p *pool) expandVolume(r *wire.Request) (wire.Response, error) {
	image, err := p.ready(r.Volume)
	if err == nil && image.Size < r.Size {
		err = p.grow(r.Volume, r.Size)
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

// deleteVolume marks a volume as deleted. Leftover is its name if there is something to collect.
func (p *pool) deleteVolume(r *wire.Request) (out wire.Response, err error) {
	if !strings.HasPrefix(r.Volume, "vol-") || !driver.IsMade(r.Volume) {
		return out, nil
	}
	image, err := p.look(r.Volume)
	if err != nil && reasonOf(err).Reason == wire.NotFound {
		return out, p.remove(r.Volume) // an attempt to make it may have left something
	}
	if err != nil {
		return out, err
	}
	out.Leftover = r.Volume
	if image.State == wire.Deleted {
		return out, nil
	}
	if err := p.watched(r.Volume); err != nil {
		return out, err
	}
	parent, err := p.parent(r.Volume)
	if err != nil {
		return out, err
	}
	return out, p.sign(r.Volume, wire.Deleted, parent)
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
