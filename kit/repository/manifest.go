package repository

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Info is what a caller says about a backup. The repository keeps it and does not interpret it, but
// for Tenant and ProtectedUntil.
type Info struct {
	Tenant      string          `json:"tenant"`
	Of          string          `json:"vm"` // what the backup is of, as the caller names it: a VM, a volume
	Name        string          `json:"name,omitempty"`
	Type        string          `json:"type"`        // full or incremental: what was read
	Consistency string          `json:"consistency"` // what was reached: crash, filesystem, memory, ...
	Taken       time.Time       `json:"taken"`       // the moment that the backup shows
	Config      json.RawMessage `json:"config,omitempty"`
	// ProtectedUntil is until when the backup cannot be deleted. Protect extends it.
	ProtectedUntil time.Time `json:"protected_until,omitzero"`
}

// Item is a disk, a configuration or a memory state in a backup.
type Item struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // in bytes
	// Read is how many bytes were read, New how many of them were not in the repository, and Stored
	// how many bytes these take there.
	Read   int64 `json:"read"`
	New    int64 `json:"new"`
	Stored int64 `json:"stored"`
	// Segments are the ids of the lists of blocks, one after the other.
	Segments []byte `json:"segments"`
}

// Backup is a finished backup.
type Backup struct {
	Info
	ID       ID        `json:"id"`
	Parent   *ID       `json:"parent,omitempty"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	Items    []Item    `json:"items"`
	// Sequence is one more than that of every backup that was there when this one was finished, and
	// Seen are these. A backup that was removed behind the repository's back is missed by that.
	Sequence uint64 `json:"sequence"`
	Seen     []ID   `json:"seen"`
	// Void says that this is not a backup: the writer with this id was given up, and cannot commit.
	Void bool `json:"void,omitempty"`

	place string
}

// Limits of what a manifest holds.
const (
	maxItems    = 256
	maxSegments = 1 << 20 // of an item
)

func (b *Backup) check(blockSize int) error {
	if b.Void {
		return nil
	}
	if len(b.Items) > maxItems {
		return damaged("it has %d items", len(b.Items))
	}
	for i := range b.Items {
		it := &b.Items[i]
		if it.Size < 0 || len(it.Segments)%len(blobID{}) != 0 ||
			int64(len(it.Segments)/len(blobID{})) != segmentsOf(it.Size, blockSize) {
			return damaged("the lists of its item %q do not fit its size", it.Name)
		}
	}
	return nil
}

// segmentsOf returns how many segments an item of a size has, or -1 if there are too many.
func segmentsOf(size int64, blockSize int) int64 {
	blocks := (size-1)/int64(blockSize) + 1
	if size == 0 {
		blocks = 0
	}
	if n := (blocks + segmentBlocks - 1) / segmentBlocks; n <= maxSegments {
		return n
	}
	return -1
}

func (it *Item) segment(i int64) blobID {
	return blobID(it.Segments[i*int64(len(blobID{})):])
}

// item returns an item by its name.
func (b *Backup) item(name string) (*Item, error) {
	for i := range b.Items {
		if b.Items[i].Name == name {
			return &b.Items[i], nil
		}
	}
	return nil, fault.New(fault.NotFound, "the backup has no item %q", name)
}

func (d *domain) backupName(id ID) string  { return "backups/" + d.place + "/" + id.String() }
func (d *domain) removedName(id ID) string { return "removed/" + d.place + "/" + id.String() }

// removal says that a backup was deleted. Without one, a manifest that is missing was lost.
type removal struct {
	At time.Time `json:"at"`
}

// history is what is known about the backups of a domain.
type history struct {
	backups  map[ID]*Backup // visible ones
	voids    map[ID]*Backup
	removed  map[ID]bool
	present  map[ID]bool // manifests that are in the store, whatever they are
	problems []Problem
	damaged  []ID // backups whose manifest is damaged
}

// history reads all manifests of a domain.
func (r *Repository) history(ctx context.Context, d *domain) (*history, error) {
	h := &history{
		backups: map[ID]*Backup{}, voids: map[ID]*Backup{}, removed: map[ID]bool{}, present: map[ID]bool{},
	}
	// Manifests are listed first: a removal that comes after hides one, and not the other way round.
	names, err := r.names(ctx, "backups/"+d.place+"/")
	if err != nil {
		return nil, err
	}
	removed, err := r.names(ctx, "removed/"+d.place+"/")
	if err != nil {
		return nil, err
	}
	for _, name := range removed {
		id, err := ParseID(name)
		if err == nil {
			err = getMeta(ctx, r, d.sealer, d.removedName(id), &removal{})
		}
		switch {
		case notExist(err):
		case isDamaged(err):
			h.problems = append(h.problems, Problem{"removed/" + d.place + "/" + name, "it is damaged: " + err.Error()})
		case err != nil:
			return nil, err
		default:
			h.removed[id] = true
		}
	}
	for _, name := range names {
		id, err := ParseID(name)
		if err != nil {
			h.problems = append(h.problems, Problem{"backups/" + d.place + "/" + name, "it does not have a name of a backup"})
			continue
		}
		h.present[id] = true
		if h.removed[id] {
			continue
		}
		b, err := r.manifest(ctx, d, id)
		switch {
		case notExist(err): // deleted since
		case isDamaged(err):
			h.damaged = append(h.damaged, id)
			h.problems = append(h.problems, Problem{d.backupName(id), "it is damaged: " + err.Error()})
		case err != nil:
			return nil, err
		case b.Void:
			h.voids[id] = b
		default:
			h.backups[id] = b
		}
	}
	return h, nil
}

// manifest reads one manifest, whether the backup was removed or not.
func (r *Repository) manifest(ctx context.Context, d *domain, id ID) (*Backup, error) {
	b := &Backup{}
	if err := getMeta(ctx, r, d.sealer, d.backupName(id), b); err != nil {
		return nil, err
	}
	if b.ID != id {
		return nil, damaged("it has another id")
	}
	b.place = d.place
	return b, b.check(r.config.BlockSize)
}

// missing returns what other backups have seen, and what is neither there nor was deleted.
func (h *history) missing() []ID {
	lost := map[ID]bool{}
	for _, b := range h.backups {
		for _, id := range b.Seen {
			if !h.present[id] && !h.removed[id] {
				lost[id] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(lost), func(a, b ID) int { return strings.Compare(a.String(), b.String()) })
}

// List returns the backups of a tenant, oldest first, and what is wrong with others.
func (r *Repository) List(ctx context.Context, tenant string) ([]*Backup, []Problem, error) {
	return r.list(ctx, r.domainAt(r.place(tenant)))
}

// ListAll returns the backups of all tenants. A new installation that has only the repository and its
// key learns by that what there is.
func (r *Repository) ListAll(ctx context.Context) (backups []*Backup, problems []Problem, err error) {
	places, err := r.places(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, place := range places {
		some, wrong, err := r.list(ctx, r.domainAt(place))
		if err != nil {
			return nil, nil, err
		}
		backups, problems = append(backups, some...), append(problems, wrong...)
	}
	sortBackups(backups)
	return backups, problems, nil
}

func (r *Repository) list(ctx context.Context, d *domain) ([]*Backup, []Problem, error) {
	h, err := r.history(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range h.missing() {
		h.problems = append(h.problems, Problem{d.backupName(id), "it is missing and was not deleted"})
	}
	all := slices.Collect(maps.Values(h.backups))
	sortBackups(all)
	return all, h.problems, nil
}

func sortBackups(all []*Backup) {
	slices.SortFunc(all, func(a, b *Backup) int {
		if c := a.Taken.Compare(b.Taken); c != 0 {
			return c
		}
		return strings.Compare(a.ID.String(), b.ID.String())
	})
}

// places returns where there are objects of tenants.
func (r *Repository) places(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	for _, kind := range []string{"backups/", "packs/", "index/", "leases/", doomsPrefix, "removed/", protectPrefix} {
		names, err := r.names(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			place, _, _ := strings.Cut(name, "/")
			if _, err := ParseID(place); err == nil {
				found[place] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// Get returns a backup of a tenant. One that was deleted, or is another tenant's, does not exist.
func (r *Repository) Get(ctx context.Context, tenant string, id ID) (*Backup, error) {
	return r.get(ctx, r.domainAt(r.place(tenant)), id)
}

func (r *Repository) get(ctx context.Context, d *domain, id ID) (*Backup, error) {
	unknown := fault.New(fault.NotFound, "there is no backup %s", id)
	b, err := r.manifest(ctx, d, id)
	if notExist(err) {
		return nil, unknown
	}
	if err != nil {
		return nil, named(d.backupName(id), err)
	}
	if b.Void {
		return nil, unknown
	}
	if _, err := r.store.Stat(ctx, d.removedName(id)); err == nil {
		return nil, unknown
	} else if !notExist(err) {
		return nil, err
	}
	return b, nil
}

const protectPrefix = "protect/"

// protection extends how long a backup cannot be deleted.
type protection struct {
	Until time.Time `json:"until"`
}

func (d *domain) protections(id ID) string { return protectPrefix + d.place + "/" + id.String() + "/" }

// Protect makes a backup undeletable until a time. Protection is never shortened.
func (r *Repository) Protect(ctx context.Context, tenant string, id ID, until time.Time) error {
	d := r.domainAt(r.place(tenant))
	if _, err := r.get(ctx, d, id); err != nil {
		return err
	}
	return putMeta(ctx, r, d.sealer, d.protections(id)+newID().String(), protection{until})
}

// ProtectedUntil returns until when a backup cannot be deleted; the zero time if it can.
func (r *Repository) ProtectedUntil(ctx context.Context, b *Backup) (time.Time, error) {
	d, until := r.domainAt(b.place), b.ProtectedUntil
	names, err := r.names(ctx, d.protections(b.ID))
	if err != nil {
		return until, err
	}
	for _, name := range names {
		p := protection{}
		if err := getMeta(ctx, r, d.sealer, d.protections(b.ID)+name, &p); err != nil && !notExist(err) {
			return until, named(d.protections(b.ID)+name, err)
		}
		if p.Until.After(until) {
			until = p.Until
		}
	}
	return until, nil
}

// Delete deletes a backup: from then on it does not exist. Prune frees what it took. A protected
// backup is a fault of kind Conflict. One whose manifest is damaged can be deleted, unless Protect
// protects it.
func (r *Repository) Delete(ctx context.Context, tenant string, id ID) error {
	d := r.domainAt(r.place(tenant))
	b, err := r.get(ctx, d, id)
	if isDamaged(err) {
		b, err = &Backup{ID: id, place: d.place}, nil
	}
	if err != nil {
		return err
	}
	until, err := r.ProtectedUntil(ctx, b)
	if err != nil {
		return err
	}
	if r.now().Before(until) {
		return fault.New(fault.Conflict, "the backup is protected until %s", until.UTC().Format(time.RFC3339)).
			WithCode("backup_protected")
	}
	if err := putMeta(ctx, r, d.sealer, d.removedName(id), removal{r.now()}); err != nil && !exists(err) {
		return err
	}
	return r.store.Delete(context.WithoutCancel(ctx), d.backupName(id))
}
