package rgw

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// batch is how many objects are removed with one request, which takes the slowest of gateways a few seconds.
	batch = 100
	// repeats is how often the same is removed again.
	repeats = 5
	// rounds is how often a bucket is emptied in which something appears meanwhile.
	rounds = 5
)

var errStuck = fault.New(fault.Unavailable, "the object gateway does not remove what it says it has removed")

// stuck notices that a list begins with the same again and again. A few times that is so when an earlier run, which was
// broken off, has left requests that are still under way.
type stuck struct {
	first string
	times int
}

// on reports whether the list has begun with first too often.
func (s *stuck) on(first string) bool {
	if s.first != first {
		*s = stuck{first: first}
	}
	s.times++
	return s.times > repeats
}

// purge removes the bucket with all that it holds. removed is called with how much more was removed.
func (b *bucket) purge(ctx context.Context, removed func(more int)) error {
	c, err := b.client(ctx)
	if err != nil {
		return err
	}
	if err := b.dropPolicy(ctx, c); err != nil {
		return err
	}
	for range rounds {
		if err := b.purgeObjects(ctx, c, removed); err != nil {
			return err
		}
		if err := b.purgeUploads(ctx, c); err != nil {
			return err
		}
		err := c.RemoveBucket(ctx, b.access.Bucket)
		if code(err) != "BucketNotEmpty" {
			return judge(ctx, err)
		}
	}
	return fault.New(fault.Conflict, "the bucket is written to while it is emptied")
}

// dropPolicy removes the bucket's policy, which could keep its owner from removing objects.
func (b *bucket) dropPolicy(ctx context.Context, c *minio.Core) error {
	err := c.SetBucketPolicy(ctx, b.access.Bucket, "")
	r, _ := errors.AsType[minio.ErrorResponse](err)
	if r.Code == "NoSuchBucketPolicy" || r.StatusCode == http.StatusOK { // as RGW says that there is none
		return nil
	}
	return judge(ctx, err)
}

// purgeObjects removes all versions of objects, in batches. It always begins at the first one that is left.
func (b *bucket) purgeObjects(ctx context.Context, c *minio.Core, removed func(more int)) error {
	var same stuck
	for {
		some, err := b.versions(ctx, c)
		if err != nil || len(some) == 0 {
			return err
		}
		if same.on(some[0].Key + "\x00" + some[0].VersionID) {
			return errStuck
		}
		results, err := c.RemoveObjectsWithIter(ctx, b.access.Bucket, func(yield func(minio.ObjectInfo) bool) {
			for i := range some {
				if !yield(some[i]) {
					return
				}
			}
		}, minio.RemoveObjectsOptions{})
		if err != nil {
			return judge(ctx, err)
		}
		for r := range results {
			if r.Err != nil {
				return judge(ctx, r.Err)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		removed(len(some))
	}
}

// versions returns the first versions of objects, and markers of their deletion, that the bucket has.
func (b *bucket) versions(ctx context.Context, c *minio.Core) (some []minio.ObjectInfo, err error) {
	for o := range c.ListObjectsIter(ctx, b.access.Bucket, minio.ListObjectsOptions{
		WithVersions: true, Recursive: true, MaxKeys: batch,
	}) {
		if o.Err != nil {
			return nil, judge(ctx, o.Err)
		}
		if some = append(some, o); len(some) == batch {
			break
		}
	}
	return some, nil
}

// purgeUploads ends the uploads that were not finished. Those whose keys the client does not take, which have nothing
// but spaces, go with the bucket.
func (b *bucket) purgeUploads(ctx context.Context, c *minio.Core) error {
	var same stuck
	for {
		page, err := c.ListMultipartUploads(ctx, b.access.Bucket, "", "", "", "", batch)
		if err != nil {
			return judge(ctx, err)
		}
		uploads := slices.DeleteFunc(page.Uploads, func(u minio.ObjectMultipartInfo) bool {
			return strings.TrimSpace(unescaped(u.Key)) == ""
		})
		if len(uploads) == 0 {
			return nil
		}
		if same.on(uploads[0].UploadID) {
			return errStuck
		}
		for _, u := range uploads {
			// RGW escapes keys in this list, and does not say so.
			for _, key := range []string{u.Key, unescaped(u.Key)} {
				err := c.AbortMultipartUpload(ctx, b.access.Bucket, key, u.UploadID)
				if err != nil && code(err) != "NoSuchUpload" {
					return judge(ctx, err)
				}
			}
		}
	}
}

// unescaped returns a key that may be escaped for URLs.
func unescaped(key string) string {
	if plain, err := url.QueryUnescape(key); err == nil {
		return plain
	}
	return key
}
