package rgw

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/lifecycle"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// bucket is a bucket of an S3 service, with keys for it.
type bucket struct {
	access Access // Bucket is its name
	base   http.RoundTripper
	within time.Duration
}

// client returns a client whose requests end with ctx. It keeps no connections of its own.
func (b *bucket) client(ctx context.Context) (*minio.Core, error) {
	at, err := url.Parse(b.access.Endpoint)
	if err != nil {
		return nil, err
	}
	c, err := minio.NewCore(at.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(b.access.Access, b.access.Secret, ""),
		Secure: at.Scheme == "https", Region: b.access.Region, BucketLookup: minio.BucketLookupPath, MaxRetries: 1,
		Transport: &transport{ctx: ctx, base: b.base, within: b.within},
	})
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the endpoint of the object gateway is not valid")
	}
	return c, nil
}

// create makes the bucket.
func (b *bucket) create(ctx context.Context) error {
	c, err := b.client(ctx)
	if err != nil {
		return err
	}
	return judge(ctx, c.MakeBucket(ctx, b.access.Bucket, minio.MakeBucketOptions{Region: b.access.Region}))
}

// keepVersions has the bucket keep what is overwritten or deleted.
func (b *bucket) keepVersions(ctx context.Context) error {
	c, err := b.client(ctx)
	if err != nil {
		return err
	}
	return judge(ctx, c.EnableVersioning(ctx, b.access.Bucket))
}

// describe adds to a bucket what S3 tells of it.
func (b *bucket) describe(ctx context.Context, out *driver.Bucket) error {
	c, err := b.client(ctx)
	if err != nil {
		return err
	}
	out.Endpoint, out.Region, out.Versioning = b.access.Endpoint, b.access.Region, driver.VersioningDisabled
	v, err := c.GetBucketVersioning(ctx, b.access.Bucket)
	switch {
	case withheld(err):
		out.Versioning = driver.VersioningUnknown
	case err != nil:
		return judge(ctx, err)
	case v.Status == minio.Enabled:
		out.Versioning = driver.VersioningEnabled
	case v.Status == minio.Suspended:
		out.Versioning = driver.VersioningSuspended
	}
	rules, err := c.GetBucketLifecycle(ctx, b.access.Bucket)
	if code(err) == "NoSuchLifecycleConfiguration" || withheld(err) {
		return nil
	}
	if err != nil {
		return judge(ctx, err)
	}
	for i := range rules.Rules {
		out.Rules = append(out.Rules, ruleOf(&rules.Rules[i]))
	}
	return nil
}

// withheld reports whether keys that may read a bucket may not see how it is set up, or the service does not tell that.
func withheld(err error) bool { return code(err) == "AccessDenied" || code(err) == "NotImplemented" }

func ruleOf(r *lifecycle.Rule) driver.BucketRule {
	return driver.BucketRule{
		ID: r.ID, Prefix: cmp.Or(r.Prefix, r.RuleFilter.Prefix, r.RuleFilter.And.Prefix), Enabled: r.Status == "Enabled",
		ExpireDays: int(r.Expiration.Days), NoncurrentDays: int(r.NoncurrentVersionExpiration.NoncurrentDays),
		AbortUploads: int(r.AbortIncompleteMultipartUpload.DaysAfterInitiation),
	}
}

// last is not before any key with the same beginning.
const last = "\U0010FFFF"

// objects lists a folder of the bucket. A page begins after the key that ends the page before: names for that which the
// service makes up cannot be read if keys have characters that XML does not.
func (b *bucket) objects(ctx context.Context, q driver.ObjectsQuery) (out driver.ObjectsPage, err error) {
	c, err := b.client(ctx)
	if err != nil {
		return out, err
	}
	page, err := c.ListObjectsV2(b.access.Bucket, q.Prefix, q.After, "", "/", q.Limit)
	if err != nil {
		return out, judge(ctx, err)
	}
	for _, o := range page.Contents {
		out.Objects = append(out.Objects, driver.BucketObject{Key: o.Key, Size: o.Size, Modified: o.LastModified})
	}
	for _, p := range page.CommonPrefixes {
		out.Objects = append(out.Objects, driver.BucketObject{Key: p.Prefix, Folder: true})
	}
	slices.SortFunc(out.Objects, func(a, b driver.BucketObject) int { return cmp.Compare(a.Key, b.Key) })
	if len(out.Objects) > q.Limit {
		return out, errSense
	}
	if n := len(out.Objects); page.IsTruncated && n > 0 {
		if out.Next = out.Objects[n-1].Key; out.Objects[n-1].Folder {
			out.Next += last
		}
		if out.Next <= q.After {
			return out, errSense
		}
	}
	return out, nil
}
