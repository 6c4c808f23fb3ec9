package record

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// Image is a volume in a pool for images, with the name of the pool.
type Image struct {
	Volume
	Pool string `db:"pool"`
}

// Key orders images: by pool, by the name that is shown, and by id.
func (i Image) Key() string { return i.Pool + "/" + i.Shown() + "/" + i.ID }

// shown is the name of a volume in its storage system (Volume.Shown).
const shown = "CASE WHEN v.named THEN v.name ELSE v.native END"

// selectImages is the beginning of statements that read images. Names of pools and images have no slash.
const selectImages = `SELECT v.*, p.name AS pool FROM volumes v JOIN pools p ON p.id = v.pool_id
	WHERE p.kind = 'rbd' AND v.kind = 'block' AND v.deleted_at IS NULL`

// ImageFilter selects images. Empty fields select all.
type ImageFilter struct {
	Cluster, Tenant, Pool string
}

// Images lists images in the caller's scope by pool and name, starting after a key.
func (s *Store) Images(ctx context.Context, f ImageFilter, after string, limit int) (all []Image, err error) {
	scope := caller.From(ctx).Scope()
	for _, c := range []struct{ condition, value string }{
		{"cluster_id = ?", f.Cluster}, {"tenant = ?", f.Tenant},
		{"pool_id IN (SELECT id FROM pools WHERE name = ?)", f.Pool},
	} {
		if c.value != "" {
			scope = scope.And(c.condition, c.value)
		}
	}
	condition, args := scope.SQL()
	pool, rest, _ := strings.Cut(after, "/")
	name, id, _ := strings.Cut(rest, "/")
	args = append(args, pool, pool, name, pool, name, id, limit)
	return all, s.db.Select(ctx, &all, selectImages+" AND v.id IN (SELECT id FROM volumes WHERE "+condition+`)
		AND (p.name > ? OR p.name = ? AND `+shown+" > ? OR p.name = ? AND "+shown+` = ? AND v.id > ?)
		ORDER BY p.name, `+shown+", v.id LIMIT ?", args...)
}

// Image returns the image of a name in the caller's scope. cluster is the id of its cluster; empty: there is only one
// with an image of that name.
func (s *Store) Image(ctx context.Context, cluster, pool, name string) (Image, error) {
	var all []Image
	// What is missing may have been replaced by something of the same name.
	if err := s.db.Select(ctx, &all, selectImages+` AND (? = '' OR v.cluster_id = ?) AND p.name = ?
		AND `+shown+` = ? ORDER BY CASE WHEN v.state = ? THEN 1 ELSE 0 END, v.id DESC LIMIT 100`,
		cluster, cluster, pool, name, state.Missing); err != nil {
		return Image{}, err
	}
	var found []Image
	for _, i := range all {
		if caller.From(ctx).Sees(i.Tenant) && (len(found) == 0 || i.ClusterID != found[0].ClusterID) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return Image{}, fault.New(fault.NotFound, "there is no image %s in the pool %s", name, pool)
	case 1:
		return found[0], nil
	}
	return Image{}, fault.InvalidField("cluster", "several clusters have an image %s/%s: name one", pool, name)
}

// ImageRequest describes an image to make.
type ImageRequest struct {
	Cluster      string // id; empty: there is only one with such a pool
	Pool         string
	Tenant, Name string
	Size         int64 // bytes
}

// CreateImage stores an image that is to be made under a name that its user has chosen, and begins the job.
func (s *Store) CreateImage(ctx context.Context, req ImageRequest, begin Begin) (v Volume, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		place, err := placeIn(ctx, tx, "pool", req.Cluster, req.Pool)
		if err != nil {
			return err
		}
		if err := place.Backend.Writable(); err != nil {
			return err
		}
		if err := s.admit(ctx, tx, "tenant_id", req.Tenant, Use{Volumes: 1, Bytes: req.Size}); err != nil {
			return err
		}
		id, now := NewID(), db.At(s.now())
		v = Volume{
			ID: id, Tenant: req.Tenant, Name: req.Name, Named: true, ClusterID: place.Cluster.ID, PoolID: place.Pool.ID,
			Native: driver.VolumeName(id), Kind: driver.Block, State: state.Creating, Health: driver.Unknown,
			Asked: req.Size, Size: req.Size, Used: -1, CreatedAt: now, UpdatedAt: now,
		}
		v.belongs(Owner{})
		if err := freeImageName(ctx, tx, &v); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "volumes", &v); err != nil {
			return err
		}
		j = newJob(JobCreateImage, v.Tenant, TypeVolume, v.ID)
		if err := begin(ctx, tx, &j, VolumeArgs{ID: v.ID}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: JobCreateImage, Target: v.ID, Tenant: v.Tenant,
			Message: fmt.Sprintf("%s/%s, %d bytes", place.Pool.Name, v.Name, v.Size),
		})
	})
	if db.IsUnique(err) {
		err = errImageTaken(req.Name)
	}
	return v, j, err
}

func errImageTaken(name string) error {
	return fault.New(fault.Conflict, "the pool has an image %s already", name).WithField("name")
}

// errDots refuses names that paths of requests cannot have.
var errDots = fault.InvalidField("name", "must not be . or ..")

// freeImageName checks that a pool has no image of the name of one that is to be made.
func freeImageName(ctx context.Context, tx *db.Tx, v *Volume) error {
	if !v.Named {
		return nil
	}
	if v.Name == "." || v.Name == ".." {
		return errDots
	}
	if driver.IsMade(v.Name) {
		return fault.InvalidField("name", "is of the form that the gateway gives to volumes and snapshots itself")
	}
	// What another program made and removed again makes room.
	if _, err := tx.Exec(ctx, `UPDATE volumes SET deleted_at = ? WHERE pool_id = ? AND native = ? AND foreign_made
		AND state = ? AND deleted_at IS NULL`, v.CreatedAt, v.PoolID, v.Name, state.Missing); err != nil {
		return err
	}
	var id string
	err := tx.Get(ctx, &id, `SELECT id FROM volumes WHERE pool_id = ? AND deleted_at IS NULL
		AND (native = ? AND foreign_made OR name = ? AND named) LIMIT 1`, v.PoolID, v.Name, v.Name)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err == nil {
		err = errImageTaken(v.Name)
	}
	return err
}

// placeIn returns the pool for images of a name. field is where the request names it.
func placeIn(ctx context.Context, q db.Querier, field, cluster, pool string) (p Place, err error) {
	var all []Pool
	if err := q.Select(ctx, &all, `SELECT * FROM pools WHERE name = ? AND (? = '' OR cluster_id = ?) AND kind = ?
		AND NOT missing ORDER BY id LIMIT 2`, pool, cluster, cluster, driver.PoolRBD); err != nil {
		return p, err
	}
	switch len(all) {
	case 0:
		return p, fault.InvalidField(field, "there is no pool %s for images; discover its backend if it is new", pool)
	case 1:
	default:
		return p, fault.InvalidField("cluster", "several clusters have a pool %s: name one", pool)
	}
	p.Pool = all[0]
	if err = q.Get(ctx, &p.Cluster, "SELECT * FROM clusters WHERE id = ?", p.Pool.ClusterID); err != nil {
		return p, err
	}
	p.Backend, err = backendIn(ctx, q, p.Cluster.BackendID, "")
	return p, err
}

// ImageChange is what a job changes about a volume in a pool for images.
type ImageChange struct {
	Kind     string // of the job
	Action   state.Action
	IOPS     *int64 // of JobLimitImage; nil: that stays
	BPS      *int64 // of JobLimitImage; nil: that stays
	Size     int64  // bytes, of JobShrinkImage
	Pool     string // of JobMoveImage: the name of the pool that it goes to
	Snapshot string // of jobs that put it back: the id of the snapshot
}

// ChangeImage begins a job that changes a volume in a pool for images.
func (s *Store) ChangeImage(ctx context.Context, id string, c ImageChange, begin Begin) (v Volume, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if v, err = volumeIn(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		place, err := placeOf(ctx, tx, &v)
		if err != nil {
			return err
		}
		a := VolumeArgs{ID: v.ID, Before: v.State, Snapshot: c.Snapshot, Size: c.Size, IOPS: c.IOPS, BPS: c.BPS}
		next, err := v.State.Begin(c.Action)
		switch {
		case v.Foreign:
			return errForeign
		case place.Backend.Mode == ReadOnly:
			return place.Backend.Writable()
		case place.Pool.Kind != driver.PoolRBD:
			return fault.New(fault.Invalid, "the backend %s cannot do this", place.Backend.Name).WithCode("unsupported")
		case err != nil:
			return err
		}
		if err := writable(ctx, tx, &v); err != nil {
			return err
		}
		message, err := s.prepareChange(ctx, tx, &v, &c, &a, &place)
		if err != nil {
			return err
		}
		v.State, v.LastError = next, ""
		if err := s.save(ctx, tx, &v); err != nil {
			return err
		}
		j = newJob(c.Kind, v.Tenant, TypeVolume, v.ID)
		if err := begin(ctx, tx, &j, a); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: c.Kind, Target: v.ID, Tenant: v.Tenant, Message: strings.TrimSpace(v.Name + " " + message),
		})
	})
	return v, j, err
}

// prepareChange checks a change, and completes the arguments of its job. It returns what the audit log says of it.
func (s *Store) prepareChange(
	ctx context.Context, tx *db.Tx, v *Volume, c *ImageChange, a *VolumeArgs, at *Place,
) (message string, err error) {
	switch c.Kind {
	case JobLimitImage:
		for _, l := range []struct {
			word  string
			value *int64
		}{{"iops", c.IOPS}, {"bps", c.BPS}} {
			if l.value != nil {
				message += fmt.Sprintf("%s=%d ", l.word, *l.value)
			}
		}
	case JobShrinkImage:
		if c.Size >= v.Size {
			return "", fault.InvalidField("size_bytes", "must be smaller than the image, which has %d bytes", v.Size)
		}
		message = fmt.Sprintf("to %d bytes", c.Size)
	case JobMoveImage:
		to, err := placeIn(ctx, tx, "dest_pool", at.Cluster.ID, c.Pool)
		if err != nil {
			return "", err
		}
		if to.Pool.ID == v.PoolID {
			return "", fault.InvalidField("dest_pool", "is the pool that the image is in")
		}
		if err := errors.Join(ungrouped(ctx, tx, v), unmirrored(ctx, tx, v)); err != nil {
			return "", err
		}
		moved := *v
		moved.PoolID, moved.CreatedAt = to.Pool.ID, db.At(s.now())
		a.Pool, message = to.Pool.ID, "to the pool "+to.Pool.Name
		return message, freeImageName(ctx, tx, &moved)
	case JobRevert, JobRevertImage:
		sn, err := snapshotIn(ctx, tx, c.Snapshot, tx.ForUpdate())
		if err != nil {
			return "", err
		}
		if sn.VolumeID != v.ID {
			return "", errNoSnapshot
		}
		if err := sn.State.Usable(); err != nil {
			return "", err
		}
		// The volume gets the size of the snapshot, too.
		if err := s.admit(ctx, tx, "tenant_id", v.Tenant, Use{Bytes: sn.Size - v.Size}); err != nil {
			return "", err
		}
		v.Size, message = max(v.Size, sn.Size), "to the snapshot "+sn.Name
	}
	return message, nil
}

// SnapshotNamed returns the snapshot of a volume with a name, as the gateway or the storage system knows it.
func (s *Store) SnapshotNamed(ctx context.Context, v *Volume, name string) (sn Snapshot, err error) {
	err = s.db.Get(ctx, &sn, `SELECT * FROM snapshots WHERE volume_id = ? AND deleted_at IS NULL
		AND (name = ? OR native = ?)`, v.ID, name, name)
	return sn, db.NotFound(err, "the gateway has made no snapshot of this name of the image")
}

// SnapshotsByShown returns the ids of the snapshots of a volume by the names that the storage system shows.
func (s *Store) SnapshotsByShown(ctx context.Context, v *Volume) (map[string]string, error) {
	var all []Snapshot
	if err := s.db.Select(ctx, &all, "SELECT * FROM snapshots WHERE volume_id = ? AND deleted_at IS NULL", v.ID); err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, sn := range all {
		ids[sn.Shown(v)] = sn.ID
	}
	return ids, nil
}

// SnapshotsToMove returns the names that the storage system has for the snapshots of a volume.
func (s *Store) SnapshotsToMove(ctx context.Context, v *Volume) (names []driver.Name, err error) {
	var all []Snapshot
	err = s.db.Select(ctx, &all, "SELECT * FROM snapshots WHERE volume_id = ? AND deleted_at IS NULL", v.ID)
	for _, sn := range all {
		names = append(names, sn.In("", v))
	}
	if err != nil {
		return nil, err
	}
	bases, err := s.BasesOf(ctx, v.ID)
	for _, b := range bases {
		names = append(names, driver.Name{Native: b.Base})
	}
	return names, err
}

// UsageArgs are the arguments of a job that counts what images use.
type UsageArgs struct{ Clusters []string }

// CountUsage begins a job that counts what the images of a cluster use. Empty: of all clusters that have images.
func (s *Store) CountUsage(ctx context.Context, cluster string, begin Begin) (clusters []string, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if err := tx.Select(ctx, &clusters, `SELECT c.id FROM clusters c WHERE (? = '' OR c.id = ?) AND EXISTS
			(SELECT 1 FROM pools p WHERE p.cluster_id = c.id AND p.kind = ? AND NOT p.missing) ORDER BY c.id`,
			cluster, cluster, driver.PoolRBD); err != nil {
			return err
		}
		if len(clusters) == 0 {
			return fault.New(fault.Conflict, "there is no cluster with images")
		}
		j = newJob(JobCountUsage, "", TypeCluster, strings.Join(clusters, ","))
		if err := begin(ctx, tx, &j, UsageArgs{clusters}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: JobCountUsage, Target: j.ResourceID})
	})
	return clusters, j, err
}

// SplitClusters returns the ids of clusters that a job is about.
func SplitClusters(resource string) []string { return strings.Split(resource, ",") }

// Whereabouts returns a volume in the caller's scope, also one that was deleted, and the name of its pool.
func (s *Store) Whereabouts(ctx context.Context, id string) (v Volume, pool string, err error) {
	err = s.db.Get(ctx, &v, "SELECT * FROM volumes WHERE id = ?", id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(v.Tenant) {
		return Volume{}, "", errNoVolume
	}
	if err != nil {
		return v, "", err
	}
	return v, pool, s.db.Get(ctx, &pool, "SELECT name FROM pools WHERE id = ?", v.PoolID)
}

// ImagePools lists the pools for images of a cluster.
func (s *Store) ImagePools(ctx context.Context, cluster string) (all []Pool, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM pools WHERE cluster_id = ? AND kind = ? AND NOT missing ORDER BY name",
		cluster, driver.PoolRBD)
}

// SetUsed stores what the volume with a native name uses, in bytes.
func (s *Store) SetUsed(ctx context.Context, pool, native string, used int64) error {
	return s.update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE volumes SET used_bytes = ? WHERE pool_id = ? AND native = ? AND deleted_at IS NULL",
			used, pool, native)
		return err
	})
}
