//go:build ceph

package cephd

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
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

// target is a volume: its native name, and the one that users see, which is the same unless they have chosen it.
type target struct{ native, name string }

// targetOf returns the volume of a request.
func targetOf(r *wire.Request) target {
	return target{native: r.Volume, name: cmp.Or(r.Image, r.Volume)}
}

// chosen reports whether users have chosen the name.
func (t target) chosen() bool { return t.name != t.native }

// valid reports whether the volume may be the gateway's.
func (t target) valid() bool {
	return strings.HasPrefix(t.native, "vol-") && driver.IsMade(t.native) && (!t.chosen() || !driver.IsMade(t.name))
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
	snapshots, err := image.GetSnapshotNames()
	if err != nil {
		return out, err
	}
	out.Snapshots = len(snapshots)
	values := map[string]string{}
	for _, key := range []string{mark(name), iopsKey, bpsKey} {
		values[key], err = image.GetMetadata(key)
		if err != nil && errno(err) != unix.ENOENT {
			return out, err
		}
	}
	interpret(&out, values)
	out.Of, err = spec(image)
	out.Clone = out.Of != ""
	return out, err
}

// The keys under which librbd keeps what limits the clients of an image.
const (
	iopsKey = "conf_rbd_qos_iops_limit"
	bpsKey  = "conf_rbd_qos_bps_limit"
)

// interpret reads the metadata of an image.
func interpret(image *wire.Image, metadata map[string]string) {
	image.IOPS, _ = strconv.ParseInt(metadata[iopsKey], 10, 64) // others may have written anything
	image.BPS, _ = strconv.ParseInt(metadata[bpsKey], 10, 64)
	text := metadata[mark(image.Name)]
	if text == "" {
		if driver.IsMade(image.Name) {
			image.State = wire.Building
		}
		return
	}
	first, rest, _ := strings.Cut(text, " ")
	switch image.State = wire.State(first); image.State {
	case wire.Deleted:
		image.Parent = rest
	case wire.Ready:
		image.Volume = rest
	}
}

// spec returns the snapshot that an image is a clone of, as POOL/IMAGE@SNAP, or an empty string.
func spec(image *rbd.Image) (string, error) {
	parent, err := image.GetParent()
	if errno(err) == unix.ENOENT {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return parent.Image.PoolName + "/" + parent.Image.ImageName + "@" + parent.Snap.SnapName, nil
}

func at(t rbd.Timespec) time.Time {
	if t.Sec == 0 {
		return time.Time{}
	}
	return time.Unix(t.Sec, t.Nsec).UTC()
}

// ready returns a volume that is there for callers.
func (p *pool) ready(t target) (wire.Image, error) {
	if !t.valid() {
		return wire.Image{}, noVolume(t.name)
	}
	image, err := p.look(t.name)
	if err == nil && !is(&image, t) {
		err = noVolume(t.name)
	}
	return image, err
}

// is reports whether an image is a volume that is complete.
func is(image *wire.Image, t target) bool {
	return image.State == wire.Ready && (image.Volume == t.native || image.Volume == "" && !t.chosen())
}

// sign stores the state of an image: of one that is ready and whose name was chosen with the name of its volume, of
// one that is deleted with what it was cloned from. An image that was cut to nothing does not tell that any more, while
// its snapshots still need it. name is the image's, or the one that it gets next.
func (p *pool) sign(image, name string, state wire.State, rest string) error {
	text := strings.TrimSpace(string(state) + " " + rest)
	return p.with(image, true, func(image *rbd.Image) error { return image.SetMetadata(mark(name), text) })
}

// watched refuses what must not be done while clients have an image open.
func (p *pool) watched(name string) error {
	return p.with(name, false, func(image *rbd.Image) error {
		watchers, err := image.ListWatchers()
		if err != nil {
			return err
		}
		return inUse(watchers)
	})
}

// inUse is the fault of what must not be done while these clients have an image open. Without any, it is nil.
func inUse(watchers []rbd.ImageWatcher) error {
	if len(watchers) == 0 {
		return nil
	}
	var who []string
	for _, w := range watchers {
		who = append(who, fmt.Sprintf("client.%d at %s", w.Id, w.Addr))
	}
	return &wire.Error{Reason: wire.Conflict, Message: "the volume is in use by " + strings.Join(who, ", ")}
}

// bound refuses what must not be done while an image is part of something else.
func (p *pool) bound(name string) error {
	return p.with(name, false, func(image *rbd.Image) error {
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
