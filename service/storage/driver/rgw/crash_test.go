//go:build linux

package rgw_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/rgw"
)

// cut returns a gateway whose connection is cut after some requests: the last of them is done, but nobody is told. It is
// how a process dies in the middle. Negative: never.
func (l *lab) cut(after int64) *rgw.Gateway {
	l.Helper()
	target, err := url.Parse(l.real.URL)
	if err != nil {
		l.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // which is signed
	}}
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch at := n.Add(1); {
		case after < 0 || at < after:
			proxy.ServeHTTP(w, r)
		case at == after:
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	l.Cleanup(server.Close)
	g, err := rgw.OpenGateway(rgw.Access{
		Endpoint: server.URL, BucketKeys: driver.BucketKeys{Access: l.real.AccessKey, Secret: l.real.SecretKey},
	})
	if err != nil {
		l.Fatal(err)
	}
	return g
}

func TestWhatWasBrokenOffAtAnyRequestIsFoundAndFinished(t *testing.T) {
	t.Parallel()
	l := open(t)
	spec := driver.BucketSpec{BucketName: name("cut"), MaxObjects: 3, MaxSize: 4096, Versioning: true}
	made := false
	for after := int64(1); !made; after++ {
		if after > 30 {
			t.Fatal("it takes too many requests")
		}
		spec.BucketName = name("cut")
		_, err := l.cut(after).CreateBucket(t.Context(), spec)
		made = err == nil
		keys, err := l.CreateBucket(t.Context(), spec)
		if err != nil {
			t.Fatalf("after %d requests: %v", after, err)
		}
		again, err := l.CreateBucket(t.Context(), spec)
		if err != nil || again != keys {
			t.Errorf("after %d requests: other keys, %v", after, err)
		}
		if err := put(t.Context(), l.as(keys), spec.Bucket, "a", 1); err != nil {
			t.Errorf("after %d requests: %v", after, err)
		}
		b, err := l.Bucket(t.Context(), spec.BucketName)
		if err != nil || b.MaxObjects != 3 || b.MaxSize != 4096 || b.Versioning != driver.VersioningEnabled {
			t.Errorf("after %d requests: %+v, %v", after, b, err)
		}
		if all := l.users(); len(all) != 1 || all[0] != spec.User {
			t.Errorf("after %d requests: the users %v", after, all)
		}
		if all := l.real.Admin(t, "bucket", "list"); strings.Count(all, "cut-") != 1 || !strings.Contains(all, spec.Bucket) {
			t.Errorf("after %d requests: the buckets %s", after, all)
		}
		// The deletion is broken off at the same request.
		_ = l.cut(after).DeleteBucket(t.Context(), spec.BucketName, func(float64) {})
		if err := l.DeleteBucket(t.Context(), spec.BucketName, func(float64) {}); err != nil {
			t.Fatalf("after %d requests: %v", after, err)
		}
	}
	for after := int64(1); ; after++ { // which takes more requests
		n := name("cut")
		c := l.made(driver.BucketSpec{BucketName: n})
		if err := put(t.Context(), c, n.Bucket, "a", 1); err != nil {
			t.Fatal(err)
		}
		err := l.cut(after).DeleteBucket(t.Context(), n, func(float64) {})
		if again := l.DeleteBucket(t.Context(), n, func(float64) {}); again != nil {
			t.Fatalf("after %d requests: %v", after, again)
		}
		if err == nil {
			break
		}
	}
	if users, all := l.users(), l.real.Admin(t, "bucket", "list"); len(users) > 0 || strings.Contains(all, "cut-") {
		t.Errorf("%v and %s are left", users, all)
	}
}
