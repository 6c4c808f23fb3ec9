// Package wire is what the driver of Ceph and its helper program say to each other over the helper's
// standard input and output: frames of JSON, each after its length in four bytes. Behind the JSON, a frame may have
// content of images, whose length the JSON tells.
//
//	driver                helper
//	Hello            ->
//	                 <-   Welcome, or an error in it
//	Request, ...     ->
//	                 <-   Response, ..., in any order; before some, responses with their progress
//	end of input     ->   the helper ends
//
// Neither side trusts the lengths that the other sends: a frame has at most MaxFrame bytes.
//
// It imports nothing of the service.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// MaxFrame is the most bytes of a frame.
const MaxFrame = 8 << 20

// PageSize is the most images of a page.
const PageSize = 100

// Secret is text that is not shown in logs and errors.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(secret)"
}

// GoString hides the secret.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Connection says which cluster to connect to: by its monitors and a key, or by files of this host.
type Connection struct {
	MonHosts []string `json:"mon_hosts,omitempty"`
	User     string   `json:"user"` // without "client."
	Key      Secret   `json:"key,omitempty"`
	ConfFile string   `json:"conf_file,omitempty"` // path of a ceph.conf
	Keyring  string   `json:"keyring,omitempty"`   // path; empty: as ConfFile says
}

// Hello is the first message to a helper.
type Hello struct {
	Connection
	FSID string `json:"fsid,omitempty"` // the cluster must be this one
	// Connect, Monitor and OSD bound what librados waits for. OSD may be zero: then it waits for ever.
	Connect time.Duration `json:"connect"`
	Monitor time.Duration `json:"monitor"`
	OSD     time.Duration `json:"osd"`
}

// Welcome is the first message of a helper.
type Welcome struct {
	Error *Error `json:"error,omitempty"`
	FSID  string `json:"fsid"`
	// Address is what the cluster knows the helper by, and can shut it out by.
	Address string `json:"address"`
}

// Op is what a helper is asked to do.
type Op string

// The requests.
const (
	Ask            Op = "ask"           // monitor commands that only read, into Answers
	Fence          Op = "fence"         // shut a client's Address out
	ChangeOSD      Op = "osd"           // In or Weight of OSD
	Page           Op = "page"          // images of Pool after After, into Images and Next
	Volume         Op = "volume"        // into Volume
	CreateVolume   Op = "create"        // an image of Size, into Volume
	ExpandVolume   Op = "expand"        // to Size, into Volume
	DeleteVolume   Op = "delete"        // marks it as deleted; Collect does the rest
	Collect        Op = "collect"       // removes what nothing needs of a volume that is marked as deleted
	Discard        Op = "discard"       // Volume goes to the trash, and Ceph's tools keep it for Keep seconds
	Undelete       Op = "undelete"      // out of the trash, into Volume
	Replace        Op = "replace"       // Volume by the volume By, which it becomes
	CreateSnapshot Op = "snap"          // Snapshot of Volume, into Snapshot
	Snapshot       Op = "snapshot"      // into Snapshot
	DeleteSnapshot Op = "snap-rm"       // into Leftover the volume to collect, if there is one
	CloneSnapshot  Op = "clone"         // Volume of Size from Snapshot, into Volume
	ListSnapshots  Op = "snaps"         // of Volume, into Snapshots
	Limit          Op = "limit"         // IOPS and BPS of Volume
	Flatten        Op = "flatten"       // Volume
	Shrink         Op = "shrink"        // Volume to Size, into Volume
	Revert         Op = "revert"        // Volume to Snapshot
	Move           Op = "move"          // Volume and Snapshots to the pool To
	MoveBack       Op = "unmove"        // takes back what Move has begun
	Used           Op = "used"          // of the images of Pool after After, into Images and Next
	Extents        Op = "extents"       // of Size bytes from Offset in Snapshot, that Since lacks if it is given, into Extents
	Read           Op = "read"          // Size bytes from Offset in Snapshot, into the content
	Refill         Op = "refill"        // begins Volume of Size, which is not there before Refilled; what others began is gone
	Write          Op = "write"         // the content, to Offset in what Refill has begun
	Refilled       Op = "refilled"      // into Volume
	Unfilled       Op = "unfilled"      // closes what Refill has begun; it is not complete
	GroupSnap      Op = "group-snap"    // Snapshot of Group, which consists of Members
	GroupLook      Op = "group-look"    // into Found, whether Group has Snapshot
	GroupSnapRm    Op = "group-snap-rm" // Snapshot of Group
	GroupRevert    Op = "group-revert"  // Members of Group to Snapshot
	GroupRm        Op = "group-rm"      // Group; its images stay
	MirrorPool     Op = "mirror-pool"   // what of Pool is mirrored, into Scope, which it becomes if it is given
	MirrorPeer     Op = "mirror-peer"   // Pool has the cluster of Token as its peer
	MirrorOn       Op = "mirror-on"     // Volume is mirrored, by Mode
	MirrorOff      Op = "mirror-off"    // Volume is not mirrored any more
	MirrorLook     Op = "mirror-look"   // Volume, into Mirrors with their snapshots
	MirrorPage     Op = "mirror-page"   // those of Pool after After, into Mirrors and Next
	MirrorSnap     Op = "mirror-snap"   // what Volume has now goes to its peers
	Promote        Op = "promote"       // Volume; Force: whatever its peer is
	Demote         Op = "demote"        // Volume; Force: also if clients have it open
	Resync         Op = "resync"        // Volume is copied again from its peer
	Digest         Op = "digest"        // of Snap of Volume, read through a clone To; without Snap, of its newest copy
)

// Request asks a helper for something.
type Request struct {
	ID       uint64 `json:"id"`
	Op       Op     `json:"op"`
	Pool     string `json:"pool,omitempty"`
	Volume   string `json:"volume,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	// Image is the name of Volume for users of the cluster, if they have chosen it, and Snap that of Snapshot.
	Image    string   `json:"image,omitempty"`
	Snap     string   `json:"snap,omitempty"`
	Size     int64    `json:"size,omitempty"` // bytes
	After    string   `json:"after,omitempty"`
	Address  string   `json:"address,omitempty"`
	Commands []string `json:"commands,omitempty"`
	OSD      int      `json:"osd,omitempty"` // number
	In       *bool    `json:"in,omitempty"`
	Weight   *float64 `json:"weight,omitempty"`
	IOPS     *int64   `json:"iops,omitempty"`
	BPS      *int64   `json:"bps,omitempty"`
	To       string   `json:"to,omitempty"`
	Since    string   `json:"since,omitempty"`  // a snapshot
	Offset   int64    `json:"offset,omitempty"` // bytes
	Length   int      `json:"length,omitempty"` // of Data
	Keep     int64    `json:"keep,omitempty"`   // seconds
	By       string   `json:"by,omitempty"`     // native name of a volume
	Complete bool     `json:"complete,omitempty"`
	Data     []byte   `json:"-"`
	// Snapshots has the names of snapshots by those that users have chosen; of the others both are the same.
	Snapshots map[string]string `json:"snapshots,omitempty"`
	// Group is a native name, and Members are its volumes.
	Group   string   `json:"group,omitempty"`
	Members []Member `json:"members,omitempty"`
	// Of requests about mirrors:
	Scope  string   `json:"scope,omitempty"`   // image, pool or disabled
	Mode   string   `json:"mode,omitempty"`    // snapshot or journal
	Peer   string   `json:"peer,omitempty"`    // the fsid of the cluster that Token is of
	Token  Secret   `json:"token,omitempty"`   // as "rbd mirror pool peer bootstrap create" makes it
	OneWay bool     `json:"one_way,omitempty"` // images are only copied from the peer
	Ours   []string `json:"ours,omitempty"`    // addresses of clients that are helpers of the same gateway
	Force  bool     `json:"force,omitempty"`
}

// Member is a volume of a group.
type Member struct {
	Pool   string `json:"pool"`
	Volume string `json:"volume"`
	Image  string `json:"image,omitempty"` // as in Request
}

// Response answers a request.
type Response struct {
	ID       uint64 `json:"id"`
	Error    *Error `json:"error,omitempty"`
	Volume   *Image `json:"volume,omitempty"`
	Snapshot *Snap  `json:"snapshot,omitempty"`
	// Progress is the part that is done, from 0 to 1. A response with it is not the last one.
	Progress  *float64                   `json:"progress,omitempty"`
	Snapshots []Snap                     `json:"snapshots,omitempty"`
	Images    []Image                    `json:"images,omitempty"`
	Next      string                     `json:"next,omitempty"` // After of the next page; empty: that was the last one
	Leftover  string                     `json:"leftover,omitempty"`
	Answers   map[string]json.RawMessage `json:"answers,omitempty"`
	Found     bool                       `json:"found,omitempty"`
	Mirrors   []Mirror                   `json:"mirrors,omitempty"`
	Scope     string                     `json:"scope,omitempty"`
	Digest    string                     `json:"digest,omitempty"` // SHA-256 of what is not zeros, in hex
	Read      int64                      `json:"read,omitempty"`   // bytes
	Extents   []Extent                   `json:"extents,omitempty"`
	Length    int                        `json:"length,omitempty"` // of Data
	Data      []byte                     `json:"-"`
}

// Extent is a part of an image that may hold something else than zeros, or than the snapshot that it is compared with.
type Extent struct {
	Offset int64 `json:"o"` // bytes
	Length int64 `json:"l"`
}

// Mirror is an image that is mirrored, at one site.
type Mirror struct {
	Image     string       `json:"image"`
	GlobalID  string       `json:"global_id"` // the same at all sites
	Mode      string       `json:"mode"`      // snapshot or journal
	Enabled   bool         `json:"enabled"`   // it is neither begun nor ended
	Primary   bool         `json:"primary"`
	InUse     string       `json:"in_use,omitempty"` // by whom, of MirrorLook where it is primary; empty: by nobody
	Sites     []Site       `json:"sites,omitempty"`
	Snapshots []MirrorCopy `json:"snapshots,omitempty"` // oldest first; only of MirrorLook
}

// Site is what the daemon of a site says about its copy of an image.
type Site struct {
	Peer        string    `json:"peer,omitempty"` // empty: this site
	Up          bool      `json:"up"`
	State       string    `json:"state"`
	Description string    `json:"description"`
	UpdatedAt   time.Time `json:"updated_at,omitzero"`
}

// MirrorCopy is a snapshot by which an image is mirrored.
type MirrorCopy struct {
	ID       uint64    `json:"id"`
	Of       uint64    `json:"of,omitempty"` // the snapshot at the primary site that it is a copy of
	Demoted  bool      `json:"demoted,omitempty"`
	Complete bool      `json:"complete"`
	At       time.Time `json:"at"` // by the clock of this site
}

// State is how far an image of the gateway is.
type State string

// The states.
const (
	Foreign  State = ""         // it is not the gateway's: it has neither a name nor a mark of its
	Building State = "building" // it is not complete, and not there for callers
	Ready    State = "ready"
	Deleted  State = "deleted" // only its snapshots, or clones of them, are still there
	Damaged  State = "damaged" // it cannot be opened
)

// Image is an RBD image.
type Image struct {
	Name      string    `json:"name"`
	Size      int64     `json:"size"` // bytes
	State     State     `json:"state,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	Snapshots int       `json:"snapshots,omitempty"` // also those that only clones need
	Parent    string    `json:"parent,omitempty"`    // of one that is Deleted: what it was cloned from
	Volume    string    `json:"volume,omitempty"`    // of one that has a chosen name: the name of the volume that it is
	Clone     bool      `json:"clone,omitempty"`
	Of        string    `json:"of,omitempty"` // of a clone: POOL/IMAGE@SNAP
	IOPS      int64     `json:"iops,omitempty"`
	BPS       int64     `json:"bps,omitempty"`
	Used      int64     `json:"used,omitempty"` // bytes, in answers to Used
}

// Snap is a snapshot of an RBD image.
type Snap struct {
	Name      string    `json:"name"`
	ID        string    `json:"id"`     // never that of another snapshot
	Source    string    `json:"source"` // its image
	Size      int64     `json:"size"`   // bytes
	Protected bool      `json:"protected,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
}

// Reason says why a request failed.
type Reason string

// The reasons.
const (
	NotFound Reason = "not_found"
	Invalid  Reason = "invalid"
	Conflict Reason = "conflict"
	Silent   Reason = "silent"  // the cluster did not answer in time
	Refused  Reason = "refused" // the cluster does not accept the key, or the key does not suffice
	Another  Reason = "another" // it is another cluster
	Full     Reason = "full"
	Failed   Reason = "failed"
)

// Error is why a request failed.
type Error struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"` // for callers
	Cause   string `json:"cause,omitempty"`
}

// Error returns the message and the cause.
func (e *Error) Error() string {
	if e.Cause == "" {
		return e.Message
	}
	return e.Message + ": " + e.Cause
}

// carrier is a message that may have content.
type carrier interface {
	content() *[]byte
	length() *int
}

func (r *Request) content() *[]byte  { return &r.Data }
func (r *Request) length() *int      { return &r.Length }
func (r *Response) content() *[]byte { return &r.Data }
func (r *Response) length() *int     { return &r.Length }

// Send writes a frame. v is a pointer to a message.
func Send(w io.Writer, v any) error {
	var content []byte
	if c, ok := v.(carrier); ok {
		content = *c.content()
		*c.length() = len(content)
	}
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > MaxFrame || len(content) > MaxFrame {
		return fmt.Errorf("a frame of %d bytes with %d of content is longer than %d", len(body), len(content), MaxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	if _, err := w.Write(append(frame, body...)); err != nil || len(content) == 0 {
		return err
	}
	_, err = w.Write(content)
	return err
}

// Receive reads a frame into v, a pointer to a message. At the end of r, it returns io.EOF.
func Receive(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxFrame {
		return fmt.Errorf("a frame of %d bytes is longer than %d", n, MaxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("a frame is cut off: %w", err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return err
	}
	c, ok := v.(carrier)
	if !ok || *c.length() == 0 {
		return nil
	}
	if length := *c.length(); length < 0 || length > MaxFrame {
		return fmt.Errorf("content of %d bytes is longer than %d", length, MaxFrame)
	}
	*c.content() = make([]byte, *c.length())
	if _, err := io.ReadFull(r, *c.content()); err != nil {
		return fmt.Errorf("the content of a frame is cut off: %w", err)
	}
	return nil
}
