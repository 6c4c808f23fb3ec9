//go:build linux

package ceph

import (
	"context"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// groupRequest returns a request about a group.
func groupRequest(op wire.Op, group driver.Name, volumes []driver.Name, snapshot string) wire.Request {
	r := wire.Request{Op: op, Pool: group.Pool, Group: group.Native, Snapshot: snapshot}
	for _, v := range volumes {
		r.Members = append(r.Members, wire.Member{Pool: v.Pool, Volume: v.Native, Image: v.Chosen})
	}
	return r
}

// SnapshotGroup takes a snapshot of all images of a group. Their clients are asked to pause their writes, which may
// take longer than short calls do.
func (d *Driver) SnapshotGroup(
	ctx context.Context, group driver.Name, volumes []driver.Name, snapshot string,
) error {
	_, err := d.work(ctx, groupRequest(wire.GroupSnap, group, volumes, snapshot), nil)
	return err
}

// HasGroupSnapshot reports whether a group has a complete snapshot of a name.
func (d *Driver) HasGroupSnapshot(ctx context.Context, group driver.Name, snapshot string) (bool, error) {
	answer, err := d.call(ctx, groupRequest(wire.GroupLook, group, nil, snapshot))
	return answer.Found, err
}

// DeleteGroupSnapshot removes a snapshot of a group.
func (d *Driver) DeleteGroupSnapshot(ctx context.Context, group driver.Name, snapshot string) error {
	_, err := d.work(ctx, groupRequest(wire.GroupSnapRm, group, nil, snapshot), nil)
	return err
}

// RevertGroup puts the images of a group back to a snapshot.
func (d *Driver) RevertGroup(
	ctx context.Context, group driver.Name, volumes []driver.Name, snapshot string, progress func(float64),
) error {
	_, err := d.work(ctx, groupRequest(wire.GroupRevert, group, volumes, snapshot), progress)
	return err
}

// RemoveGroup dissolves a group.
func (d *Driver) RemoveGroup(ctx context.Context, group driver.Name) error {
	_, err := d.call(ctx, groupRequest(wire.GroupRm, group, nil, ""))
	return err
}
