package rgw

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
)

// admin speaks to the API of an object gateway for its users and buckets.
type admin struct {
	access Access
	base   http.RoundTripper
	within time.Duration
}

// call sends a request, and reads its answer into out unless that is nil.
func (a *admin) call(ctx context.Context, method, path string, q url.Values, in, out any) error {
	var text []byte
	if in != nil {
		var err error
		if text, err = json.Marshal(in); err != nil {
			return err
		}
	}
	q.Set("format", "json")
	at := a.access.Endpoint + "/admin/" + path + "?" + q.Encode()
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(text))
	if err != nil {
		return fault.Wrap(fault.Internal, err, "a request to the object gateway is not valid")
	}
	// RGW takes no signed content for these operations. The query, with what is done to what, is signed.
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	r = signer.SignV4(*r, a.access.Access, a.access.Secret, "", a.access.Region)
	client := http.Client{
		Transport:     &transport{ctx: ctx, base: a.base, within: a.within},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		return judge(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer := json.NewDecoder(resp.Body)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		var failed struct{ Code string }
		_ = answer.Decode(&failed) // the status says enough
		return judge(ctx, minio.ErrorResponse{StatusCode: resp.StatusCode, Code: failed.Code})
	}
	if out == nil {
		return nil
	}
	return judge(ctx, answer.Decode(out))
}

// user is a user of the object gateway.
type user struct {
	ID         string       `json:"user_id"`
	MaxBuckets int          `json:"max_buckets"` // negative: it can make none
	Keys       []accessKeys `json:"keys"`
}

type accessKeys struct {
	User string `json:"user"`
	driver.BucketKeys
}

// keys returns those of a user, always the same if there are several.
func (u *user) keys() driver.BucketKeys {
	first := slices.MinFunc(u.Keys, func(a, b accessKeys) int { return cmp.Compare(a.Access, b.Access) })
	return first.BucketKeys
}

// errSense is for answers that are not about what was asked for.
var errSense = fault.New(fault.Unavailable, "the object gateway gives an answer that makes no sense")

// user returns a user, or a fault of kind NotFound.
func (a *admin) user(ctx context.Context, id string) (u user, err error) {
	err = a.call(ctx, http.MethodGet, "user", url.Values{"uid": {id}}, nil, &u)
	if err == nil && u.ID != id {
		err = errSense
	}
	return u, err
}

// noBuckets and oneBucket are how many buckets a user can make.
const (
	noBuckets = -1
	oneBucket = 1
)

// ensureUser returns a user that has keys, and makes it if it is missing.
func (a *admin) ensureUser(ctx context.Context, id string) (user, error) {
	u, err := a.user(ctx, id)
	if fault.Is(err, fault.NotFound) {
		u = user{}
		err = a.call(ctx, http.MethodPut, "user", url.Values{
			"uid": {id}, "display-name": {"a bucket of Mainstay"}, "max-buckets": {strconv.Itoa(oneBucket)},
			"key-type": {"s3"}, "generate-key": {"true"},
		}, nil, &u)
		if err != nil { // another run of the same job may have made it at this moment
			if made, again := a.user(ctx, id); again == nil {
				u, err = made, nil
			}
		}
	}
	if err == nil && len(u.Keys) == 0 {
		if err = a.addKeys(ctx, id); err == nil {
			u, err = a.user(ctx, id)
		}
	}
	if err == nil && (u.ID != id || len(u.Keys) == 0 || u.Keys[0].Access == "" || u.Keys[0].Secret == "") {
		err = errSense
	}
	return u, err
}

// limitBuckets sets how many buckets a user can make.
func (a *admin) limitBuckets(ctx context.Context, id string, most int) error {
	return a.call(ctx, http.MethodPost, "user", url.Values{"uid": {id}, "max-buckets": {strconv.Itoa(most)}}, nil, nil)
}

// addKeys has the object gateway make keys for a user.
func (a *admin) addKeys(ctx context.Context, id string) error {
	return a.call(ctx, http.MethodPut, "user", url.Values{
		"key": {""}, "uid": {id}, "key-type": {"s3"}, "generate-key": {"true"},
	}, nil, nil)
}

// renewKeys makes new keys for a user, and removes all others.
func (a *admin) renewKeys(ctx context.Context, before user) (driver.BucketKeys, error) {
	if err := a.addKeys(ctx, before.ID); err != nil {
		return driver.BucketKeys{}, err
	}
	u, err := a.user(ctx, before.ID)
	if err != nil {
		return driver.BucketKeys{}, err
	}
	u.Keys = slices.DeleteFunc(u.Keys, func(k accessKeys) bool { return slices.Contains(before.Keys, k) })
	if len(u.Keys) == 0 {
		return driver.BucketKeys{}, errSense
	}
	for _, k := range before.Keys {
		q := url.Values{"key": {""}, "uid": {before.ID}, "key-type": {"s3"}, "access-key": {k.Access}}
		if err := a.call(ctx, http.MethodDelete, "user", q, nil, nil); err != nil {
			return driver.BucketKeys{}, err
		}
	}
	return u.keys(), nil
}

// removeUser removes a user that has no buckets, if it is there.
func (a *admin) removeUser(ctx context.Context, id string) error {
	err := a.call(ctx, http.MethodDelete, "user", url.Values{"uid": {id}}, nil, nil)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// bucketInfo is what the object gateway tells about a bucket.
type bucketInfo struct {
	Bucket string `json:"bucket"`
	Owner  string `json:"owner"`
	Usage  struct {
		Main struct {
			Objects int64 `json:"num_objects"`
			Size    int64 `json:"size"`
		} `json:"rgw.main"`
	} `json:"usage"`
	Quota quota `json:"bucket_quota"`
}

// quota limits a bucket. Negative: no limit.
type quota struct {
	Enabled    bool  `json:"enabled"`
	MaxSize    int64 `json:"max_size"` // bytes
	MaxObjects int64 `json:"max_objects"`
	// Exact: sizes of objects count as they are, and not in steps of 4 KiB.
	Exact bool `json:"check_on_raw"`
}

// quotaOf returns the quota for limits. 0 means no limit.
func quotaOf(objects, size int64) quota {
	q := quota{Enabled: objects > 0 || size > 0, MaxSize: size, MaxObjects: objects, Exact: true}
	if size == 0 {
		q.MaxSize = -1
	}
	if objects == 0 {
		q.MaxObjects = -1
	}
	return q
}

// limits returns those of a quota. 0 means no limit.
func (q quota) limits() (objects, size int64) {
	if !q.Enabled {
		return 0, 0
	}
	return max(0, q.MaxObjects), max(0, q.MaxSize)
}

// bucket returns what the object gateway tells about a bucket of a user. It fails with a fault of kind NotFound if
// there is none, and of kind Conflict if it is somebody else's.
func (a *admin) bucket(ctx context.Context, name driver.BucketName) (b bucketInfo, err error) {
	err = a.call(ctx, http.MethodGet, "bucket", url.Values{"bucket": {name.Bucket}, "stats": {"true"}}, nil, &b)
	switch {
	case err != nil:
		return b, err
	case b.Bucket != name.Bucket || b.Owner == "":
		return b, errSense
	case b.Owner != name.User:
		return b, errTaken
	}
	return b, nil
}

// limit sets the quota of a bucket.
func (a *admin) limit(ctx context.Context, name driver.BucketName, q quota) error {
	return a.call(ctx, http.MethodPut, "bucket", url.Values{
		"quota": {""}, "uid": {name.User}, "bucket": {name.Bucket},
	}, q, nil)
}
