package driver

import (
	"context"
	"time"
)

// MirrorScope is what of a pool is mirrored.
type MirrorScope string

// The scopes.
const (
	MirrorImages   MirrorScope = "image" // those that are chosen one by one
	MirrorAll      MirrorScope = "pool"  // all that have a journal
	MirrorDisabled MirrorScope = "disabled"
)

// MirrorMode is how changes get to the other site.
type MirrorMode string

// The modes.
const (
	BySnapshots MirrorMode = "snapshot" // what has changed, when SendChanges is called
	ByJournal   MirrorMode = "journal"  // each write
)

// Mirror is a volume that is mirrored, as one site has it.
type Mirror struct {
	Shown    string // the name that users of the storage system see, the same at all sites
	GlobalID string // the same at all sites
	Mode     MirrorMode
	Enabled  bool   // mirroring is neither begun nor ended
	Primary  bool   // it is written to at this site
	InUse    string // who has it open where it is primary, in words for people; empty: nobody; only of Mirror
	Sites    []MirrorSite
	Copies   []MirrorCopy // oldest first; only of Mirror
}

// MirrorSite is what the daemon of a site says about its copy of a volume. It says it again every half minute.
type MirrorSite struct {
	Here        bool // it is this site
	Name        string
	Up          bool // the daemon runs
	State       string
	Description string
	UpdatedAt   time.Time // zero: never
}

// MirrorCopy is a volume as it was, for the other site or from there.
type MirrorCopy struct {
	ID       uint64
	Of       uint64 // what it is a copy of at the primary site; 0: it was taken at this site
	Demoted  bool   // nobody wrote to the volume after it, at the site where it was taken
	Complete bool
	At       time.Time // by the clock of this site
}

// Digest is what reading a volume has given.
type Digest struct {
	Sum  string // SHA-256 of what is not zeros, in hex
	Read int64  // bytes
}

// Mirrors is implemented by drivers whose block volumes can be mirrored to another storage system of the kind. A copy
// has the native name, the chosen one and the pool of its original.
type Mirrors interface {
	// MirrorScope returns what of a pool is mirrored, and SetMirrorScope changes that.
	MirrorScope(ctx context.Context, pool string) (MirrorScope, error)
	SetMirrorScope(ctx context.Context, pool string, scope MirrorScope) error
	// AddMirrorPeer makes another storage system a peer of a pool, by a token that it has given out. With oneWay, volumes
	// are only copied from there. A peer stays as it is.
	AddMirrorPeer(ctx context.Context, pool, token string, oneWay bool) error
	// EnableMirror has a volume copied to the peers of its pool. DisableMirror removes its copies.
	EnableMirror(ctx context.Context, name Name, mode MirrorMode) error
	DisableMirror(ctx context.Context, name Name) error
	// SendChanges has the copies become what the volumes are now. sent is told how that ended for each of them, by one
	// caller at a time.
	SendChanges(ctx context.Context, names []Name, sent func(Name, error)) error
	// Promote makes a volume the one that is written to. Without force, it is a fault of kind Conflict unless its peer was
	// demoted, and the copy has that. To promote what is primary succeeds.
	Promote(ctx context.Context, name Name, force bool) error
	// Demote makes a volume a copy. Without force, clients that have it open are a fault of kind Conflict. To demote what
	// is not primary succeeds.
	Demote(ctx context.Context, name Name, force bool) error
	// Resync throws away the content of a volume and copies it again from its peer. Clones of it are a fault of kind
	// Conflict.
	Resync(ctx context.Context, name Name) error
	// Mirror returns how a volume is mirrored, or a fault of kind NotFound.
	Mirror(ctx context.Context, name Name) (Mirror, error)
	// EachMirror calls do with the mirrored volumes of a pool, without their copies.
	EachMirror(ctx context.Context, pool string, do func(Mirror) error) error
	// ReadMirror reads a snapshot of a volume that the gateway took. With clone, a native name of a volume, it is read
	// through a clone, which goes again. Without a snapshot, what is read is the newest complete copy.
	ReadMirror(ctx context.Context, name Name, snapshot, clone string, progress func(float64)) (Digest, error)
}
