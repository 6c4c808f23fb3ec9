package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// Owner is what a volume is for, in the words of another product.
type Owner struct {
	Product      string `json:"product,omitempty"`
	ResourceType string `json:"resource_type,omitempty"`
	ResourceID   string `json:"resource_id,omitempty"`
	Role         string `json:"role,omitempty"`
}

// Volume is a volume of a tenant, or one that the gateway has found.
type Volume struct {
	ID        string         `db:"id"`
	Tenant    string         `db:"tenant"`
	Name      string         `db:"name"`
	ClusterID string         `db:"cluster_id"`
	PoolID    string         `db:"pool_id"`
	Native    string         `db:"native"`
	Kind      driver.Kind    `db:"kind"`
	Policy    string         `db:"policy"`
	State     state.Volume   `db:"state"`
	Health    driver.Health  `db:"health"`
	Asked     int64          `db:"asked_bytes"`
	Size      int64          `db:"size_bytes"`
	Used      int64          `db:"used_bytes"`
	Enforced  bool           `db:"enforced"`
	Foreign   bool           `db:"foreign_made"`
	Named     bool           `db:"named"` // Name is what the storage system shows
	SourceID  string         `db:"source_id"`
	Parent    string         `db:"parent"` // as the storage system names it; empty: none, or not known
	IOPS      int64          `db:"iops"`   // limit for clients; 0: none
	BPS       int64          `db:"bps"`    // limit for clients; 0: none
	Owner     db.JSON[Owner] `db:"owner"`
	Product   string         `db:"owner_product"`  // of Owner
	Resource  string         `db:"owner_resource"` // of Owner
	LastError string         `db:"last_error"`
	CreatedAt db.Time        `db:"created_at"`
	UpdatedAt db.Time        `db:"updated_at"`
	SeenAt    db.Time        `db:"seen_at"`
	DeletedAt db.Time        `db:"deleted_at"`
	PurgeAt   db.Time        `db:"purge_at"` // zero: it is not in the trash
	DeletedBy string         `db:"deleted_by"`
	Search    string         `db:"search"`
}

// belongs sets the owner of a volume, and what it is found by.
func (v *Volume) belongs(o Owner) {
	v.Owner.V, v.Product, v.Resource = o, o.Product, o.ResourceID
	v.Search = search.Text(nil, v.ID, v.Name)
}

// In returns the name of a volume in its storage system.
func (v *Volume) In(pool string) driver.Name {
	n := driver.Name{Pool: pool, Native: v.Native}
	if v.Named {
		n.Chosen = v.Name
	}
	return n
}

// Shown returns what users of the storage system know a volume by.
func (v *Volume) Shown() string {
	if v.Named {
		return v.Name
	}
	return v.Native
}

// VolumeRequest describes a volume to make.
type VolumeRequest struct {
	Tenant, Name string
	Size         int64       // bytes
	Kind         driver.Kind // counts only if Policy is empty; empty: that of the policy
	Policy       string      // empty: DefaultPolicy
	Owner        Owner
	Claim        Claim
}

// Claim is what a request says about the claim in Kubernetes that a volume is to be. Empty fields say nothing.
type Claim struct {
	Wanted    bool // the backend must be one of Kubernetes
	Namespace string
	Class     string // the storage class
}

// Place is where a volume is or will be.
type Place struct {
	Backend Backend
	Cluster Cluster
	Pool    Pool
}

var errNoVolume = fault.New(fault.NotFound, "there is no such volume")

// Class is the storage class that claims in Kubernetes have, with their namespace.
type Class struct {
	Pool      string `db:"id"` // the id of the pool
	Name      string `db:"name"`
	Namespace string `db:"namespace"`
}

// Classes returns the storage classes of all backends, by the ids of their pools.
func (s *Store) Classes(ctx context.Context) (map[string]Class, error) {
	var all []Class
	err := s.db.Select(ctx, &all, `SELECT p.id, p.name, c.name AS namespace FROM backends b
		JOIN clusters c ON c.backend_id = b.id JOIN pools p ON p.cluster_id = c.id WHERE b.type = ?`, TypeKubernetes)
	classes := map[string]Class{}
	for _, c := range all {
		classes[c.Pool] = c
	}
	return classes, err
}

// VolumeFilter selects volumes. Empty fields select all.
type VolumeFilter struct {
	State, Tenant, Backend, Cluster, Kind string
	Product, Resource                     string // of the owner
	Text                                  string // in the id or the name, whatever its case
	Before                                string // only volumes before this id
}

// Volumes lists volumes in the caller's scope, newest first.
func (s *Store) Volumes(ctx context.Context, f VolumeFilter, limit int) (all []Volume, err error) {
	scope := caller.From(ctx).Scope().And("deleted_at IS NULL")
	for _, c := range []struct{ condition, value string }{
		{"state = ?", f.State}, {"tenant = ?", f.Tenant}, {"kind = ?", f.Kind}, {"id < ?", f.Before},
		{"cluster_id = ?", f.Cluster}, {"owner_product = ?", f.Product}, {"owner_resource = ?", f.Resource},
		{`cluster_id IN (SELECT c.id FROM clusters c JOIN backends b ON b.id = c.backend_id WHERE ? IN (b.id, b.name))`,
			f.Backend},
	} {
		if c.value != "" {
			scope = scope.And(c.condition, c.value)
		}
	}
	condition, args := scope.SQL()
	if f.Text != "" {
		contains, arg := search.Contains(f.Text)
		condition, args = condition+" AND "+contains, append(args, arg)
	}
	return all, s.db.Select(ctx, &all,
		"SELECT * FROM volumes WHERE "+condition+" ORDER BY id DESC LIMIT ?", append(args, limit)...)
}

// Volume returns a volume in the caller's scope.
func (s *Store) Volume(ctx context.Context, id string) (Volume, error) {
	return volumeIn(ctx, s.db, id, "")
}

func volumeIn(ctx context.Context, q db.Querier, id, lock string) (v Volume, err error) {
	err = q.Get(ctx, &v, "SELECT * FROM volumes WHERE id = ? AND deleted_at IS NULL"+lock, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(v.Tenant) {
		return Volume{}, errNoVolume
	}
	return v, err
}

// PlaceOf returns where a volume is.
func (s *Store) PlaceOf(ctx context.Context, v *Volume) (Place, error) { return placeOf(ctx, s.db, v) }

func placeOf(ctx context.Context, q db.Querier, v *Volume) (p Place, err error) {
	if err = q.Get(ctx, &p.Cluster, "SELECT * FROM clusters WHERE id = ?", v.ClusterID); err != nil {
		return p, err
	}
	if err = q.Get(ctx, &p.Pool, "SELECT * FROM pools WHERE id = ?", v.PoolID); err != nil {
		return p, err
	}
	p.Backend, err = backendIn(ctx, q, p.Cluster.BackendID, "")
	return p, err
}

// placeFor returns where a policy has volumes made, and completes the request. The kind of a policy that the request
// names overrides that of the request.
func placeFor(ctx context.Context, q db.Querier, req *VolumeRequest) (p Place, err error) {
	named := req.Policy != ""
	if !named {
		req.Policy = DefaultPolicy
	}
	var policy Policy
	err = q.Get(ctx, &policy, "SELECT * FROM policies WHERE name = ?", req.Policy)
	if errors.Is(err, db.ErrNoRows) {
		return p, fault.InvalidField("policy", "there is no policy %s", req.Policy)
	}
	if err != nil {
		return p, err
	}
	if named || req.Kind == "" {
		req.Kind = policy.Kind
	}
	if p.Backend, err = backendIn(ctx, q, policy.BackendID, ""); err != nil {
		return p, err
	}
	err = q.Get(ctx, &p.Cluster, "SELECT * FROM clusters WHERE backend_id = ?", p.Backend.ID)
	if errors.Is(err, db.ErrNoRows) {
		return p, fault.New(fault.Unavailable, "the backend %s was not reached yet; discover it", p.Backend.Name)
	}
	if err != nil {
		return p, err
	}
	if err := p.fits(&req.Claim); err != nil {
		return p, err
	}
	if p.Backend.Type == TypeKubernetes && req.Claim.Class != "" {
		p.Pool, err = classFor(ctx, q, &p, req)
		return p, err
	}
	p.Pool, err = poolFor(ctx, q, &p, &policy, req.Kind)
	return p, err
}

// fits returns a fault if a place cannot have a claim. The name of a cluster of Kubernetes is that of the namespace.
func (p *Place) fits(c *Claim) error {
	switch {
	case p.Backend.Type != TypeKubernetes && c.Wanted:
		return fault.InvalidField("kubernetes.create_pvc", "the backend %s is not a Kubernetes cluster", p.Backend.Name).WithCode(
			"unsupported",
		)
	case p.Backend.Type == TypeKubernetes && c.Namespace != "" && c.Namespace != p.Cluster.Name:
		return fault.InvalidField("kubernetes.namespace", "claims of the backend %s are made in the namespace %s",
			p.Backend.Name, p.Cluster.Name)
	}
	return nil
}

// classFor returns the pool that is the storage class of a request.
func classFor(ctx context.Context, q db.Querier, at *Place, req *VolumeRequest) (pool Pool, err error) {
	const field = "kubernetes.storage_class"
	err = q.Get(ctx, &pool, "SELECT * FROM pools WHERE cluster_id = ? AND name = ? AND NOT missing", at.Cluster.ID, req.Claim.Class)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return pool, fault.InvalidField(field, "the backend %s has reported no storage class %s; discover it if the class is new",
			at.Backend.Name, req.Claim.Class)
	case err == nil && !pool.Kind.Holds(req.Kind):
		return pool, fault.InvalidField(field, "the storage class %s makes no volumes of the kind %s by itself",
			req.Claim.Class, req.Kind)
	}
	return pool, err
}

// poolFor returns the pool that a policy has volumes made in.
func poolFor(ctx context.Context, q db.Querier, at *Place, policy *Policy, kind driver.Kind) (Pool, error) {
	var all []Pool
	if err := q.Select(ctx, &all, `SELECT * FROM pools WHERE cluster_id = ? AND (name = ? OR ? = '') AND NOT missing
		ORDER BY name`, at.Cluster.ID, policy.Pool, policy.Pool); err != nil {
		return Pool{}, err
	}
	if policy.Pool == "" {
		all = slices.DeleteFunc(all, func(p Pool) bool { return !p.Kind.Holds(kind) })
	}
	switch {
	case len(all) == 1:
		return all[0], nil
	case len(all) > 1:
		return Pool{}, fault.New(fault.Conflict, "the backend %s has %d pools for volumes of the kind %s; name one in the policy %s",
			at.Backend.Name, len(all), kind, policy.Name)
	}
	return Pool{}, fault.New(fault.Unavailable, "the backend %s has reported no pool for the policy %s; discover it, or "+
		"change the policy", at.Backend.Name, policy.Name)
}

// offers returns a fault unless a backend has volumes of a kind.
func (b *Backend) offers(kind driver.Kind) error {
	c := b.Capabilities.V
	if kind == driver.Block && c.Block || kind == driver.Filesystem && c.File {
		return nil
	}
	return fault.InvalidField("kind", "the backend %s has no volumes of the kind %s", b.Name, kind).WithCode("unsupported")
}

// CreateVolume stores a volume that is to be made, and begins its job. A request that is repeated gets the volume
// and the job that it began; one for a volume that could not be made tries again.
func (s *Store) CreateVolume(ctx context.Context, asked VolumeRequest, begin Begin) (v Volume, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		v, j = Volume{}, Job{}
		req := asked // this may run again
		place, err := placeFor(ctx, tx, &req)
		if err != nil {
			return err
		}
		if err := s.admit(ctx, tx, "tenant_id", req.Tenant, Use{}); err != nil {
			return err
		}
		err = tx.Get(ctx, &v, `SELECT * FROM volumes WHERE tenant = ? AND name = ? AND deleted_at IS NULL
			AND NOT foreign_made AND NOT named`+tx.ForUpdate(), req.Tenant, req.Name)
		again := err == nil
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return err
		}
		if again && v.State != state.Failed {
			if req.Claim.Class != "" && v.PoolID != place.Pool.ID {
				return fault.New(fault.Conflict, "there is a volume named %s already, in another storage class", v.Name).
					WithField("name")
			}
			j, err = s.repeated(ctx, tx, &v, &req, begin)
			return err
		}
		if err := errors.Join(place.Backend.Writable(), place.Backend.offers(req.Kind)); err != nil {
			return err
		}
		more := Use{Volumes: 1, Bytes: req.Size}
		if again {
			more = Use{Bytes: req.Size - v.Size}
		}
		if err := s.admit(ctx, tx, "tenant_id", req.Tenant, more); err != nil {
			return err
		}
		return s.create(ctx, tx, &v, &j, &req, &place, begin)
	})
	return v, j, err
}

// repeated answers a request for a volume that exists, with its job. If that ended so long ago that it was
// forgotten, another one begins, which finds the volume made.
func (s *Store) repeated(
	ctx context.Context, tx *db.Tx, v *Volume, req *VolumeRequest, begin Begin,
) (Job, error) {
	if v.Asked != req.Size || v.Kind != req.Kind || v.SourceID != "" {
		return Job{}, fault.New(fault.Conflict, "there is a volume named %s already, of the kind %s and created with %d bytes",
			v.Name, v.Kind, v.Asked).WithField("name")
	}
	j, err := newest(ctx, tx, JobCreateVolume, v.ID)
	if err != nil || j.ID != "" {
		return j, err
	}
	j = newJob(JobCreateVolume, v.Tenant, TypeVolume, v.ID)
	return j, begin(ctx, tx, &j, VolumeArgs{ID: v.ID})
}

// create stores a new volume, or one that could not be made, and begins its job.
func (s *Store) create(
	ctx context.Context, tx *db.Tx, v *Volume, j *Job, req *VolumeRequest, place *Place, begin Begin,
) error {
	now, replaced := db.At(s.now()), v.ID
	if replaced != "" { // what is left of it goes with it: the new one has another native name
		if _, err := tx.Exec(ctx, "UPDATE volumes SET deleted_at = ? WHERE id = ?", now, replaced); err != nil {
			return err
		}
	}
	id := NewID()
	*v = Volume{
		ID: id, Tenant: req.Tenant, Name: req.Name, ClusterID: place.Cluster.ID, PoolID: place.Pool.ID,
		Native: driver.VolumeName(id), Kind: req.Kind, Policy: req.Policy, State: state.Creating, Health: driver.Unknown,
		Asked: req.Size, Size: req.Size, Used: -1, CreatedAt: now, UpdatedAt: now,
	}
	v.belongs(req.Owner)
	if err := tx.Insert(ctx, "volumes", v); err != nil {
		return err
	}
	*j = newJob(JobCreateVolume, v.Tenant, TypeVolume, v.ID)
	if err := begin(ctx, tx, j, VolumeArgs{ID: v.ID, Replaces: replaced}); err != nil {
		return err
	}
	return s.note(ctx, tx, audit.Entry{
		Action: JobCreateVolume, Target: v.ID, Tenant: v.Tenant,
		Message: fmt.Sprintf("%s, %s, %d bytes, policy %s", v.Name, v.Kind, v.Size, v.Policy),
	})
}

// VolumeArgs are the arguments of a job that changes a volume.
type VolumeArgs struct {
	ID       string
	Before   state.Volume `json:",omitempty"` // the state that the action began in
	Snapshot string       `json:",omitempty"` // the id of the snapshot that it is put back to
	Size     int64        `json:",omitempty"` // bytes that it shrinks to
	IOPS     *int64       `json:",omitempty"` // limit to set
	BPS      *int64       `json:",omitempty"` // limit to set
	Pool     string       `json:",omitempty"` // the id of the pool that it moves to
	Replaces string       `json:",omitempty"` // the id of a volume that could not be made
	Keep     int64        `json:",omitempty"` // seconds that it stays in the trash

	DeletedAt db.Time `json:",omitzero"` // of one in the trash
}

// ExpandVolume stores that a volume grows, and begins the job, of the kind JobExpandVolume or JobResizeImage.
func (s *Store) ExpandVolume(
	ctx context.Context, id, kind string, size int64, begin Begin,
) (v Volume, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if v, err = volumeIn(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		place, err := placeOf(ctx, tx, &v)
		if err != nil {
			return err
		}
		before := v.State
		switch next, err := v.State.Begin(state.Expand); {
		case v.Foreign:
			return place.Backend.foreign()
		case place.Backend.Mode == ReadOnly:
			return place.Backend.Writable()
		case err != nil:
			return err
		case size <= v.Size && before != state.GrowthFailed || size < v.Size:
			return fault.InvalidField("new_size_bytes", "must be larger than the volume, which has %d bytes", v.Size)
		case !place.Backend.Capabilities.V.Expansion:
			return fault.InvalidField("new_size_bytes", "the backend %s cannot expand volumes", place.Backend.Name).
				WithCode("unsupported")
		default:
			v.State = next
		}
		if err := writable(ctx, tx, &v); err != nil {
			return err
		}
		if err := s.admit(ctx, tx, "tenant_id", v.Tenant, Use{Bytes: size - v.Size}); err != nil {
			return err
		}
		v.Size, v.LastError = size, ""
		if err := s.save(ctx, tx, &v); err != nil {
			return err
		}
		j = newJob(kind, v.Tenant, TypeVolume, v.ID)
		if err := begin(ctx, tx, &j, VolumeArgs{ID: v.ID, Before: before}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: kind, Target: v.ID, Tenant: v.Tenant, Message: fmt.Sprintf("%s to %d bytes", v.Name, size),
		})
	})
	return v, j, err
}

// errForeign is the fault for changes to what the gateway did not make.
var errForeign = fault.New(fault.Conflict, "the gateway did not make this volume, and only reads it")

// Deletion describes how a volume is removed.
type Deletion struct {
	Kind string        // of the job: JobDeleteVolume or JobDeleteImage
	Keep time.Duration // in the trash; 0: it is removed at once
}

// DeleteVolume stores that a volume is removed, and begins the job. Volumes with snapshots are not removed.
func (s *Store) DeleteVolume(ctx context.Context, id string, d Deletion, begin Begin) (v Volume, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if v, err = volumeIn(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		if v.State == state.Deleting {
			if j, err = newest(ctx, tx, JobDeleteVolume, v.ID); err == nil && j.ID == "" {
				j, err = newest(ctx, tx, JobDeleteImage, v.ID)
			}
			return err
		}
		place, err := placeOf(ctx, tx, &v)
		if err != nil {
			return err
		}
		before, action := v.State, state.Delete
		if d.Keep > 0 {
			action = state.Discard
		}
		next, err := v.State.Begin(action)
		switch {
		case v.Foreign:
			return place.Backend.foreign()
		case place.Backend.Mode == ReadOnly:
			return place.Backend.Writable()
		case err != nil:
			return err
		}
		if err := unkept(ctx, tx, &v); err != nil {
			return err
		}
		if err := errors.Join(ungrouped(ctx, tx, &v), unmirrored(ctx, tx, &v)); err != nil {
			return err
		}
		v.State, v.LastError, v.DeletedBy = next, "", caller.From(ctx).Name
		if err := s.save(ctx, tx, &v); err != nil {
			return err
		}
		j = newJob(d.Kind, v.Tenant, TypeVolume, v.ID)
		if err := begin(ctx, tx, &j, VolumeArgs{ID: v.ID, Before: before, Keep: int64(d.Keep / time.Second)}); err != nil {
			return err
		}
		message := v.Name
		if d.Keep > 0 {
			message += fmt.Sprintf(", kept in the trash for %s", d.Keep)
		}
		return s.note(ctx, tx, audit.Entry{Action: d.Kind, Target: v.ID, Tenant: v.Tenant, Message: message})
	})
	return v, j, err
}

// unkept refuses what must not be done to a volume that has snapshots.
func unkept(ctx context.Context, tx *db.Tx, v *Volume) error {
	var snapshots int64
	err := tx.Get(ctx, &snapshots, "SELECT COUNT(*) FROM snapshots WHERE volume_id = ? AND deleted_at IS NULL", v.ID)
	if err == nil && snapshots > 0 {
		err = fault.New(fault.Conflict, "the volume has %d snapshots; delete them first", snapshots)
	}
	return err
}

// save stores what may change of a volume.
func (s *Store) save(ctx context.Context, tx *db.Tx, v *Volume) error {
	v.UpdatedAt = db.At(s.now())
	_, err := tx.Exec(ctx, `UPDATE volumes SET state = ?, health = ?, size_bytes = ?, used_bytes = ?, enforced = ?,
		last_error = ?, updated_at = ?, seen_at = ?, deleted_at = ?, parent = ?, iops = ?, bps = ?, pool_id = ?,
		source_id = ?, purge_at = ?, deleted_by = ? WHERE id = ?`,
		v.State, v.Health, v.Size, v.Used, v.Enforced, v.LastError, v.UpdatedAt, v.SeenAt, v.DeletedAt, v.Parent, v.IOPS,
		v.BPS, v.PoolID, v.SourceID, v.PurgeAt, v.DeletedBy, v.ID)
	return err
}

// unchanged is the error of an action that has changed nothing.
type unchanged struct{ error }

func (u unchanged) Unwrap() error { return u.error }

// Unchanged marks the error of an action after which the volume is as it was before.
func Unchanged(err error) error { return unchanged{err} }

// EndVolume stores how an action on a volume ended: what the storage system says of it, or why it failed.
func (s *Store) EndVolume(
	ctx context.Context, a VolumeArgs, action state.Action, seen *driver.Volume, failed error,
) error {
	return s.update(ctx, func(tx *db.Tx) error {
		v, err := volumeIn(ctx, tx, a.ID, tx.ForUpdate())
		if fault.Is(err, fault.NotFound) || err == nil && v.State.AtRest() {
			return nil // another run of the job has stored its end
		}
		if err != nil {
			return err
		}
		if errors.As(failed, &unchanged{}) {
			v.State = v.State.Undo(action, a.Before)
		} else {
			v.State = v.State.End(action, a.Before, failed == nil)
		}
		if v.LastError = ""; failed != nil {
			v.LastError = fault.From(failed).Message
		}
		if seen != nil {
			v.observe(seen, db.At(s.now()))
		}
		if (action == state.Delete || action == state.Discard) && failed == nil {
			v.DeletedAt = db.At(s.now())
			if action == state.Discard {
				v.PurgeAt = db.At(v.DeletedAt.Add(time.Duration(a.Keep) * time.Second))
			}
			if _, err := tx.Exec(ctx, "DELETE FROM schedules WHERE volume_id = ?", v.ID); err != nil {
				return err
			}
		}
		if action == state.Move && failed == nil {
			v.PoolID = a.Pool
		}
		return s.save(ctx, tx, &v)
	})
}

// observe takes over what the storage system says of a volume.
func (v *Volume) observe(seen *driver.Volume, at db.Time) {
	v.SeenAt = at
	if seen.Damaged {
		v.Health = driver.Critical
		return
	}
	v.Health, v.Enforced = driver.Healthy, seen.Enforced
	if v.Parent != "" && seen.Parent == "" {
		v.SourceID = "" // it has been flattened, and does not depend on its snapshot any more
	}
	v.Parent, v.IOPS, v.BPS = seen.Parent, seen.Limits.IOPS, seen.Limits.BPS
	if seen.Used >= 0 { // otherwise what was counted the last time stays
		v.Used = seen.Used
	}
	if v.State != state.Expanding && seen.Size > 0 {
		v.Size = seen.Size
	}
}
