package driver

import (
	"context"
	"regexp"
	"time"
)

// Kind is what a volume is to its users.
type Kind string

// The kinds of volumes.
const (
	Block      Kind = "block"
	Filesystem Kind = "filesystem"
	Object     Kind = "object"
)

// Name identifies a volume, or a snapshot, in its storage system.
type Name struct {
	Pool   string
	Native string
	// Chosen is the name that users of the storage system see, if they have chosen it. Empty: they see Native. Only
	// drivers that implement Images know it.
	Chosen string
	// Complete says to DeleteVolume that the volume was complete once: what is not complete under its name is somebody
	// else's, and not what an attempt to make it has left.
	Complete bool
}

// made matches the native names of volumes, snapshots and groups that gateways make.
var made = regexp.MustCompile(`^(vol|snap|grp)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// VolumeName returns the native name of the volume with an id of the gateway.
func VolumeName(id string) string { return "vol-" + id }

// SnapshotName returns the native name of the snapshot with an id of the gateway.
func SnapshotName(id string) string { return "snap-" + id }

// IsMade reports whether a native name is one that gateways choose.
func IsMade(native string) bool { return made.MatchString(native) }

// Volume is a volume as the storage system has it.
type Volume struct {
	Name
	Kind Kind
	Size int64 // bytes; of a folder without a limit, what was asked for
	Used int64 // bytes; negative: not known
	// Enforced tells whether the storage system keeps the volume within its size.
	Enforced bool
	// Foreign: the gateway did not make it.
	Foreign bool
	// Damaged: the storage system has it, but cannot tell more about it than its name.
	Damaged bool
	// Parent is the snapshot that it shares data with, as users of the storage system name it. Empty: none.
	Parent    string
	Limits    Limits
	CreatedAt time.Time // zero: not known
}

// Limits are what the clients of a volume may read and write together. Zero is no limit.
type Limits struct {
	IOPS int64 // requests per second
	BPS  int64 // bytes per second
}

// VolumeSpec describes a volume to make.
type VolumeSpec struct {
	Name
	Kind Kind
	Size int64 // bytes, positive
}

// Volumes is implemented by drivers that make volumes.
type Volumes interface {
	// CreateVolume makes an empty volume. If there is one of that name, it is returned as it is.
	CreateVolume(ctx context.Context, spec VolumeSpec) (Volume, error)
	// Volume returns a volume, or a fault of kind NotFound.
	Volume(ctx context.Context, name Name) (Volume, error)
	// ExpandVolume makes a volume as large as size, in bytes, unless it is larger already.
	ExpandVolume(ctx context.Context, name Name, size int64) (Volume, error)
	// DeleteVolume removes a volume and its content, also one in the trash. Snapshots of it stay.
	DeleteVolume(ctx context.Context, name Name) error
}

// Replacer is implemented by drivers that can put one volume in the place of another one.
type Replacer interface {
	// ReplaceVolume removes a volume, and gives its names to the volume by, which is of the same pool and was made under a
	// native name only. A volume that clients have open, or that clones or snapshots of others need, is a fault of kind
	// Conflict, and stays.
	ReplaceVolume(ctx context.Context, name, by Name) error
}

// Trash is implemented by drivers that can keep volumes which were deleted. A volume in the trash is not there for
// callers, and has no snapshots, but takes as much room as before.
type Trash interface {
	// DiscardVolume moves a volume to the trash. keep is how long the storage system should not let its own tools remove
	// it; it does not remove it by itself. A volume that clients have open is a fault of kind Conflict.
	DiscardVolume(ctx context.Context, name Name, keep time.Duration) error
	// UndeleteVolume brings a volume back out of the trash. One that is not there either is a fault of kind NotFound.
	// name may have another chosen name than before; if something has it already, that is a fault of kind Conflict.
	UndeleteVolume(ctx context.Context, name Name) (Volume, error)
}
