package driver

import (
	"context"
	"io"
	"iter"
)

// Extent is a part of a volume, in bytes.
type Extent struct{ Offset, Length int64 }

// Content is what a snapshot of a block volume holds.
type Content interface {
	// ReaderAt may be used by several goroutines.
	io.ReaderAt
	Size() int64 // bytes
	// Compares reports whether the storage system can tell what differs between snapshots.
	Compares() bool
	// Extents are the parts that may hold something else than zeros, in order. With since, the native name of an older
	// snapshot of the same volume, they are those that may differ from it. If that cannot be told, it fails with a fault
	// of kind NotFound.
	Extents(ctx context.Context, since string) iter.Seq2[Extent, error]
}

// Copier is implemented by drivers whose block volumes can be copied to elsewhere, and made of such copies.
type Copier interface {
	// ReadSnapshot opens a snapshot of a block volume for do.
	ReadSnapshot(ctx context.Context, snapshot Name, do func(Content) error) error
	// FillVolume makes a block volume whose content fill writes. Where nothing is written, there are zeros. fill is not
	// called if the volume is there. If an earlier call is still under way, somewhere, it cannot write any more.
	FillVolume(ctx context.Context, spec VolumeSpec, fill func(io.WriterAt) error) (Volume, error)
}
