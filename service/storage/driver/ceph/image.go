//go:build linux

package ceph

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// ImageSnapshots returns the snapshots of an image, also those that the gateway did not make.
func (d *Driver) ImageSnapshots(ctx context.Context, of driver.Name) ([]driver.ImageSnapshot, error) {
	if err := check("volume", of.Native); err != nil {
		return nil, err
	}
	answer, err := d.call(ctx, request(wire.ListSnapshots, of))
	if err != nil {
		return nil, err
	}
	var all []driver.ImageSnapshot
	for _, s := range answer.Snapshots {
		all = append(all, driver.ImageSnapshot{
			Name: s.Name, Size: s.Size, Protected: s.Protected, CreatedAt: s.CreatedAt,
		})
	}
	return all, nil
}

// Limit limits what the clients of an image may read and write. librbd obeys, the kernel's client does not know of it.
func (d *Driver) Limit(ctx context.Context, n driver.Name, iops, bps *int64) error {
	if err := check("volume", n.Native); err != nil {
		return err
	}
	r := request(wire.Limit, n)
	r.IOPS, r.BPS = iops, bps
	_, err := d.call(ctx, r)
	return err
}

// longer does what takes long with a volume.
func (d *Driver) longer(ctx context.Context, r wire.Request, progress func(float64)) (wire.Response, error) {
	if err := check("volume", r.Volume); err != nil {
		return wire.Response{}, err
	}
	return d.work(ctx, r, progress)
}

// Flatten copies into an image what it shares with its parent.
func (d *Driver) Flatten(ctx context.Context, n driver.Name, progress func(float64)) error {
	_, err := d.longer(ctx, request(wire.Flatten, n), progress)
	return err
}

// Shrink makes an image smaller.
func (d *Driver) Shrink(
	ctx context.Context, n driver.Name, size int64, progress func(float64),
) (driver.Volume, error) {
	if size <= 0 {
		return driver.Volume{}, fault.InvalidField("size_bytes", "must be positive")
	}
	r := request(wire.Shrink, n)
	r.Size = size
	answer, err := d.longer(ctx, r, progress)
	if err != nil {
		return driver.Volume{}, err
	}
	return volumeOf(n.Pool, answer.Volume)
}

// Revert puts an image back to one of its snapshots.
func (d *Driver) Revert(ctx context.Context, volume, snapshot driver.Name) error {
	if err := check("snapshot", snapshot.Native); err != nil {
		return err
	}
	_, err := d.longer(ctx, requestOf(wire.Revert, volume, snapshot), nil)
	return err
}

// Move moves an image to another pool of the cluster. If that fails, the image goes back, if it still can.
func (d *Driver) Move(ctx context.Context, n driver.Name, snapshots []driver.Name, pool string) error {
	if n.Pool == pool {
		return nil
	}
	r := request(wire.Move, n)
	r.To, r.Snapshots = pool, map[string]string{}
	for _, s := range snapshots {
		r.Snapshots[s.Native] = s.Native
		if s.Chosen != "" {
			r.Snapshots[s.Native] = s.Chosen
		}
	}
	_, err := d.longer(ctx, r, nil)
	if err == nil {
		return nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), silentFor)
	defer cancel()
	r.Op = wire.MoveBack
	if _, again := d.longer(back, r, nil); again != nil {
		d.cfg.Log.Warn("a migration that has failed was not taken back", "volume", n.Native, "pool", pool, "error", again)
		return fault.Wrap(fault.From(err).Kind, err, "%s; the image is between the pools until it is moved again",
			fault.From(err).Message)
	}
	return err
}

// EachUsed tells what the images of a pool hold themselves.
func (d *Driver) EachUsed(ctx context.Context, pool string, do func(native string, used int64) error) error {
	return d.session(ctx, nil, func(ask func(wire.Request) (wire.Response, error)) error {
		for after := ""; ; {
			page, err := ask(wire.Request{Op: wire.Used, Pool: pool, After: after})
			if err != nil {
				return err
			}
			for _, i := range page.Images {
				v, err := volumeOf(pool, &i)
				if err == nil {
					err = do(v.Native, i.Used)
				}
				if err != nil {
					return err
				}
			}
			if page.Next <= after {
				return nil
			}
			after = page.Next
		}
	})
}
