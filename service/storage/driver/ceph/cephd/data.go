//go:build ceph

package cephd

import (
	"errors"
	"io"
	"sync"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// data holds the images whose content is read and written. They stay open until the process ends.
type data struct {
	mu   sync.Mutex
	open map[string]*opened
}

// opened is an image that stays open, and how it can be opened.
type opened struct {
	pool  *pool
	image *rbd.Image
}

func (d *data) do(c *cluster, r *wire.Request) (wire.Response, error) {
	switch r.Op {
	case wire.Extents:
		return d.extents(c, r)
	case wire.Read:
		return d.read(c, r)
	case wire.Refill:
		return d.refill(c, r)
	case wire.Write:
		return wire.Response{}, d.write(r)
	case wire.Unfilled:
		return wire.Response{}, d.unfilled(r)
	}
	return d.refilled(r)
}

// at returns what is open under a key, or opens it.
func (d *data) at(key string, open func() (*opened, error)) (*opened, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.open[key]; o != nil {
		return o, nil
	}
	o, err := open()
	if err != nil {
		return nil, err
	}
	if d.open == nil {
		d.open = map[string]*opened{}
	}
	d.open[key] = o
	return o, nil
}

// snapshot returns a snapshot of an image, open for reading.
func (d *data) snapshot(c *cluster, r *wire.Request) (*opened, error) {
	return d.at(r.Pool+"@"+r.Snapshot, func() (*opened, error) {
		o, err := openPool(c, r.Pool)
		if err != nil {
			return nil, err
		}
		_, l, err := o.pool.find(r.Snapshot)
		if err == nil {
			o.image, err = rbd.OpenImageReadOnly(o.pool.IOContext, l.image, l.snap)
		}
		if err != nil {
			o.pool.Destroy()
		}
		return o, err
	})
}

func openPool(c *cluster, name string) (*opened, error) {
	var io *rados.IOContext
	io, err := c.open(name)
	if err != nil {
		return nil, err
	}
	return &opened{pool: &pool{IOContext: io, name: name}}, nil
}

// extents returns what a part of a snapshot holds, or what of it differs from an older snapshot of the same image. A
// clone holds what its parent holds, too.
func (d *data) extents(c *cluster, r *wire.Request) (out wire.Response, err error) {
	o, err := d.snapshot(c, r)
	if err != nil {
		return out, err
	}
	q := rbd.DiffIterateConfig{
		Offset: uint64(r.Offset), Length: uint64(r.Size), IncludeParent: rbd.IncludeParent,
		WholeObject: rbd.EnableWholeObject,
		Callback: func(offset, length uint64, _ int, _ any) int {
			out.Extents = append(out.Extents, wire.Extent{Offset: int64(offset), Length: int64(length)})
			return 0
		},
	}
	if r.Since != "" {
		_, since, err := o.pool.find(r.Since)
		if err != nil {
			return out, err
		}
		of, err := o.pool.placeOf(r.Snapshot)
		if err != nil {
			return out, err
		}
		if since.image != of.image {
			return out, noSnapshot(r.Since)
		}
		q.SnapName, q.IncludeParent = since.snap, rbd.ExcludeParent
	}
	return out, o.image.DiffIterate(q)
}

// read returns content of a snapshot. It is shorter than asked for at the end.
func (d *data) read(c *cluster, r *wire.Request) (out wire.Response, err error) {
	if r.Size < 0 || r.Size > wire.MaxFrame {
		return out, &wire.Error{Reason: wire.Invalid, Message: "too much is read at once"}
	}
	o, err := d.snapshot(c, r)
	if err != nil {
		return out, err
	}
	out.Data = make([]byte, r.Size)
	n, err := o.image.ReadAt(out.Data, r.Offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	out.Data = out.Data[:n]
	return out, err
}

// refill begins a volume whose content comes from elsewhere. If it is there, it is returned. What an earlier attempt
// has begun is removed, and whoever still writes to it is shut out.
func (d *data) refill(c *cluster, r *wire.Request) (out wire.Response, err error) {
	t := targetOf(r)
	if !t.valid() || t.chosen() {
		return out, noVolume(t.name)
	}
	_, err = d.at("refill "+r.Pool+"/"+r.Volume, func() (*opened, error) {
		o, err := openPool(c, r.Pool)
		if err != nil {
			return nil, err
		}
		if err = o.begin(c, t, r.Size, &out); err == nil && out.Volume == nil {
			return o, nil
		}
		o.pool.Destroy()
		if err == nil {
			err = errThere
		}
		return nil, err
	})
	if errors.Is(err, errThere) {
		err = nil
	}
	return out, err
}

// errThere says that a volume is complete already.
var errThere = errors.New("the volume is there")

// begin makes the image of a volume that is filled, and takes its lock.
func (o *opened) begin(c *cluster, t target, size int64, out *wire.Response) error {
	image, err := o.pool.look(t.native)
	switch {
	case err == nil && image.State == wire.Ready:
		out.Volume = &image
		return nil
	case err == nil && image.State == wire.Deleted:
		return &wire.Error{Reason: wire.Conflict, Message: "the volume was deleted"}
	case err == nil:
		if err := o.pool.evict(c, t.native); err != nil {
			return err
		}
		if err := o.pool.remove(t.native); err != nil {
			return err
		}
	case reasonOf(err).Reason != wire.NotFound:
		return err
	}
	options := rbd.NewRbdImageOptions()
	defer options.Destroy()
	// With these features, the lock is exclusive, and the next backup knows quickly what has changed.
	if err := options.SetUint64(rbd.ImageOptionFeatures, rbd.FeatureLayering|rbd.FeatureExclusiveLock|rbd.FeatureObjectMap|
		rbd.FeatureFastDiff|rbd.FeatureDeepFlatten); err != nil {
		return err
	}
	if err := rbd.CreateImage(o.pool.IOContext, t.native, uint64(size), options); err != nil {
		return err
	}
	if o.image, err = rbd.OpenImage(o.pool.IOContext, t.native, rbd.NoSnapshot); err != nil {
		return err
	}
	return o.image.LockAcquire(rbd.LockModeExclusive)
}

// evict shuts out who has an image open that is not complete: only an earlier attempt to fill it can have that.
func (p *pool) evict(c *cluster, name string) error {
	return p.with(name, false, func(image *rbd.Image) error {
		watchers, err := image.ListWatchers()
		for i := 0; i < len(watchers) && err == nil; i++ {
			err = c.fence(watchers[i].Addr)
		}
		return err
	})
}

// filling returns the volume that is filled.
func (d *data) filling(r *wire.Request) (*opened, error) {
	return d.at("refill "+r.Pool+"/"+r.Volume, func() (*opened, error) {
		return nil, &wire.Error{Reason: wire.Invalid, Message: "the volume is not being filled"}
	})
}

func (d *data) write(r *wire.Request) error {
	o, err := d.filling(r)
	if err != nil {
		return err
	}
	_, err = o.image.WriteAt(r.Data, r.Offset)
	return err
}

// given returns the volume that is filled, which the caller closes.
func (d *data) given(r *wire.Request) (*opened, error) {
	o, err := d.filling(r)
	if err == nil {
		d.mu.Lock()
		delete(d.open, "refill "+r.Pool+"/"+r.Volume)
		d.mu.Unlock()
	}
	return o, err
}

// unfilled closes a volume that will not be complete, so that it can be removed at once. Otherwise the cluster takes it
// to be open for half a minute after the end of this process.
func (d *data) unfilled(r *wire.Request) error {
	o, err := d.given(r)
	if err != nil {
		return err
	}
	defer o.pool.Destroy()
	return o.image.Close()
}

// refilled makes a volume that is filled one that is there.
func (d *data) refilled(r *wire.Request) (out wire.Response, err error) {
	o, err := d.given(r)
	if err != nil {
		return out, err
	}
	defer o.pool.Destroy()
	err = o.image.Flush()
	// The mark is set with the lock held: who was shut out cannot set it.
	if err == nil {
		err = o.image.SetMetadata(mark(r.Volume), string(wire.Ready))
	}
	if closed := o.image.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return out, err
	}
	return o.pool.volume(r)
}
