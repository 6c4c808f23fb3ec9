//go:build linux

package rgw_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/lifecycle"

	"github.com/mainstay-infra/mainstay/kit/cephtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/rgw"
)

// lab is a real object gateway.
type lab struct {
	*testing.T
	real *cephtest.Gateway
	*rgw.Gateway
}

func open(t *testing.T) *lab {
	t.Helper()
	real := cephtest.Start(t).StartGateway(t)
	g, err := rgw.OpenGateway(rgw.Access{
		Endpoint: real.URL, BucketKeys: driver.BucketKeys{Access: real.AccessKey, Secret: real.SecretKey},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &lab{t, real, g}
}

// name returns a name that nothing has yet.
func name(of string) driver.BucketName { return driver.NameBucket(of, uuid.NewString()) }

// made makes a bucket, and returns a client with its keys.
func (l *lab) made(spec driver.BucketSpec) *minio.Core {
	l.Helper()
	keys, err := l.CreateBucket(l.Context(), spec)
	if err != nil {
		l.Error(err)
	}
	return l.as(keys)
}

func (l *lab) as(keys driver.BucketKeys) *minio.Core {
	l.Helper()
	at, err := url.Parse(l.real.URL)
	if err != nil {
		l.Fatal(err)
	}
	c, err := minio.NewCore(at.Host, &minio.Options{
		Creds: credentials.NewStaticV4(keys.Access, keys.Secret, ""), Region: "us-east-1", MaxRetries: 3,
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		l.Fatal(err)
	}
	return c
}

// put stores an object.
func put(ctx context.Context, c *minio.Core, bucket, key string, size int) error {
	_, err := c.Client.PutObject(ctx, bucket, key, bytes.NewReader(make([]byte, size)), int64(size), minio.PutObjectOptions{})
	return err
}

// users returns the users that the object gateway has besides the admin.
func (l *lab) users() (all []string) {
	l.Helper()
	for _, u := range strings.Fields(l.real.Admin(l.T, "user", "list")) {
		if u = strings.Trim(u, `",[]`); u != "" && u != "admin" {
			all = append(all, u)
		}
	}
	return all
}

func TestABucketWithItsOwnUser(t *testing.T) {
	t.Parallel()
	l := open(t)
	t.Run("its keys open it and nothing else", func(t *testing.T) {
		one, two := name("one"), name("two")
		first, second := l.made(driver.BucketSpec{BucketName: one}), l.made(driver.BucketSpec{BucketName: two})
		if err := put(t.Context(), first, one.Bucket, "a", 10); err != nil {
			t.Fatal(err)
		}
		if _, err := first.StatObject(t.Context(), one.Bucket, "a", minio.StatObjectOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := second.StatObject(t.Context(), one.Bucket, "a", minio.StatObjectOptions{}); err == nil {
			t.Error("the keys of another bucket open it")
		}
		if err := put(t.Context(), second, one.Bucket, "b", 10); err == nil {
			t.Error("the keys of another bucket write to it")
		}
		if err := first.MakeBucket(t.Context(), "more-"+one.Bucket[4:], minio.MakeBucketOptions{}); err == nil {
			t.Error("its keys make more buckets")
		}
	})
	t.Run("the quota holds to the byte, also after it was made again", func(t *testing.T) {
		n := name("small")
		spec := driver.BucketSpec{BucketName: n, MaxObjects: 3, MaxSize: 10_000, Versioning: true}
		c := l.made(spec)
		if again := l.made(spec); again == nil {
			t.Error("not made again")
		}
		if err := put(t.Context(), c, n.Bucket, "too-large", 10_001); minio.ToErrorResponse(err).Code != "QuotaExceeded" {
			t.Errorf("%v", err)
		}
		if err := put(t.Context(), c, n.Bucket, "large", 9_000); err != nil {
			t.Error(err)
		}
		for i := range 2 {
			if err := put(t.Context(), c, n.Bucket, fmt.Sprint(i), 1); err != nil {
				t.Error(err)
			}
		}
		if err := put(t.Context(), c, n.Bucket, "fourth", 1); minio.ToErrorResponse(err).Code != "QuotaExceeded" {
			t.Errorf("%v", err)
		}
		b, err := l.Bucket(t.Context(), n)
		if err != nil || b.Objects != 3 || b.Size != 9_002 || b.MaxObjects != 3 || b.MaxSize != 10_000 ||
			b.Versioning != driver.VersioningEnabled || b.Rules != nil || b.Endpoint != l.real.URL {
			t.Errorf("%+v, %v", b, err)
		}
		if err := c.RemoveBucket(t.Context(), n.Bucket); err == nil {
			t.Error("a bucket with objects was removed")
		}
	})
	t.Run("rules are told", func(t *testing.T) {
		n := name("ruled")
		c := l.made(driver.BucketSpec{BucketName: n})
		rules := lifecycle.NewConfiguration()
		rules.Rules = []lifecycle.Rule{{
			ID: "old", Status: "Enabled", RuleFilter: lifecycle.Filter{Prefix: "logs/"},
			Expiration:                     lifecycle.Expiration{Days: 30},
			NoncurrentVersionExpiration:    lifecycle.NoncurrentVersionExpiration{NoncurrentDays: 7},
			AbortIncompleteMultipartUpload: lifecycle.AbortIncompleteMultipartUpload{DaysAfterInitiation: 2},
		}}
		if err := c.SetBucketLifecycle(t.Context(), n.Bucket, rules); err != nil {
			t.Fatal(err)
		}
		want := driver.BucketRule{ID: "old", Prefix: "logs/", Enabled: true, ExpireDays: 30, NoncurrentDays: 7, AbortUploads: 2}
		if b, err := l.Bucket(t.Context(), n); err != nil || len(b.Rules) != 1 || b.Rules[0] != want {
			t.Errorf("%+v, %v", b, err)
		}
	})
	t.Run("one of that name that is somebody else's stays", func(t *testing.T) {
		n, theirs := name("theirs"), driver.BucketKeys{Access: "theirs", Secret: "a secret of theirs"}
		l.real.Admin(t, "user", "create", "--uid", "they", "--display-name", "they", "--access-key", theirs.Access,
			"--secret-key", theirs.Secret)
		c := l.as(theirs)
		if err := errors.Join(c.MakeBucket(t.Context(), n.Bucket, minio.MakeBucketOptions{}), put(t.Context(), c, n.Bucket, "kept", 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.CreateBucket(t.Context(), driver.BucketSpec{BucketName: n}); !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
		if _, err := l.Bucket(t.Context(), n); !fault.Is(err, fault.Conflict) {
			t.Errorf("%v", err)
		}
		if err := l.DeleteBucket(t.Context(), n, func(float64) {}); err != nil {
			t.Errorf("%v", err)
		}
		if _, err := c.StatObject(t.Context(), n.Bucket, "kept", minio.StatObjectOptions{}); err != nil {
			t.Error(err)
		}
		if slices.Contains(l.users(), n.User) {
			t.Error("the user is left")
		}
	})
	t.Run("it goes with all versions, uploads and its user, whatever its keys are", func(t *testing.T) { l.purges(t) })
	t.Run("folders are listed page by page", func(t *testing.T) { l.lists(t) })
}

// odd are keys that are not valid, or special, somewhere.
var odd = []string{
	"a b", "a+b", "ä/ö", "<&>'\"", "%2F", "\x01", "\x01\x02", "new\nline", "tab\t", "back\\slash", "'", "?x=y#z", "..", "//", "/",
	"\ufffe", "😀",
}

func (l *lab) purges(t *testing.T) {
	ctx := t.Context()
	n := name("full")
	c := l.made(driver.BucketSpec{BucketName: n, Versioning: true})
	for _, key := range odd {
		if err := put(ctx, c, n.Bucket, key, 1); err != nil {
			t.Fatalf("%q: %v", key, err)
		}
	}
	work := make(chan string)
	failed := make(chan error, 8)
	for range cap(failed) {
		go func() {
			var err error
			for key := range work {
				err = errors.Join(err, put(ctx, c, n.Bucket, key, 1))
			}
			failed <- err
		}()
	}
	for i := range 2500 {
		work <- fmt.Sprintf("%d/%d", i%7, i-i%5) // five versions of each
	}
	close(work)
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Client.RemoveObject(ctx, n.Bucket, "0/0", minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err) // which leaves a marker
	}
	id, err := c.NewMultipartUpload(ctx, n.Bucket, "unfinished", minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 100)
	if _, err := c.PutObjectPart(ctx, n.Bucket, "unfinished", id, 1, bytes.NewReader(part), 100, minio.PutObjectPartOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a b", "%2F", "ä+"} {
		if _, err := c.NewMultipartUpload(ctx, n.Bucket, key, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// It begins, although the answer repeats a key that XML does not have.
	_, _ = c.NewMultipartUpload(ctx, n.Bucket, "\x01unfinished", minio.PutObjectOptions{})
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":["s3:DeleteObject",` +
		`"s3:DeleteObjectVersion"],"Resource":["arn:aws:s3:::` + n.Bucket + `/*"]}]}`
	if err := c.SetBucketPolicy(ctx, n.Bucket, policy); err != nil {
		t.Fatal(err)
	}
	// Broken off in the middle, it goes on later.
	some, cancel := context.WithCancel(ctx)
	if err := l.DeleteBucket(some, n, func(done float64) {
		if done > 0.3 {
			cancel()
		}
	}); err == nil {
		t.Error("it was not broken off")
	}
	if err := put(ctx, c, n.Bucket, "late", 1); err == nil {
		t.Error("the old keys still write")
	}
	var seen []float64
	if err := l.DeleteBucket(ctx, n, func(done float64) { seen = append(seen, done) }); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(seen) || len(seen) < 5 || seen[len(seen)-1] < 0.9 || seen[len(seen)-1] > 1 {
		t.Errorf("%v", seen)
	}
	if _, err := l.Bucket(ctx, n); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	if slices.Contains(l.users(), n.User) {
		t.Error("the user is left")
	}
	if err := l.DeleteBucket(ctx, n, func(float64) {}); err != nil {
		t.Errorf("what is gone: %v", err)
	}
}

func (l *lab) lists(t *testing.T) {
	n := name("listed")
	c := l.made(driver.BucketSpec{BucketName: n})
	for _, key := range append(odd, "a/1", "a/2", "b", "c/d/e", "z") {
		if err := put(t.Context(), c, n.Bucket, key, 3); err != nil {
			t.Fatalf("%q: %v", key, err)
		}
	}
	var want []string
	for _, key := range append(odd, "a/1", "b", "c/d/e", "z") {
		if i := strings.Index(key, "/"); i >= 0 {
			key = key[:i+1]
		}
		want = append(want, key)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	for _, limit := range []int{1, 2, 3, 7, 1000} {
		var got []string
		q := driver.ObjectsQuery{Limit: limit}
		for range 100 {
			page, err := l.Objects(t.Context(), n, q)
			if err != nil {
				t.Fatalf("after %q, %d: %v", q.After, limit, err)
			}
			for _, o := range page.Objects {
				if got = append(got, o.Key); o.Folder != strings.HasSuffix(o.Key, "/") || o.Folder != o.Modified.IsZero() || !o.Folder && o.Size != 3 {
					t.Errorf("%+v", o)
				}
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %d:\n%q, want\n%q", limit, got, want)
		}
	}
	page, err := l.Objects(t.Context(), n, driver.ObjectsQuery{Prefix: "c/d/", Limit: 10})
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != "c/d/e" || time.Since(page.Objects[0].Modified) > time.Hour {
		t.Errorf("%+v, %v", page, err)
	}
}
