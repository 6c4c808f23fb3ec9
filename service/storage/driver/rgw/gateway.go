package rgw

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Gateway makes buckets in an object gateway. It is safe for concurrent use.
type Gateway struct {
	admin
}

var _ driver.Buckets = (*Gateway)(nil)

// OpenGateway returns a Gateway. The keys are those of a user with the capabilities users=* and buckets=*. It sends
// nothing yet.
func OpenGateway(a Access) (*Gateway, error) {
	if err := a.complete(); err != nil {
		return nil, err
	}
	base, err := a.transport()
	return &Gateway{admin{access: a, base: base, within: Within}}, err
}

// as returns a bucket, with keys for it.
func (g *Gateway) as(name string, keys driver.BucketKeys) *bucket {
	a := g.access
	a.Bucket, a.BucketKeys = name, keys
	return &bucket{access: a, base: g.base, within: g.within}
}

// Access returns how a bucket is reached with the keys of its user.
func (g *Gateway) Access(name driver.BucketName, keys driver.BucketKeys) driver.BucketAccess {
	b := g.as(name.Bucket, keys)
	return b.access.bucketAccess()
}

// reach returns a bucket with the keys of its user. It fails with a fault of kind NotFound if the user is gone.
func (g *Gateway) reach(ctx context.Context, name driver.BucketName) (*bucket, error) {
	u, err := g.user(ctx, name.User)
	if err != nil {
		return nil, err
	}
	if len(u.Keys) == 0 {
		return nil, fault.New(fault.Unavailable, "the user of the bucket has no keys any more")
	}
	return g.as(name.Bucket, u.keys()), nil
}

// CreateBucket makes a user and its bucket.
func (g *Gateway) CreateBucket(ctx context.Context, spec driver.BucketSpec) (keys driver.BucketKeys, err error) {
	_, err = g.bucket(ctx, spec.BucketName)
	there := err == nil
	if !there && !fault.Is(err, fault.NotFound) {
		return keys, err
	}
	u, err := g.ensureUser(ctx, spec.User)
	if err != nil {
		return keys, err
	}
	b := g.as(spec.Bucket, u.keys())
	if !there {
		if err := g.limitBuckets(ctx, spec.User, oneBucket); err != nil {
			return keys, err
		}
		if err := b.create(ctx); err != nil {
			return keys, err
		}
	}
	if spec.Versioning {
		if err := b.keepVersions(ctx); err != nil {
			return keys, err
		}
	}
	if err := g.limit(ctx, spec.BucketName, quotaOf(spec.MaxObjects, spec.MaxSize)); err != nil {
		return keys, err
	}
	return u.keys(), g.limitBuckets(ctx, spec.User, noBuckets)
}

// Bucket returns a bucket as the object gateway has it.
func (g *Gateway) Bucket(ctx context.Context, name driver.BucketName) (driver.Bucket, error) {
	info, err := g.bucket(ctx, name)
	if err != nil {
		return driver.Bucket{}, err
	}
	b, err := g.reach(ctx, name)
	if err != nil {
		return driver.Bucket{}, err
	}
	out := driver.Bucket{BucketName: name, Objects: info.Usage.Main.Objects, Size: info.Usage.Main.Size}
	out.MaxObjects, out.MaxSize = info.Quota.limits()
	return out, b.describe(ctx, &out)
}

// Objects lists a folder of a bucket.
func (g *Gateway) Objects(
	ctx context.Context, name driver.BucketName, q driver.ObjectsQuery,
) (driver.ObjectsPage, error) {
	b, err := g.reach(ctx, name)
	if err != nil {
		return driver.ObjectsPage{}, err
	}
	return b.objects(ctx, q)
}

// DeleteBucket removes a bucket with its content, and its user. A bucket of the name that is somebody else's stays.
func (g *Gateway) DeleteBucket(ctx context.Context, name driver.BucketName, progress func(float64)) error {
	info, err := g.bucket(ctx, name)
	if err == nil {
		err = g.empty(ctx, name, info.Usage.Main.Objects, progress)
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !errors.Is(err, errTaken) {
		return err
	}
	return g.removeUser(ctx, name.User)
}

// empty removes a bucket with its content. holds is how many objects that is, about.
func (g *Gateway) empty(ctx context.Context, name driver.BucketName, holds int64, progress func(float64)) error {
	u, err := g.user(ctx, name.User)
	if err != nil {
		return err
	}
	keys, err := g.renewKeys(ctx, u)
	if err != nil {
		return err
	}
	done := 0
	return g.as(name.Bucket, keys).purge(ctx, func(more int) {
		done += more
		progress(min(1, float64(done)/float64(max(1, holds))))
	})
}
