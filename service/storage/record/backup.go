package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// Modes of backups.
const (
	ModeManifest = "manifest" // what the volume is, without its data
	ModeData     = "data"
)

// Backup is a copy of a volume in a bucket.
type Backup struct {
	ID           string             `db:"id"`
	Tenant       string             `db:"tenant"`
	VolumeID     string             `db:"volume_id"`
	VolumeName   string             `db:"volume_name"`
	BucketID     string             `db:"bucket_id"`
	Key          string             `db:"object_key"` // of its manifest
	Mode         string             `db:"mode"`
	State        state.Backup       `db:"state"`
	Whole        bool               `db:"whole"`
	Incremental  bool               `db:"incremental"`
	FullReason   string             `db:"full_reason"`
	Parent       string             `db:"parent"`
	Size         int64              `db:"size_bytes"`
	Stored       int64              `db:"stored_bytes"`
	Checksum     string             `db:"checksum"`
	KeyRef       string             `db:"key_ref"`
	Consistency  driver.Consistency `db:"consistency"`
	RepositoryID string             `db:"repository_id"`
	Base         string             `db:"base"`
	BaseID       string             `db:"base_id"`
	Keep         int64              `db:"keep"`
	LastError    string             `db:"last_error"`
	VerifiedBy   string             `db:"verified_by"`
	VerifiedOK   bool               `db:"verified_ok"`
	VerifiedWhat string             `db:"verified_what"`
	VerifiedJob  string             `db:"verified_job"`
	VerifiedAt   db.Time            `db:"verified_at"`
	CreatedAt    db.Time            `db:"created_at"`
	FinishedAt   db.Time            `db:"finished_at"`
	ExpiresAt    db.Time            `db:"expires_at"`
	ScheduleID   string             `db:"schedule_id"` // that had it made; empty: none
}

// BackupFilter selects backups. Empty fields select all.
type BackupFilter struct {
	Tenant, Volume, Bucket, State string
	Orphans                       bool   // only those whose volume is gone, oldest first
	From                          string // of orphans only those after this id, of others before
}

// orphaned is the condition that the volume of a backup is gone.
const orphaned = "NOT EXISTS (SELECT 1 FROM volumes v WHERE v.id = backups.volume_id AND v.deleted_at IS NULL)"

// Backups lists backups in the caller's scope, newest first unless they are orphans.
func (s *Store) Backups(ctx context.Context, f BackupFilter, limit int) (all []Backup, err error) {
	scope := caller.From(ctx).Scope()
	after, order := "id < ?", "DESC"
	if f.Orphans {
		scope, after, order = scope.And(orphaned), "id > ?", "ASC"
	}
	for _, c := range []struct{ condition, value string }{
		{"tenant = ?", f.Tenant}, {"volume_id = ?", f.Volume}, {"bucket_id = ?", f.Bucket}, {"state = ?", f.State},
		{after, f.From},
	} {
		if c.value != "" {
			scope = scope.And(c.condition, c.value)
		}
	}
	condition, args := scope.SQL()
	return all, s.db.Select(ctx, &all, "SELECT * FROM backups WHERE "+condition+" ORDER BY id "+order+" LIMIT ?",
		append(args, limit)...)
}

var errNoBackup = fault.New(fault.NotFound, "there is no such backup")

// Backup returns a backup in the caller's scope.
func (s *Store) Backup(ctx context.Context, id string) (Backup, error) {
	return backupIn(ctx, s.db, id, "")
}

func backupIn(ctx context.Context, q db.Querier, id, lock string) (b Backup, err error) {
	err = q.Get(ctx, &b, "SELECT * FROM backups WHERE id = ?"+lock, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(b.Tenant) {
		return Backup{}, errNoBackup
	}
	return b, err
}

// BackupRequest describes a backup to make.
type BackupRequest struct {
	Volume, Bucket string // ids
	Mode           string
	Whole          bool
	KeyRef         string
	Keep           int64
	MaxAge         time.Duration // 0: it does not expire
	Schedule       string        // id of the one that has it made; empty: none
}

// BackupKey returns the key of the manifest of a backup.
func BackupKey(volume, id string) string { return "backups/" + volume + "/" + id + ".json" }

// BackupArgs are the arguments of a job about a backup.
type BackupArgs struct {
	ID     string
	Before state.Backup `json:",omitempty"` // of a deletion
	Method string       `json:",omitempty"` // of a check
}

// CreateBackup stores a backup that is to be made, and begins the job.
func (s *Store) CreateBackup(ctx context.Context, req BackupRequest, begin Begin) (b Backup, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		v, err := volumeIn(ctx, tx, req.Volume, tx.ForUpdate())
		if err != nil {
			return err
		}
		bucket, err := bucketIn(ctx, tx, req.Bucket, tx.ForUpdate())
		if err != nil {
			return err
		}
		place, err := placeOf(ctx, tx, &v)
		switch {
		case err != nil:
			return err
		case v.Foreign:
			return place.Backend.foreign()
		case bucket.State != state.BucketBound:
			return fault.InvalidField("bucket_id", "the bucket is %s; it must be %s", bucket.State, state.BucketBound)
		case bucket.Tenant != "" && bucket.Tenant != v.Tenant:
			return fault.InvalidField("bucket_id", "the bucket belongs to another tenant than the volume")
		case req.Mode == ModeData && place.Backend.Mode == ReadOnly:
			return place.Backend.Writable() // it takes a snapshot
		case req.Mode == ModeData && v.Kind != driver.Block:
			return fault.InvalidField("mode", "only block volumes are backed up with their data").WithCode("unsupported")
		}
		if err := v.State.Readable(); err != nil {
			return err
		}
		id, now := NewID(), s.now()
		b = Backup{
			ID: id, Tenant: v.Tenant, VolumeID: v.ID, VolumeName: v.Name, BucketID: bucket.ID, Key: BackupKey(v.ID, id),
			Mode: req.Mode, State: state.BackupPending, Whole: req.Whole, Size: v.Size, KeyRef: req.KeyRef, Keep: req.Keep,
			Consistency: driver.NotConsistent, CreatedAt: db.At(now), ScheduleID: req.Schedule,
		}
		if req.MaxAge > 0 {
			b.ExpiresAt = db.At(now.Add(req.MaxAge))
		}
		if err := tx.Insert(ctx, "backups", &b); err != nil {
			return err
		}
		j = newJob(JobBackup, b.Tenant, TypeBackup, b.ID)
		if err := begin(ctx, tx, &j, BackupArgs{ID: b.ID}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: JobBackup, Target: b.ID, Tenant: b.Tenant,
			Message: fmt.Sprintf("%s of %s to the bucket %s", b.Mode, v.Name, bucket.Name),
		})
	})
	return b, j, err
}

// SaveBackup stores what a job finds out about a backup.
func (s *Store) SaveBackup(ctx context.Context, b *Backup) error {
	return s.update(ctx, func(tx *db.Tx) error { return saveBackup(ctx, tx, b) })
}

func saveBackup(ctx context.Context, tx *db.Tx, b *Backup) error {
	_, err := tx.Exec(ctx, `UPDATE backups SET state = ?, incremental = ?, full_reason = ?, parent = ?, size_bytes = ?,
		stored_bytes = ?, checksum = ?, consistency = ?, repository_id = ?, base = ?, base_id = ?, last_error = ?,
		finished_at = ? WHERE id = ?`, b.State, b.Incremental, b.FullReason, b.Parent, b.Size, b.Stored, b.Checksum, b.Consistency,
		b.RepositoryID, b.Base, b.BaseID, b.LastError, b.FinishedAt, b.ID)
	return err
}

// FailBackup stores why a backup could not be made. One that is complete, or deleted, stays as it is.
func (s *Store) FailBackup(ctx context.Context, id string, cause error) error {
	return s.update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE backups SET state = ?, last_error = ?, finished_at = ? WHERE id = ? AND state IN (?, ?, ?)",
			state.BackupFailed, fault.From(cause).Message, db.At(s.now()), id, state.BackupPending, state.BackupUploading,
			state.BackupVerifying)
		return err
	})
}

// LastBackup returns the newest backup with data of a volume in a bucket, with a key, whose snapshot is kept to compare
// with. found is false if there is none.
func (s *Store) LastBackup(ctx context.Context, of *Backup) (b Backup, found bool, err error) {
	err = s.db.Get(ctx, &b, `SELECT * FROM backups WHERE volume_id = ? AND bucket_id = ? AND key_ref = ? AND mode = ?
		AND state = ? AND base <> '' AND id <> ? ORDER BY id DESC LIMIT 1`,
		of.VolumeID, of.BucketID, of.KeyRef, ModeData, state.BackupCompleted, of.ID)
	if errors.Is(err, db.ErrNoRows) {
		return b, false, nil
	}
	return b, err == nil, err
}

// Bases lists backups whose snapshot is not needed any more: the volume is gone or is being deleted, the backup has
// failed, or there is a newer one to compare with.
func (s *Store) Bases(ctx context.Context) (all []Backup, err error) {
	return all, s.db.Select(ctx, &all, `SELECT * FROM backups WHERE base <> '' AND (state = ? OR `+orphaned+`
		OR EXISTS (SELECT 1 FROM backups n WHERE n.volume_id = backups.volume_id AND n.bucket_id = backups.bucket_id
			AND n.key_ref = backups.key_ref AND n.state = ? AND n.base <> '' AND n.id > backups.id)) ORDER BY id LIMIT 100`,
		state.BackupFailed, state.BackupCompleted)
}

// BasesOf lists the backups of a volume whose snapshots are kept to compare with.
func (s *Store) BasesOf(ctx context.Context, volume string) (all []Backup, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM backups WHERE volume_id = ? AND base <> '' ORDER BY id", volume)
}

// ofGoneBuckets is the condition that the bucket of a backup is gone.
const ofGoneBuckets = "NOT EXISTS (SELECT 1 FROM buckets b WHERE b.id = backups.bucket_id)"

// BackupsOfGoneBuckets lists backups that went with their bucket.
func (s *Store) BackupsOfGoneBuckets(ctx context.Context) (all []Backup, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM backups WHERE "+ofGoneBuckets+" ORDER BY id LIMIT 100")
}

// ForgetBase stores that the snapshot of a backup is gone.
func (s *Store) ForgetBase(ctx context.Context, id string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE backups SET base = '' WHERE id = ?", id)
		return err
	})
}

// DeleteBackup stores that a backup is removed, and begins the job. One that is being made stays.
func (s *Store) DeleteBackup(ctx context.Context, id string, begin Begin) (b Backup, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		b, j, err = s.deleteBackup(ctx, tx, id, "", begin)
		return err
	})
	return b, j, err
}

func (s *Store) deleteBackup(ctx context.Context, tx *db.Tx, id, why string, begin Begin) (b Backup, j Job, err error) {
	if b, err = backupIn(ctx, tx, id, tx.ForUpdate()); err != nil {
		return b, j, err
	}
	switch b.State {
	case state.BackupDeleting:
		j, err = newest(ctx, tx, JobDeleteBackup, b.ID)
		return b, j, err
	case state.BackupCompleted, state.BackupFailed:
	default:
		return b, j, fault.New(fault.Conflict, "the backup is %s; wait until its job has ended, or cancel that", b.State)
	}
	before := b.State
	b.State, b.LastError = state.BackupDeleting, ""
	if err := saveBackup(ctx, tx, &b); err != nil {
		return b, j, err
	}
	j = newJob(JobDeleteBackup, b.Tenant, TypeBackup, b.ID)
	if err := begin(ctx, tx, &j, BackupArgs{ID: b.ID, Before: before}); err != nil {
		return b, j, err
	}
	return b, j, s.note(ctx, tx, audit.Entry{
		Action: JobDeleteBackup, Target: b.ID, Tenant: b.Tenant, Message: b.VolumeName + why,
	})
}

// removeAgain is how long something whose job has failed rests before it is removed at regular times: a bucket that
// does not answer would get a job and an audit entry for each of its backups in every round.
const removeAgain = time.Hour

// rested is the condition that no job of something has failed since a time, or is about to: what a job was about is at
// rest a moment before the job has ended.
const rested = `NOT EXISTS (SELECT 1 FROM operations o JOIN jobs j ON j.id = o.id WHERE o.resource_id = %s.id
	AND (j.finished_at IS NULL OR j.state = 'failed' AND j.finished_at > ?))`

// ExpireBackups begins the removal of some backups that are older than they may be, or of which there are enough newer
// ones.
func (s *Store) ExpireBackups(ctx context.Context, begin Begin) error {
	const atOnce = 50
	now := s.now()
	since := db.At(now.Add(-removeAgain))
	return s.update(ctx, func(tx *db.Tx) error {
		var old []string
		if err := tx.Select(ctx, &old, "SELECT id FROM backups WHERE expires_at < ? AND state IN (?, ?) AND "+
			fmt.Sprintf(rested, "backups")+" ORDER BY id LIMIT ?",
			db.At(now), state.BackupCompleted, state.BackupFailed, since, atOnce); err != nil {
			return err
		}
		for _, id := range old {
			if _, _, err := s.deleteBackup(ctx, tx, id, ": it has expired", begin); err != nil {
				return err
			}
		}
		// The newest one of a volume in a bucket, of the same mode, says how many are kept.
		var many []string
		if err := tx.Select(ctx, &many, `SELECT b.id FROM backups b WHERE b.state = ? AND `+fmt.Sprintf(rested, "b")+` AND
			(SELECT COUNT(*) FROM backups n WHERE n.volume_id = b.volume_id AND n.bucket_id = b.bucket_id AND n.mode = b.mode
				AND n.state = b.state AND n.id > b.id) >=
			(SELECT CASE WHEN k.keep > 0 THEN k.keep ELSE 1000000 END FROM backups k WHERE k.volume_id = b.volume_id
				AND k.bucket_id = b.bucket_id AND k.mode = b.mode AND k.state = b.state ORDER BY k.id DESC LIMIT 1)
			ORDER BY b.id LIMIT ?`, state.BackupCompleted, since, atOnce); err != nil {
			return err
		}
		for _, id := range many {
			if _, _, err := s.deleteBackup(ctx, tx, id, ": there are enough newer ones", begin); err != nil {
				return err
			}
		}
		return nil
	})
}

// EndBackupDeletion stores how the removal of a backup ended.
func (s *Store) EndBackupDeletion(ctx context.Context, a BackupArgs, failed error) error {
	return s.update(ctx, func(tx *db.Tx) error {
		if failed == nil {
			_, err := tx.Exec(ctx, "DELETE FROM backups WHERE id = ?", a.ID)
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE backups SET state = ?, last_error = ? WHERE id = ? AND state = ?",
			a.Before, fault.From(failed).Message, a.ID, state.BackupDeleting)
		return err
	})
}

// usableBackup returns a backup that has data, for reading.
func (s *Store) usableBackup(ctx context.Context, tx *db.Tx, id string) (Backup, error) {
	b, err := backupIn(ctx, tx, id, tx.ForUpdate())
	switch {
	case err != nil:
		return b, err
	case b.State != state.BackupCompleted:
		return b, fault.New(fault.Conflict, "the backup is %s, not %s", b.State, state.BackupCompleted)
	case b.Mode != ModeData:
		return b, fault.New(fault.Invalid, "the backup is of the mode %s, and has no data", b.Mode).WithCode("unsupported")
	}
	return b, nil
}

// VerifyBackup begins to check a backup.
func (s *Store) VerifyBackup(ctx context.Context, id, method string, begin Begin) (b Backup, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if b, err = s.usableBackup(ctx, tx, id); err != nil {
			return err
		}
		if method == MethodSource && b.Base == "" {
			return fault.New(fault.Conflict, "the snapshot that the backup is of is not kept any more; it can be checked by the "+
				"method %s", MethodStored)
		}
		j = newJob(JobVerifyBackup, b.Tenant, TypeBackup, b.ID)
		if err := begin(ctx, tx, &j, BackupArgs{ID: b.ID, Method: method}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: JobVerifyBackup, Target: b.ID, Tenant: b.Tenant, Message: b.VolumeName + ", " + method,
		})
	})
	return b, j, err
}

// Methods of checks.
const (
	MethodStored  = "stored"
	MethodSource  = "source"
	MethodRestore = "restore"
)

// SetVerified stores what the newest check of a backup has found.
func (s *Store) SetVerified(ctx context.Context, b *Backup) error {
	return s.update(ctx, func(tx *db.Tx) error {
		j, err := newest(ctx, tx, JobVerifyBackup, b.ID)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE backups SET verified_by = ?, verified_ok = ?, verified_what = ?, verified_job = ?,
			verified_at = ? WHERE id = ?`, b.VerifiedBy, b.VerifiedOK, b.VerifiedWhat, j.ID, db.At(s.now()), b.ID)
		return err
	})
}

// RestoreRequest describes a volume to make of a backup.
type RestoreRequest struct {
	Name     string
	NameFrom string // if Name is empty: the name, with %s for that of the volume
	Policy   string // empty: where the volume was
	Size     int64  // bytes; 0: that of the backup
}

// RestoreArgs are the arguments of a job that makes a volume of a backup.
type RestoreArgs struct {
	VolumeArgs
	Backup string
	// Beside is the id of the volume that is made first and then put in the place of the one that is put back. Empty: the
	// volume is new.
	Beside string `json:",omitempty"`
}

// RestoreBackup stores a volume that is to be made of a backup, and begins the job.
func (s *Store) RestoreBackup(
	ctx context.Context, id string, req RestoreRequest, begin Begin,
) (v Volume, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		b, err := s.usableBackup(ctx, tx, id)
		if err != nil {
			return err
		}
		place, policy, owner, err := placeToRestore(ctx, tx, &b, req.Policy)
		if err != nil {
			return err
		}
		if err := errors.Join(place.Backend.Writable(), place.Backend.offers(driver.Block)); err != nil {
			return err
		}
		if req.Size != 0 && req.Size < b.Size {
			return fault.InvalidField("size_bytes", "must be at least that of the backup, %d bytes", b.Size)
		}
		size := max(req.Size, b.Size)
		if err := s.admit(ctx, tx, "tenant_id", b.Tenant, Use{Volumes: 1, Bytes: size}); err != nil {
			return err
		}
		name := req.Name
		if name == "" {
			name = fmt.Sprintf(req.NameFrom, b.VolumeName)
		}
		newID, now := NewID(), db.At(s.now())
		v = Volume{
			ID: newID, Tenant: b.Tenant, Name: name, ClusterID: place.Cluster.ID, PoolID: place.Pool.ID,
			Native: driver.VolumeName(newID), Kind: driver.Block, Policy: policy, State: state.Creating, Health: driver.Unknown,
			Asked: size, Size: size, Used: -1, CreatedAt: now, UpdatedAt: now,
		}
		v.belongs(owner)
		if err := tx.Insert(ctx, "volumes", &v); err != nil {
			return err
		}
		j = newJob(JobRestoreBackup, v.Tenant, TypeVolume, v.ID)
		if err := begin(ctx, tx, &j, RestoreArgs{VolumeArgs: VolumeArgs{ID: v.ID}, Backup: b.ID}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: JobRestoreBackup, Target: v.ID, Tenant: v.Tenant,
			Message: fmt.Sprintf("%s of the backup %s of %s", v.Name, b.ID, b.VolumeName),
		})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "there is a volume of this name already").WithField("name")
	}
	return v, j, err
}

// RestoreInPlace stores that a volume is put back to a backup, and begins the job.
func (s *Store) RestoreInPlace(ctx context.Context, id string, begin Begin) (v Volume, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		b, err := s.usableBackup(ctx, tx, id)
		if err != nil {
			return err
		}
		v, err = volumeIn(ctx, tx, b.VolumeID, tx.ForUpdate())
		if fault.Is(err, fault.NotFound) {
			return fault.New(fault.Conflict, "the volume of the backup is gone; restore the backup to a new one")
		}
		if err != nil {
			return err
		}
		place, err := placeOf(ctx, tx, &v)
		if err != nil {
			return err
		}
		before := v.State
		next, err := v.State.Begin(state.Restore)
		switch {
		case v.Foreign:
			return place.Backend.foreign()
		case err != nil:
			return err
		case v.Size < b.Size:
			return fault.New(fault.Conflict, "the volume has %d bytes, and the backup %d; expand the volume first", v.Size, b.Size)
		}
		err = errors.Join(place.Backend.Writable(), unkept(ctx, tx, &v), ungrouped(ctx, tx, &v), unmirrored(ctx, tx, &v))
		if err != nil {
			return err
		}
		v.State, v.LastError = next, ""
		if err := s.save(ctx, tx, &v); err != nil {
			return err
		}
		j = newJob(JobRestoreBackup, v.Tenant, TypeVolume, v.ID)
		if err := begin(ctx, tx, &j, RestoreArgs{
			VolumeArgs: VolumeArgs{ID: v.ID, Before: before}, Backup: b.ID, Beside: NewID(),
		}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: JobRestoreBackup, Target: v.ID, Tenant: v.Tenant,
			Message: fmt.Sprintf("%s in place, to the backup %s", v.Name, b.ID),
		})
	})
	return v, j, err
}

// PlaceToRestore returns where a backup would be restored to.
func (s *Store) PlaceToRestore(ctx context.Context, b *Backup) (Place, error) {
	p, _, _, err := placeToRestore(ctx, s.db, b, "")
	return p, err
}

// placeToRestore returns where a volume is made of a backup: as a policy says, or without one where the volume was.
func placeToRestore(
	ctx context.Context, q db.Querier, b *Backup, named string,
) (p Place, policy string, owner Owner, err error) {
	var was Volume
	err = q.Get(ctx, &was, "SELECT * FROM volumes WHERE id = ?", b.VolumeID)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return p, "", owner, err
	}
	owner = was.Owner.V
	if err == nil && named == "" {
		p, err = placeOf(ctx, q, &was)
		return p, was.Policy, owner, err
	}
	req := VolumeRequest{Policy: named, Kind: driver.Block}
	if p, err = placeFor(ctx, q, &req); err != nil {
		return p, "", owner, err
	}
	if req.Kind != driver.Block {
		return p, "", owner, fault.InvalidField("policy", "the policy %s makes volumes of the kind %s, and the backup is of a block "+
			"volume", req.Policy, req.Kind)
	}
	return p, req.Policy, owner, nil
}

// ImportArgs are the arguments of a job that takes in the backups of a bucket.
type ImportArgs struct {
	Bucket, KeyRef string
	Tenant         *string `json:",omitempty"` // take in only those of this tenant; nil: of all
}

// ImportBackups begins to take in the backups of a bucket that are not known. From a bucket of a tenant, which can
// write what it likes there, only that tenant's are taken in.
func (s *Store) ImportBackups(ctx context.Context, a ImportArgs, begin Begin) (b Bucket, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if b, err = bucketIn(ctx, tx, a.Bucket, tx.ForUpdate()); err != nil {
			return err
		}
		if b.State != state.BucketBound {
			return fault.New(fault.Conflict, "the bucket is %s, not %s", b.State, state.BucketBound)
		}
		if b.Tenant != "" {
			if a.Tenant != nil && *a.Tenant != b.Tenant {
				return fault.InvalidField("tenant_id", "the bucket belongs to the tenant %s", b.Tenant)
			}
			a.Tenant = &b.Tenant
		}
		if a.Tenant != nil {
			if err := s.admit(ctx, tx, "tenant_id", *a.Tenant, Use{}); err != nil {
				return err
			}
		}
		j = newJob(JobImportBackups, b.Tenant, TypeBucket, b.ID)
		if err := begin(ctx, tx, &j, a); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: JobImportBackups, Target: b.ID, Tenant: b.Tenant, Message: b.Name})
	})
	return b, j, err
}

// AddBackup stores a backup that was found in a bucket. known reports whether it was there already.
func (s *Store) AddBackup(ctx context.Context, b *Backup) (known bool, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		var id string
		err := tx.Get(ctx, &id, "SELECT id FROM backups WHERE id = ? OR bucket_id = ? AND repository_id = ? AND ? <> ''",
			b.ID, b.BucketID, b.RepositoryID, b.RepositoryID)
		if err == nil {
			known = true
			return nil
		}
		if !errors.Is(err, db.ErrNoRows) {
			return err
		}
		return tx.Insert(ctx, "backups", b)
	})
	return known, err
}

// NoteImport writes the audit entry of what was taken in from a bucket.
func (s *Store) NoteImport(ctx context.Context, bucket, message string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		b, err := bucketIn(ctx, tx, bucket, "")
		if err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "backup.imported", Target: b.ID, Tenant: b.Tenant, Message: message})
	})
}

// BackupBuckets lists the buckets with backups that have data, with the keys that these are encrypted with.
func (s *Store) BackupBuckets(ctx context.Context) (all []BackupBucket, err error) {
	return all, s.db.Select(ctx, &all,
		"SELECT DISTINCT bucket_id, key_ref FROM backups WHERE mode = ? ORDER BY bucket_id, key_ref", ModeData)
}

// BackupBucket is a bucket with backups that are encrypted with a key. Without a name, it is the gateway's own key.
type BackupBucket struct {
	Bucket string `db:"bucket_id"`
	KeyRef string `db:"key_ref"`
}

// LostBackups lists backups that wait for the end of a job that there is not any more.
func (s *Store) LostBackups(ctx context.Context) (all []Backup, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM backups WHERE state IN (?, ?, ?, ?) AND "+
		fmt.Sprintf(lost, "backups")+" AND EXISTS (SELECT 1 FROM buckets b WHERE b.id = backups.bucket_id AND b.state = ?) "+
		"ORDER BY id LIMIT 100",
		state.BackupPending, state.BackupUploading, state.BackupVerifying, state.BackupDeleting, state.BucketBound)
}

// backupsIn checks that a bucket that is deleted has no backups. With force, they are lost with it.
func backupsIn(ctx context.Context, tx *db.Tx, bucket string, force bool) error {
	if force {
		_, err := tx.Exec(ctx, "UPDATE backups SET state = ? WHERE bucket_id = ?", state.BackupDeleting, bucket)
		return err
	}
	var n int64
	if err := tx.Get(ctx, &n, "SELECT COUNT(*) FROM backups WHERE bucket_id = ?", bucket); err != nil {
		return err
	}
	if n > 0 {
		return fault.New(fault.Conflict, "the bucket has %d backups; delete them first, or force it: they are lost with it", n)
	}
	return nil
}
