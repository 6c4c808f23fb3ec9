package driver

import (
	"context"
	"time"
)

// Consistency is what a snapshot is worth if its volume was written to meanwhile.
type Consistency string

// The consistencies.
const (
	// CrashConsistent: the volume at one moment, as after a loss of power.
	CrashConsistent Consistency = "crash"
	// NotConsistent: parts of the volume at different moments.
	NotConsistent Consistency = "none"
)

// Snapshot is a volume as it was.
type Snapshot struct {
	Name
	Source      string // native name of the volume
	Kind        Kind
	Size        int64 // bytes, of the volume
	Used        int64 // bytes; negative: not known
	Consistency Consistency
	CreatedAt   time.Time
	// ID is another one if the snapshot was replaced by one of the same name. Empty: that cannot happen, or is not known.
	ID string
}

// Snapshots is implemented by drivers that make snapshots.
type Snapshots interface {
	// CreateSnapshot makes a snapshot of a volume. If there is one of that name, it is returned as it
	// is. progress gets the part that is done, from 0 to 1.
	CreateSnapshot(ctx context.Context, of, name Name, progress func(float64)) (Snapshot, error)
	// Snapshot returns a snapshot, or a fault of kind NotFound.
	Snapshot(ctx context.Context, name Name) (Snapshot, error)
	// DeleteSnapshot removes a snapshot. Volumes that were cloned from it stay, and keep their content.
	DeleteSnapshot(ctx context.Context, name Name) error
}

// Cloner is implemented by drivers that make volumes of snapshots.
type Cloner interface {
	// CloneSnapshot makes a volume with the content of a snapshot. Its kind is that of the snapshot; its
	// size is at least that. If there is a volume of that name, it is returned as it is.
	CloneSnapshot(ctx context.Context, of Name, spec VolumeSpec, progress func(float64)) (Volume, error)
}
