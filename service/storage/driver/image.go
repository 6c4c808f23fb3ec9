package driver

import (
	"context"
	"time"
)

// ImageSnapshot is a snapshot of an image, whoever made it.
type ImageSnapshot struct {
	Name      string // as users of the storage system see it
	Size      int64  // bytes
	Protected bool   // the storage system does not let it be removed
	CreatedAt time.Time
}

// Images is implemented by drivers whose block volumes are images that users of the storage system work with, too.
// Volumes and snapshots may have names there that users choose: a volume that is made with a chosen name is there under
// its native name until it is complete, and gets the chosen one then, unless something has it already, which is a fault
// of kind Conflict. The native name stays what the gateway knows it by.
//
// progress gets the part that is done, from 0 to 1, if the storage system tells it.
type Images interface {
	// ImageSnapshots returns the snapshots of an image, oldest first.
	ImageSnapshots(ctx context.Context, of Name) ([]ImageSnapshot, error)
	// Flatten copies into an image what it shares with its parent. One without a parent stays as it is.
	Flatten(ctx context.Context, name Name, progress func(float64)) error
	// Limit limits what clients may read and write. What is nil stays.
	Limit(ctx context.Context, name Name, iops, bps *int64) error
	// Shrink makes an image smaller, which removes what lies beyond size, in bytes. An image that clients have open is a
	// fault of kind Conflict.
	Shrink(ctx context.Context, name Name, size int64, progress func(float64)) (Volume, error)
	// Move moves an image with these snapshots to another pool of the storage system. Its clients must have closed it.
	// If it fails, the image is where it was, or Move continues when it is called again.
	Move(ctx context.Context, name Name, snapshots []Name, pool string) error
	// EachUsed calls do with the native names of the images of a pool, and of foreign ones with their names, and the
	// bytes that they themselves hold, without their snapshots and parents.
	EachUsed(ctx context.Context, pool string, do func(native string, used int64) error) error
}

// Reverter is implemented by drivers that put volumes back to their snapshots.
type Reverter interface {
	// Revert puts a volume back to one of its snapshots. What was written since is lost. A volume that clients have open
	// is a fault of kind Conflict. If it is broken off, the volume is neither, until Revert is called again.
	Revert(ctx context.Context, volume, snapshot Name) error
}
