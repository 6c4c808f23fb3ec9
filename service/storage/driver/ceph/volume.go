//go:build linux

package ceph

import (
	"context"
	"errors"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// MaxSize is the largest size of a volume, in bytes.
const MaxSize = 1 << 60

// check refuses names that the gateway does not make.
func check(noun, native string) error {
	if !driver.IsMade(native) {
		return fault.New(fault.NotFound, "the storage has no %s %s", noun, native)
	}
	return nil
}

func volumeOf(pool string, i *wire.Image) (driver.Volume, error) {
	if i == nil {
		return driver.Volume{}, fault.New(fault.Unavailable, "the helper's answer lacks the volume")
	}
	v := driver.Volume{
		Name: driver.Name{Pool: pool, Native: i.Name}, Kind: driver.Block, Size: i.Size, Used: -1, Enforced: true,
		Foreign: i.State == wire.Foreign || i.State == wire.Damaged && !driver.IsMade(i.Name),
		Damaged: i.State == wire.Damaged, Parent: i.Of, Limits: driver.Limits{IOPS: i.IOPS, BPS: i.BPS},
		CreatedAt: i.CreatedAt,
	}
	if i.Volume != "" {
		v.Native, v.Chosen = i.Volume, i.Name
	}
	return v, nil
}

// request returns a request about a volume.
func request(op wire.Op, n driver.Name) wire.Request {
	return wire.Request{Op: op, Pool: n.Pool, Volume: n.Native, Image: n.Chosen, Complete: n.Complete}
}

// requestOf returns a request about a snapshot of a volume.
func requestOf(op wire.Op, volume, snapshot driver.Name) wire.Request {
	r := request(op, volume)
	r.Snapshot, r.Snap = snapshot.Native, snapshot.Chosen
	return r
}

// ofVolume makes a short call that answers with a volume.
func (d *Driver) ofVolume(ctx context.Context, r wire.Request) (driver.Volume, error) {
	if err := check("volume", r.Volume); err != nil {
		return driver.Volume{}, err
	}
	answer, err := d.call(ctx, r)
	if err != nil {
		return driver.Volume{}, err
	}
	return volumeOf(r.Pool, answer.Volume)
}

// CreateVolume makes an empty image.
func (d *Driver) CreateVolume(ctx context.Context, spec driver.VolumeSpec) (driver.Volume, error) {
	switch {
	case spec.Kind != driver.Block:
		return driver.Volume{}, fault.InvalidField("kind", "the pools of Ceph have volumes of the kind block").WithCode(
			"unsupported",
		)
	case spec.Size <= 0 || spec.Size > MaxSize:
		return driver.Volume{}, fault.InvalidField("size_bytes", "must be between 1 and %d", int64(MaxSize))
	}
	r := request(wire.CreateVolume, spec.Name)
	r.Size = spec.Size
	return d.ofVolume(ctx, r)
}

// Volume returns a volume.
func (d *Driver) Volume(ctx context.Context, n driver.Name) (driver.Volume, error) {
	return d.ofVolume(ctx, request(wire.Volume, n))
}

// ExpandVolume makes a volume larger.
func (d *Driver) ExpandVolume(ctx context.Context, n driver.Name, size int64) (driver.Volume, error) {
	if size <= 0 || size > MaxSize {
		return driver.Volume{}, fault.InvalidField("new_size_bytes", "must be between 1 and %d", int64(MaxSize))
	}
	r := request(wire.ExpandVolume, n)
	r.Size = size
	return d.ofVolume(ctx, r)
}

// DeleteVolume removes a volume, unless clients have it open. It is gone at once; its content goes
// afterwards, and what only snapshots and clones need stays for them.
func (d *Driver) DeleteVolume(ctx context.Context, n driver.Name) error {
	return d.remove(ctx, request(wire.DeleteVolume, n))
}

// DiscardVolume moves a volume to Ceph's trash, unless clients have it open.
func (d *Driver) DiscardVolume(ctx context.Context, n driver.Name, keep time.Duration) error {
	if err := check("volume", n.Native); err != nil {
		return err
	}
	r := request(wire.Discard, n)
	r.Keep = int64(keep / time.Second)
	_, err := d.call(ctx, r)
	return err
}

// UndeleteVolume brings a volume back out of Ceph's trash.
func (d *Driver) UndeleteVolume(ctx context.Context, n driver.Name) (driver.Volume, error) {
	return d.ofVolume(ctx, request(wire.Undelete, n))
}

// ReplaceVolume puts a volume in the place of another one, unless clients have that open. It takes as long as the other
// one is large.
func (d *Driver) ReplaceVolume(ctx context.Context, n, by driver.Name) error {
	if err := errors.Join(check("volume", n.Native), check("volume", by.Native)); err != nil {
		return err
	}
	r := request(wire.Replace, n)
	r.By = by.Native
	_, err := d.work(ctx, r, nil)
	return err
}

// remove makes a call that deletes something, and removes what it leaves over.
func (d *Driver) remove(ctx context.Context, r wire.Request) error {
	if !driver.IsMade(r.Volume) && !driver.IsMade(r.Snapshot) {
		return nil
	}
	answer, err := d.call(ctx, r)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil || answer.Leftover == "" {
		return err
	}
	_, err = d.work(ctx, wire.Request{Op: wire.Collect, Pool: r.Pool, Volume: answer.Leftover}, nil)
	return err
}

// ofSnapshot makes a short call that answers with a snapshot.
func (d *Driver) ofSnapshot(ctx context.Context, r wire.Request) (driver.Snapshot, error) {
	if err := check("snapshot", r.Snapshot); err != nil {
		return driver.Snapshot{}, err
	}
	answer, err := d.call(ctx, r)
	if err != nil {
		return driver.Snapshot{}, err
	}
	if answer.Snapshot == nil {
		return driver.Snapshot{}, fault.New(fault.Unavailable, "the helper's answer lacks the snapshot")
	}
	s := answer.Snapshot
	return driver.Snapshot{
		Name: driver.Name{Pool: r.Pool, Native: s.Name}, Source: s.Source, Kind: driver.Block, Size: s.Size, Used: -1,
		Consistency: driver.CrashConsistent, CreatedAt: s.CreatedAt, ID: s.ID,
	}, nil
}

// CreateSnapshot makes a snapshot of a volume.
func (d *Driver) CreateSnapshot(
	ctx context.Context, of, name driver.Name, progress func(float64),
) (driver.Snapshot, error) {
	if err := check("volume", of.Native); err != nil {
		return driver.Snapshot{}, err
	}
	s, err := d.ofSnapshot(ctx, requestOf(wire.CreateSnapshot, of, name))
	if err == nil {
		progress(1)
	}
	return s, err
}

// Snapshot returns a snapshot.
func (d *Driver) Snapshot(ctx context.Context, n driver.Name) (driver.Snapshot, error) {
	return d.ofSnapshot(ctx, wire.Request{Op: wire.Snapshot, Pool: n.Pool, Snapshot: n.Native})
}

// DeleteSnapshot removes a snapshot. Its data stays as long as clones share it.
func (d *Driver) DeleteSnapshot(ctx context.Context, n driver.Name) error {
	return d.remove(ctx, wire.Request{Op: wire.DeleteSnapshot, Pool: n.Pool, Snapshot: n.Native})
}

// CloneSnapshot makes a volume that shares the data of a snapshot.
func (d *Driver) CloneSnapshot(
	ctx context.Context, of driver.Name, spec driver.VolumeSpec, progress func(float64),
) (driver.Volume, error) {
	switch {
	case spec.Size > MaxSize:
		return driver.Volume{}, fault.InvalidField("size_bytes", "must be at most %d", int64(MaxSize))
	case of.Pool != spec.Pool:
		return driver.Volume{}, fault.InvalidField("pool", "a clone is in the pool of its snapshot").WithCode("unsupported")
	}
	if err := check("snapshot", of.Native); err != nil {
		return driver.Volume{}, err
	}
	r := requestOf(wire.CloneSnapshot, spec.Name, of)
	r.Size = spec.Size
	v, err := d.ofVolume(ctx, r)
	if err == nil {
		progress(1)
	}
	return v, err
}

// maxLeftovers is how many images EachVolume removes at its end.
const maxLeftovers = 1000

// EachVolume calls do with the images of all pools for RBD, page by page. At its end it removes what
// deletions that were broken off have left, if nothing needs it.
func (d *Driver) EachVolume(ctx context.Context, do func(driver.Volume) error) error {
	pools, err := d.pools(ctx)
	if err != nil {
		return err
	}
	var leftovers []driver.Name
	for _, pool := range pools {
		if pool.kind() != driver.PoolRBD || pool.Type == erasureCoded {
			continue // pools with erasure codes have only the content of images
		}
		if leftovers, err = d.eachOf(ctx, pool.Name, do, leftovers); err != nil {
			return err
		}
	}
	for _, n := range leftovers {
		if _, err := d.work(ctx, wire.Request{Op: wire.Collect, Pool: n.Pool, Volume: n.Native}, nil); err != nil {
			d.cfg.Log.Warn("what a deletion has left is still there", "volume", n.Native, "error", err)
		}
	}
	return nil
}

func (d *Driver) eachOf(
	ctx context.Context, pool string, do func(driver.Volume) error, leftovers []driver.Name,
) ([]driver.Name, error) {
	for after := ""; ; {
		page, err := d.call(ctx, wire.Request{Op: wire.Page, Pool: pool, After: after})
		if fault.Is(err, fault.NotFound) {
			return leftovers, nil // the pool was deleted meanwhile
		}
		if err != nil {
			return leftovers, err
		}
		for _, i := range page.Images {
			switch i.State {
			case wire.Building:
				continue
			case wire.Deleted:
				if i.Snapshots == 0 && len(leftovers) < maxLeftovers {
					leftovers = append(leftovers, driver.Name{Pool: pool, Native: i.Name})
				}
				continue
			}
			v, err := volumeOf(pool, &i)
			if err != nil {
				return leftovers, err
			}
			if err := do(v); err != nil {
				return leftovers, err
			}
		}
		if page.Next == "" {
			return leftovers, nil
		}
		if page.Next <= after {
			return leftovers, fault.New(fault.Unavailable, "the helper lists images out of order")
		}
		after = page.Next
	}
}
