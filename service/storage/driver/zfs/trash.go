package zfs

import (
	"context"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// keptPath returns the name, below the base, that a volume has in the trash.
func keptPath(n driver.Name) string {
	return keptName + strings.TrimPrefix(n.Native, driver.VolumeName(""))
}

// kept returns a volume in the trash, or a fault of kind NotFound.
func (d *Driver) kept(ctx context.Context, n driver.Name) (found, error) {
	if err := d.checkVolume(n); err != nil {
		return found{}, err
	}
	v, there, err := d.look(ctx, keptPath(n))
	if err == nil && (!there || v.mark != n.Native) {
		err = errNone("volume", n.Native)
	}
	return v, err
}

// DiscardVolume renames a volume. Nothing else removes it then.
func (d *Driver) DiscardVolume(ctx context.Context, n driver.Name, _ time.Duration) error {
	v, err := d.own(ctx, n)
	if fault.Is(err, fault.NotFound) {
		_, err = d.kept(ctx, n) // an earlier attempt has done this
		return err
	}
	if err != nil {
		return err
	}
	return d.hide(ctx, &v, keptPath(n))
}

// UndeleteVolume renames a volume back, and has its files be where they were.
func (d *Driver) UndeleteVolume(ctx context.Context, n driver.Name) (driver.Volume, error) {
	v, err := d.own(ctx, n)
	if fault.Is(err, fault.NotFound) {
		if v, err = d.kept(ctx, n); err != nil {
			return driver.Volume{}, err
		}
		if err := d.run(ctx, "zfs", "rename", d.path(v.name), d.path(n.Native)); err != nil {
			return driver.Volume{}, told(err)
		}
	}
	if err != nil {
		return driver.Volume{}, err
	}
	if v.Kind == driver.Filesystem {
		if err := d.run(ctx, "zfs", "set", "canmount=on", d.path(n.Native)); err != nil {
			return driver.Volume{}, told(err)
		}
	}
	if v, err = d.own(ctx, n); err != nil {
		return driver.Volume{}, err
	}
	return v.Volume, d.mount(ctx, &v)
}
