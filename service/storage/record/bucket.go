package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// Bucket is a bucket of a tenant.
type Bucket struct {
	ID            string       `db:"id"`
	Tenant        string       `db:"tenant"`
	Name          string       `db:"name"`
	BackendID     string       `db:"backend_id"`
	ConnectionRef string       `db:"connection_ref"`
	Native        string       `db:"native"`
	User          string       `db:"user_name"`
	Endpoint      string       `db:"endpoint"`
	Region        string       `db:"region"`
	Secret        string       `db:"secret"` // sealed
	MaxObjects    int64        `db:"max_objects"`
	MaxSize       int64        `db:"max_bytes"`
	Versioning    bool         `db:"versioning"`
	State         state.Bucket `db:"state"`
	Made          bool         `db:"made"` // it was bound once
	LastError     string       `db:"last_error"`
	CreatedAt     db.Time      `db:"created_at"`
	UpdatedAt     db.Time      `db:"updated_at"`
}

// Adopted reports whether the bucket existed before, and is only read.
func (b *Bucket) Adopted() bool { return b.ConnectionRef != "" }

// NativeName returns what the object gateway calls the bucket and its user.
func (b *Bucket) NativeName() driver.BucketName {
	return driver.BucketName{Bucket: b.Native, User: b.User}
}

// SecretRef returns the name of what holds the bucket's keys.
func (b *Bucket) SecretRef() string {
	if b.Adopted() {
		return b.ConnectionRef
	}
	return "bucket-" + b.ID
}

// BucketRequest describes a bucket to make, or to take in.
type BucketRequest struct {
	Tenant, Name        string
	Backend             string // an id or a name; empty: the only one that has buckets
	MaxObjects, MaxSize int64  // 0: no limit
	Versioning          bool
	ConnectionRef       string // the entry of the settings that tells of it; empty: it is made
}

var errNoBucket = fault.New(fault.NotFound, "there is no such bucket")

// BucketFilter selects buckets. Empty fields select all.
type BucketFilter struct {
	State, Tenant string
	Backend       string // its id or name
	Before        string // only buckets before this id
}

// Buckets lists buckets in the caller's scope, newest first.
func (s *Store) Buckets(ctx context.Context, f BucketFilter, limit int) (all []Bucket, err error) {
	scope := caller.From(ctx).Scope()
	for _, c := range []struct{ condition, value string }{
		{"state = ?", f.State}, {"tenant = ?", f.Tenant}, {"id < ?", f.Before},
		{"backend_id IN (SELECT id FROM backends WHERE ? IN (id, name))", f.Backend},
	} {
		if c.value != "" {
			scope = scope.And(c.condition, c.value)
		}
	}
	condition, args := scope.SQL()
	return all, s.db.Select(ctx, &all,
		"SELECT * FROM buckets WHERE "+condition+" ORDER BY id DESC LIMIT ?", append(args, limit)...)
}

// Bucket returns a bucket in the caller's scope.
func (s *Store) Bucket(ctx context.Context, id string) (Bucket, error) {
	return bucketIn(ctx, s.db, id, "")
}

func bucketIn(ctx context.Context, q db.Querier, id, lock string) (b Bucket, err error) {
	err = q.Get(ctx, &b, "SELECT * FROM buckets WHERE id = ?"+lock, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(b.Tenant) {
		return Bucket{}, errNoBucket
	}
	return b, err
}

// BucketsNamed returns the buckets of all tenants with a name or an id. It needs no Store.
func BucketsNamed(ctx context.Context, q db.Querier, name string) (all []Bucket, err error) {
	return all, q.Select(ctx, &all, "SELECT * FROM buckets WHERE id = ? OR name = ? ORDER BY tenant", name, name)
}

// ResealBuckets seals the keys of buckets again with the current key, where they are not, and returns how many cannot
// be opened.
func ResealBuckets(ctx context.Context, tx *db.Tx, sealer *auth.Sealer) (unreadable int, err error) {
	_, unreadable, err = keyring.Reseal(ctx, tx, sealer, "buckets", "id")
	return unreadable, err
}

// bucketPlace returns the backend in which a bucket is made.
func bucketPlace(ctx context.Context, q db.Querier, named string) (b Backend, err error) {
	var all []Backend
	if err := q.Select(ctx, &all, "SELECT * FROM backends WHERE ? IN ('', id, name) ORDER BY id", named); err != nil {
		return b, err
	}
	if named != "" && len(all) == 0 {
		return b, fault.InvalidField("backend_id", "there is no backend %s", named)
	}
	all = slices.DeleteFunc(all, func(b Backend) bool { return !b.Capabilities.V.Object })
	switch {
	case len(all) == 1:
		return all[0], nil
	case named != "":
		return b, fault.InvalidField("backend_id", "the backend %s has no buckets", named).WithCode("unsupported")
	case len(all) == 0:
		return b, fault.InvalidField("backend_id", "no backend has buckets").WithCode("unsupported")
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return b, fault.InvalidField("backend_id", "several backends have buckets: %s", strings.Join(names, ", "))
}

// CreateBucket stores a bucket that is to be made or taken in, and begins its job. A request that is repeated gets the
// bucket and the job that it began; one for a bucket that could not be made tries again.
func (s *Store) CreateBucket(ctx context.Context, req BucketRequest, begin Begin) (b Bucket, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		b, j = Bucket{}, Job{}
		if err := s.admit(ctx, tx, "tenant_id", req.Tenant, Use{}); err != nil {
			return err
		}
		err := tx.Get(ctx, &b, "SELECT * FROM buckets WHERE tenant = ? AND name = ?"+tx.ForUpdate(), req.Tenant, req.Name)
		switch {
		case err == nil:
			j, err = s.bucketAgain(ctx, tx, &b, &req, begin)
			return err
		case !errors.Is(err, db.ErrNoRows):
			return err
		}
		return s.addBucket(ctx, tx, &b, &j, &req, begin)
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "the bucket of the entry %s was taken in already", req.ConnectionRef).
			WithField("connection_ref")
	}
	return b, j, err
}

// bucketAgain answers a request for a bucket that exists, with its job.
func (s *Store) bucketAgain(ctx context.Context, tx *db.Tx, b *Bucket, req *BucketRequest, begin Begin) (Job, error) {
	at := b.BackendID
	if req.Backend != "" && req.Backend != at {
		named, err := bucketPlace(ctx, tx, req.Backend)
		if err != nil {
			return Job{}, err
		}
		at = named.ID
	}
	switch {
	case b.State == state.BucketDeleting, b.State == state.BucketFailed && b.Made:
		return Job{}, fault.New(fault.Conflict, "there is a bucket named %s, which is being deleted, or could not be; "+
			"delete it first", b.Name).WithField("name")
	case at != b.BackendID, b.MaxObjects != req.MaxObjects, b.MaxSize != req.MaxSize, b.Versioning != req.Versioning,
		b.ConnectionRef != req.ConnectionRef:
		return Job{}, fault.New(fault.Conflict, "there is a bucket named %s already, which was made in another way", b.Name).
			WithField("name")
	}
	if b.State != state.BucketFailed {
		if j, err := newest(ctx, tx, JobCreateBucket, b.ID); err != nil || j.ID != "" {
			return j, err
		}
	} else {
		b.State, b.LastError = state.BucketPending, ""
		if err := s.saveBucket(ctx, tx, b); err != nil {
			return Job{}, err
		}
		if err := s.noteBucket(ctx, tx, b); err != nil {
			return Job{}, err
		}
	}
	j := newJob(JobCreateBucket, b.Tenant, TypeBucket, b.ID)
	return j, begin(ctx, tx, &j, BucketArgs{ID: b.ID})
}

// addBucket stores a new bucket, and begins its job.
func (s *Store) addBucket(ctx context.Context, tx *db.Tx, b *Bucket, j *Job, req *BucketRequest, begin Begin) error {
	now := db.At(s.now())
	*b = Bucket{
		ID: NewID(), Tenant: req.Tenant, Name: req.Name, ConnectionRef: req.ConnectionRef, MaxObjects: req.MaxObjects,
		MaxSize: req.MaxSize, Versioning: req.Versioning, State: state.BucketPending, CreatedAt: now, UpdatedAt: now,
	}
	if !b.Adopted() {
		place, err := bucketPlace(ctx, tx, req.Backend)
		if err == nil {
			err = place.Writable()
		}
		if err != nil {
			return err
		}
		native := driver.NameBucket(b.Name, b.ID)
		b.BackendID, b.Native, b.User = place.ID, native.Bucket, native.User
	}
	if err := tx.Insert(ctx, "buckets", b); err != nil {
		return err
	}
	*j = newJob(JobCreateBucket, b.Tenant, TypeBucket, b.ID)
	if err := begin(ctx, tx, j, BucketArgs{ID: b.ID}); err != nil {
		return err
	}
	return s.noteBucket(ctx, tx, b)
}

// noteBucket writes the audit entry of a bucket that is to be made.
func (s *Store) noteBucket(ctx context.Context, tx *db.Tx, b *Bucket) error {
	message := fmt.Sprintf("%s, at most %d objects and %d bytes (0: no limit)", b.Name, b.MaxObjects, b.MaxSize)
	if b.Adopted() {
		message = fmt.Sprintf("%s, taken in by the entry %s", b.Name, b.ConnectionRef)
	}
	return s.note(ctx, tx, audit.Entry{Action: JobCreateBucket, Target: b.ID, Tenant: b.Tenant, Message: message})
}

// BucketArgs are the arguments of a job that changes a bucket.
type BucketArgs struct{ ID string }

// DeleteBucket stores that a bucket is removed or forgotten, and begins the job. Unless it is forced, one that has
// backups stays.
func (s *Store) DeleteBucket(ctx context.Context, id string, force bool, begin Begin) (b Bucket, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if b, err = bucketIn(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		if b.State == state.BucketDeleting {
			j, err = newest(ctx, tx, JobDeleteBucket, b.ID)
			return err
		}
		if !b.State.AtRest() {
			return fault.New(fault.Conflict, "the bucket is %s; wait until its job has ended", b.State)
		}
		if !b.Adopted() {
			place, err := backendIn(ctx, tx, b.BackendID, "")
			if err == nil && place.Mode == ReadOnly {
				err = place.Writable()
			}
			if err != nil {
				return err
			}
		}
		if err := backupsIn(ctx, tx, b.ID, force); err != nil {
			return err
		}
		b.State, b.LastError = state.BucketDeleting, ""
		if err := s.saveBucket(ctx, tx, &b); err != nil {
			return err
		}
		j = newJob(JobDeleteBucket, b.Tenant, TypeBucket, b.ID)
		if err := begin(ctx, tx, &j, BucketArgs{ID: b.ID}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: JobDeleteBucket, Target: b.ID, Tenant: b.Tenant, Message: b.Name})
	})
	return b, j, err
}

// saveBucket stores what may change of a bucket.
func (s *Store) saveBucket(ctx context.Context, tx *db.Tx, b *Bucket) error {
	b.UpdatedAt = db.At(s.now())
	_, err := tx.Exec(ctx, `UPDATE buckets SET native = ?, endpoint = ?, region = ?, secret = ?, state = ?, made = ?,
		last_error = ?, updated_at = ? WHERE id = ?`,
		b.Native, b.Endpoint, b.Region, b.Secret, b.State, b.Made, b.LastError, b.UpdatedAt, b.ID)
	return err
}

// BindBucket stores that a bucket was made or taken in: what the object gateway says of it, and its sealed keys.
func (s *Store) BindBucket(ctx context.Context, id string, seen *driver.Bucket, sealed string) error {
	return s.endBucket(ctx, id, state.BucketPending, func(tx *db.Tx, b *Bucket) error {
		b.Native, b.Endpoint, b.Region, b.Secret = seen.BucketName.Bucket, seen.Endpoint, seen.Region, sealed
		b.State, b.Made, b.LastError = state.BucketBound, true, ""
		return s.saveBucket(ctx, tx, b)
	})
}

// ForgetBucket stores that a bucket was removed.
func (s *Store) ForgetBucket(ctx context.Context, id string) error {
	return s.endBucket(ctx, id, state.BucketDeleting, func(tx *db.Tx, b *Bucket) error {
		_, err := tx.Exec(ctx, "DELETE FROM buckets WHERE id = ?", b.ID)
		return err
	})
}

// FailBucket stores why a job of a bucket that is in a state has failed.
func (s *Store) FailBucket(ctx context.Context, id string, during state.Bucket, why error) error {
	return s.endBucket(ctx, id, during, func(tx *db.Tx, b *Bucket) error {
		b.State, b.LastError = state.BucketFailed, fault.From(why).Message
		return s.saveBucket(ctx, tx, b)
	})
}

// endBucket changes a bucket at the end of a job, unless another run of the job has done so.
func (s *Store) endBucket(
	ctx context.Context, id string, during state.Bucket, change func(tx *db.Tx, b *Bucket) error,
) error {
	return s.update(ctx, func(tx *db.Tx) error {
		b, err := bucketIn(ctx, tx, id, tx.ForUpdate())
		if fault.Is(err, fault.NotFound) || err == nil && b.State != during {
			return nil
		}
		if err != nil {
			return err
		}
		return change(tx, &b)
	})
}

// LostBuckets lists buckets that wait for the end of a job that there is not any more.
func (s *Store) LostBuckets(ctx context.Context) (all []Bucket, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM buckets WHERE state IN (?, ?) AND "+fmt.Sprintf(lost, "buckets")+
		" ORDER BY id LIMIT 100", state.BucketPending, state.BucketDeleting)
}
