package rgw

import (
	"context"
	"errors"

	"github.com/minio/minio-go/v7"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// Single looks into one bucket that exists, in any S3 service. It is safe for concurrent use.
type Single struct {
	bucket
}

var _ driver.SingleBucket = (*Single)(nil)

// OpenSingle returns a Single. It sends nothing yet.
func OpenSingle(a Access) (*Single, error) {
	if err := a.complete(); err != nil {
		return nil, err
	}
	if a.Bucket == "" {
		return nil, fault.InvalidField("bucket", "must be given")
	}
	base, err := a.transport()
	return &Single{bucket{access: a, base: base, within: Within}}, err
}

// Reach returns the bucket without its content, if its keys list it.
func (s *Single) Reach(ctx context.Context) (driver.Bucket, error) {
	_, err := s.objects(ctx, driver.ObjectsQuery{Limit: 1})
	return s.known(), err
}

// Access returns how the bucket is reached.
func (s *Single) Access() driver.BucketAccess { return s.access.bucketAccess() }

// known returns what the settings say.
func (s *Single) known() driver.Bucket {
	return driver.Bucket{
		BucketName: driver.BucketName{Bucket: s.access.Bucket}, Endpoint: s.access.Endpoint, Region: s.access.Region,
	}
}

var errMany = fault.New(fault.Unavailable, "the bucket has more objects than can be counted in the time that there is")

// Bucket describes the bucket. S3 does not tell how much it holds, so that is counted, as long as ctx allows.
func (s *Single) Bucket(ctx context.Context, _ driver.BucketName) (driver.Bucket, error) {
	out := s.known()
	if err := s.describe(ctx, &out); err != nil {
		return out, err
	}
	c, err := s.client(ctx)
	if err != nil {
		return out, err
	}
	for o := range c.ListObjectsIter(ctx, s.access.Bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			err = o.Err
			break
		}
		out.Objects++
		out.Size += o.Size
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && out.Objects > 0 {
		return out, errMany
	}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	return out, judge(ctx, err)
}

// Objects lists a folder of the bucket.
func (s *Single) Objects(
	ctx context.Context, _ driver.BucketName, q driver.ObjectsQuery,
) (driver.ObjectsPage, error) {
	return s.objects(ctx, q)
}
