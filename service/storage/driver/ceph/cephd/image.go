//go:build ceph

package cephd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// pool is a pool of images.
type pool struct {
	*rados.IOContext
	name string
}

// mark is the key under which an image's metadata holds its state.
func mark(name string) string { return "mainstay/" + name }

func noVolume(name string) error {
	return &wire.Error{Reason: wire.NotFound, Message: "the storage has no volume " + name}
}

func noSnapshot(name string) error {
	return &wire.Error{Reason: wire.NotFound, Message: "the storage has no snapshot " + name}
}

// with calls do with an image. Changes take a watch on the image, which other clients see.
func (p *pool) with(name string, change bool, do func(*rbd.Image) error) error {
	open := rbd.OpenImageReadOnly
	if change {
		open = rbd.OpenImage
	}
	image, err := open(p.IOContext, name, rbd.NoSnapshot)
	if err != nil {
		return err
	}
	err = do(image)
	return errors.Join(err, image.Close())
}

// look returns an image. It is a fault of kind NotFound if there is nothing of that name.
func (p *pool) look(name string) (out wire.Image, err error) {
	err = p.with(name, false, func(image *rbd.Image) error {
		out, err = describe(image, name)
		return err
	})
	if errno(err) == unix.ENOENT {
		err = noVolume(name)
	}
	return out, err
}

func describe(image *rbd.Image, name string) (out wire.Image, err error) {
	out.Name = name
	size, err := image.GetSize()
	if err != nil {
		return out, err
	}
	out.Size = int64(size)
	created, err := image.GetCreateTimestamp()
	if err != nil {
		return out, err
	}
	out.CreatedAt = at(created)
	if !driver.IsMade(name) {
		return out, nil
	}
	snapshots, err := image.GetSnapshotNames()
	if err != nil {
		return out, err
	}
	out.Snapshots = len(snapshots)
	text, err := image.GetMetadata(mark(name))
	if errno(err) == unix.ENOENT {
		text, err = "", nil
	}
	out.State, out.Parent = states(text)
	return out, err
}

// states reads a mark.
func states(text string) (state wire.State, parent string) {
	if text == "" {
		return wire.Building, ""
	}
	first, parent, _ := strings.Cut(text, " ")
	return wire.State(first), parent
}

func at(t rbd.Timespec) time.Time {
	if t.Sec == 0 {
		return time.Time{}
	}
	return time.Unix(t.Sec, t.Nsec).UTC()
}

// ready returns a volume that is there for callers.
func (p *pool) ready(name string) (wire.Image, error) {
	if !strings.HasPrefix(name, "vol-") || !driver.IsMade(name) {
		return wire.Image{}, noVolume(name)
	}
	image, err := p.look(name)
	if err == nil && image.State != wire.Ready {
		err = noVolume(name)
	}
	return image, err
}

// sign stores the state of an image, and of one that is deleted what it was cloned from: an image that
// was cut to nothing does not tell any more, while its snapshots still need that.
func (p *pool) sign(name string, state wire.State, parent string) error {
	text := strings.TrimSpace(string(state) + " " + parent)
	return p.with(name, true, func(image *rbd.Image) error { return image.SetMetadata(mark(name), text) })
}

// watched refuses what must not be done while clients have an image open, or while it is part of
// something else.
func (p *pool) watched(name string) error {
	return p.with(name, false, func(image *rbd.Image) error {
		watchers, err := image.ListWatchers()
		if err != nil {
			return err
		}
		if len(watchers) > 0 {
			var who []string
			for _, w := range watchers {
				who = append(who, fmt.Sprintf("client.%d at %s", w.Id, w.Addr))
			}
			return &wire.Error{Reason: wire.Conflict, Message: "the volume is in use by " + strings.Join(who, ", ")}
		}
		if group, err := image.GetGroup(); err == nil && group.Name != "" {
			return &wire.Error{Reason: wire.Conflict, Message: "the volume is in the group " + group.Name}
		}
		if info, err := image.GetMirrorImageInfo(); err == nil && info.State == rbd.MirrorImageEnabled {
			return &wire.Error{Reason: wire.Conflict, Message: "the volume is mirrored"}
		}
		return nil
	})
}

// remove removes an image, or what is left of it.
func (p *pool) remove(name string) error {
	err := rbd.RemoveImage(p.IOContext, name)
	switch errno(err) {
	case unix.ENOENT:
		return nil
	case unix.EBUSY:
		if who := p.watched(name); who != nil {
			return who
		}
		return &wire.Error{Reason: wire.Conflict, Message: "the volume is in use", Cause: err.Error()}
	}
	return err
}
