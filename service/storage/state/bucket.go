package state

import "github.com/mainstay-infra/mainstay/kit/fault"

// Bucket is the state of a bucket.
//
//	(none) ── create ──► pending ──► bound ── delete ──► deleting ──► (none)
//	                        │ failed                        │ failed
//	                        └──────────────► error ◄────────┘
//
// Of error, create tries again if the bucket was never bound, and delete always does.
type Bucket string

// The states of buckets.
const (
	BucketPending  Bucket = "pending"
	BucketBound    Bucket = "bound"
	BucketDeleting Bucket = "deleting"
	BucketFailed   Bucket = "error"
)

// AtRest reports whether no job changes a bucket in this state.
func (b Bucket) AtRest() bool { return b == BucketBound || b == BucketFailed }

// Usable returns a fault of kind Conflict unless a bucket in this state can be used.
func (b Bucket) Usable() error {
	if b == BucketBound {
		return nil
	}
	return fault.New(fault.Conflict, "the bucket is %s, not %s", b, BucketBound)
}
