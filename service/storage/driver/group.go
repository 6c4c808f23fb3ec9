package driver

import "context"

// GroupName returns the native name of the group of volumes with an id of the gateway.
func GroupName(id string) string { return "grp-" + id }

// Groups is implemented by drivers that take snapshots of several block volumes at the same moment. A group is there in
// the storage system from its first snapshot until RemoveGroup. Its name is that of its first volume's pool.
type Groups interface {
	// SnapshotGroup takes a snapshot of a group of these volumes. If there is one of that name, nothing happens.
	SnapshotGroup(ctx context.Context, group Name, volumes []Name, snapshot string) error
	// HasGroupSnapshot reports whether a group has a complete snapshot of a name.
	HasGroupSnapshot(ctx context.Context, group Name, snapshot string) (bool, error)
	// DeleteGroupSnapshot removes a snapshot of a group.
	DeleteGroupSnapshot(ctx context.Context, group Name, snapshot string) error
	// RevertGroup puts these volumes, which are those of the group, back to a snapshot. What was written since is lost.
	// A volume that clients have open is a fault of kind Conflict. If it is broken off, the volumes are neither, until
	// RevertGroup is called again.
	RevertGroup(ctx context.Context, group Name, volumes []Name, snapshot string, progress func(float64)) error
	// RemoveGroup dissolves a group that has no snapshots. Its volumes stay.
	RemoveGroup(ctx context.Context, group Name) error
}
