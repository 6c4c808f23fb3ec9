package driver

import "context"

// OSDChange is what is changed about an OSD.
type OSDChange struct {
	// In says whether it holds data. Without it, its data is moved to the others. Nil: that stays.
	In *bool
	// Weight is the part of its share of the data that it holds, from 0 to 1. Nil: that stays.
	Weight *float64
}

// OSDs is implemented by drivers of storage systems whose OSDs can be changed.
type OSDs interface {
	// ChangeOSD changes an OSD. It returns as soon as the storage system has begun to move data. There being no such
	// OSD is a fault of kind NotFound. A change that was made already changes nothing.
	ChangeOSD(ctx context.Context, number int, c OSDChange) error
}
