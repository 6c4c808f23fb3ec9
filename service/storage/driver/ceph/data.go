//go:build linux

package ceph

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

const (
	// window is how much of an image is asked for its extents at once, in bytes. Its objects of 4 MiB fill a frame by far
	// not.
	window = 64 << 30
	// atMost is how much is read and written at once, in bytes.
	atMost = 4 << 20
)

// content is a snapshot that is read by a helper of its own.
type content struct {
	ask  func(wire.Request) (wire.Response, error)
	name driver.Name
	size int64
}

// ReadSnapshot opens a snapshot for do.
func (d *Driver) ReadSnapshot(ctx context.Context, snapshot driver.Name, do func(driver.Content) error) error {
	seen, err := d.Snapshot(ctx, snapshot)
	if err != nil {
		return err
	}
	return d.session(ctx, nil, func(ask func(wire.Request) (wire.Response, error)) error {
		return do(&content{ask, snapshot, seen.Size})
	})
}

// Size returns the size of the snapshot.
func (c *content) Size() int64 { return c.size }

// Compares reports that Ceph knows what has changed.
func (c *content) Compares() bool { return true }

// ReadAt reads content.
func (c *content) ReadAt(p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		if offset+int64(n) >= c.size {
			return n, io.EOF
		}
		want := min(int64(len(p)-n), atMost, c.size-offset-int64(n))
		answer, err := c.ask(wire.Request{
			Op: wire.Read, Pool: c.name.Pool, Snapshot: c.name.Native, Offset: offset + int64(n), Size: want,
		})
		if err != nil {
			return n, err
		}
		if int64(len(answer.Data)) != want {
			return n, fault.New(fault.Unavailable, "the storage has sent %d bytes of %d", len(answer.Data), want)
		}
		n += copy(p[n:], answer.Data)
	}
	return n, nil
}

// Extents asks for the extents window by window.
func (c *content) Extents(ctx context.Context, since string) iter.Seq2[driver.Extent, error] {
	return func(yield func(driver.Extent, error) bool) {
		for offset := int64(0); offset < c.size; offset += window {
			if ctx.Err() != nil {
				yield(driver.Extent{}, context.Cause(ctx))
				return
			}
			answer, err := c.ask(wire.Request{
				Op: wire.Extents, Pool: c.name.Pool, Snapshot: c.name.Native, Since: since, Offset: offset,
				Size: min(window, c.size-offset),
			})
			if err != nil {
				yield(driver.Extent{}, err)
				return
			}
			for _, e := range answer.Extents {
				if e.Offset < 0 || e.Length <= 0 || e.Length > c.size-e.Offset {
					yield(driver.Extent{}, fault.New(fault.Unavailable, "the storage tells of what lies beyond the snapshot"))
					return
				}
				if !yield(driver.Extent(e), nil) {
					return
				}
			}
		}
	}
}

// target is a volume that is filled by a helper of its own.
type target struct {
	ask  func(wire.Request) (wire.Response, error)
	name driver.Name
}

// WriteAt writes content. It returns when the storage has it.
func (t *target) WriteAt(p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+atMost)]
		r := request(wire.Write, t.name)
		r.Offset, r.Data = offset+int64(n), part
		if _, err := t.ask(r); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// FillVolume makes a volume whose content fill writes. The volume's lock keeps others from writing; who has begun to
// fill it earlier is shut out of the cluster.
func (d *Driver) FillVolume(
	ctx context.Context, spec driver.VolumeSpec, fill func(io.WriterAt) error,
) (v driver.Volume, err error) {
	if err := check("volume", spec.Native); err != nil {
		return v, err
	}
	if spec.Size <= 0 || spec.Size > MaxSize || spec.Kind != driver.Block || spec.Chosen != "" {
		return v, fault.InvalidField("size_bytes", "must be that of a block volume, between 1 and %d", int64(MaxSize))
	}
	err = d.session(ctx, nil, func(ask func(wire.Request) (wire.Response, error)) error {
		r := request(wire.Refill, spec.Name)
		r.Size = spec.Size
		answer, err := ask(r)
		if err == nil && answer.Volume == nil {
			if err = fill(&target{ask, spec.Name}); err != nil {
				r.Op = wire.Unfilled
				_, unclosed := ask(r)
				return errors.Join(err, unclosed)
			}
			r.Op = wire.Refilled
			answer, err = ask(r)
		}
		if err == nil {
			v, err = volumeOf(spec.Pool, answer.Volume)
		}
		return err
	})
	return v, err
}
