package bucket

import (
	"context"
	"encoding/json"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// seal seals the keys of the bucket with an id.
func seal(s *auth.Sealer, id string, keys driver.BucketKeys) (string, error) {
	text, err := json.Marshal(keys)
	if err != nil {
		return "", err
	}
	return s.Seal(text, id), nil
}

// Access is a bucket with the keys that open it.
type Access struct {
	Bucket record.Bucket
	Keys   driver.BucketKeys
}

// Access returns how the content of a bucket that is bound is reached, with its keys.
func (m *Manager) Access(ctx context.Context, id string) (driver.BucketAccess, error) {
	b, err := m.cfg.Store.Bucket(ctx, id)
	if err == nil {
		err = b.State.Usable()
	}
	if err != nil {
		return driver.BucketAccess{}, err
	}
	if b.Adopted() {
		s, err := m.single(&b)
		if err != nil {
			return driver.BucketAccess{}, err
		}
		return s.Access(), nil
	}
	d, err := m.maker(ctx, &b)
	if err != nil {
		return driver.BucketAccess{}, err
	}
	text, err := m.cfg.Sealer.Open(b.Secret, b.ID)
	if err != nil {
		return driver.BucketAccess{}, fault.Wrap(fault.Unavailable, err, "the keys of the bucket cannot be opened with the secret key")
	}
	var keys driver.BucketKeys
	err = json.Unmarshal(text, &keys)
	return d.Access(b.NativeName(), keys), err
}

// Open reads a bucket by its name or id, and opens its keys. It is for the host of the service, beside the service.
func Open(ctx context.Context, q db.Querier, s *auth.Sealer, name string) (out Access, err error) {
	all, err := record.BucketsNamed(ctx, q, name)
	switch {
	case err != nil:
		return out, err
	case len(all) == 0:
		return out, fault.New(fault.NotFound, "there is no bucket %s", name)
	case len(all) > 1:
		return out, fault.New(fault.Conflict, "%d tenants have a bucket named %s; give its id", len(all), name)
	}
	out.Bucket = all[0]
	switch {
	case out.Bucket.Adopted():
		return out, fault.New(fault.Conflict, "the keys of %s are in the file of the entry %s of the setting s3-buckets",
			name, out.Bucket.ConnectionRef)
	case out.Bucket.Secret == "":
		return out, fault.New(fault.Conflict, "the bucket %s is %s, and has no keys", name, out.Bucket.State)
	}
	text, err := s.Open(out.Bucket.Secret, out.Bucket.ID)
	if err != nil {
		return out, fault.Wrap(fault.Conflict, err, "the keys of %s cannot be opened with the secret key that is here", name)
	}
	return out, json.Unmarshal(text, &out.Keys)
}
