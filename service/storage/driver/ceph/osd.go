//go:build linux

package ceph

import (
	"context"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// ChangeOSD changes an OSD.
func (d *Driver) ChangeOSD(ctx context.Context, number int, c driver.OSDChange) error {
	_, err := d.call(ctx, wire.Request{Op: wire.ChangeOSD, OSD: number, In: c.In, Weight: c.Weight})
	return err
}

var _ driver.OSDs = (*Driver)(nil)
