//go:build linux

package rgw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/rgw"
)

const (
	hiddenAccess = "HIDDENACCESS"
	hiddenSecret = "a hidden secret"
)

// lies are answers that no object gateway should give.
func lies(elsewhere string) map[string]http.HandlerFunc {
	say := func(status int, kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
		}
	}
	flood := func(w http.ResponseWriter, begin, more string) {
		_, _ = io.WriteString(w, begin)
		more = strings.Repeat(more, 1<<15/len(more))
		for {
			if _, err := io.WriteString(w, more); err != nil {
				return
			}
		}
	}
	return map[string]http.HandlerFunc{
		"503":          say(503, "application/xml", "<Error><Code>ServiceUnavailable</Code></Error>"),
		"500 as JSON":  say(500, "application/json", `{"Code":"UnknownError"}`),
		"403":          say(403, "application/xml", "<Error><Code>SignatureDoesNotMatch</Code><Message>"+hiddenAccess+" "+hiddenSecret+"</Message></Error>"),
		"strange code": say(400, "application/json", `{"Code":"`+hiddenSecret+`"}`),
		"empty":        say(200, "application/json", ""),
		"nonsense":     say(200, "application/xml", "<ListBucketResult><Contents>"),
		"text":         say(200, "text/html", "<html>"+hiddenSecret),
		"null":         say(200, "application/json", "null"),
		"another":      say(200, "application/json", `{"user_id":"other","bucket":"other","owner":"other","keys":[{"access_key":"a","secret_key":"b"}]}`),
		"wrong types":  say(200, "application/json", `{"user_id":1,"bucket":[],"keys":"`+hiddenSecret+`"}`),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"moved": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Amz-Bucket-Region", "elsewhere")
			http.Redirect(w, r, elsewhere+r.URL.Path, http.StatusMovedPermanently)
		},
		"silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"slow": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Millisecond):
				}
			}
		},
		"endless JSON": func(w http.ResponseWriter, _ *http.Request) { flood(w, `{"keys":[`, `{"user":"x"},`) },
		"endless XML": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			flood(w, "<ListBucketResult>", "<Contents><Key>a</Key></Contents>")
		},
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
}

func TestAnObjectGatewayThatLiesIsUnavailableAndHearsNoMore(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was sent to another address", r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	for name, lie := range lies(elsewhere.URL) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(lie)
			t.Cleanup(server.Close)
			a := rgw.Access{Endpoint: server.URL, Bucket: "bucket", BucketKeys: driver.BucketKeys{Access: hiddenAccess, Secret: hiddenSecret}}
			g, err := rgw.OpenGateway(a)
			s, again := rgw.OpenSingle(a)
			if err := errors.Join(err, again); err != nil {
				t.Fatal(err)
			}
			const within = 500 * time.Millisecond
			g.SetWithin(within)
			s.SetWithin(within)
			n := driver.BucketName{Bucket: "bucket", User: "u"}
			for what, ask := range map[string]func(ctx context.Context) error{
				"create": func(ctx context.Context) error {
					_, err := g.CreateBucket(ctx, driver.BucketSpec{BucketName: n})
					return err
				},
				"bucket": func(ctx context.Context) error { _, err := g.Bucket(ctx, n); return err },
				"delete": func(ctx context.Context) error { return g.DeleteBucket(ctx, n, func(float64) {}) },
				"objects": func(ctx context.Context) error {
					_, err := g.Objects(ctx, n, driver.ObjectsQuery{Limit: 10})
					return err
				},
				"reach":  func(ctx context.Context) error { _, err := s.Reach(ctx); return err },
				"single": func(ctx context.Context) error { _, err := s.Bucket(ctx, n); return err },
			} {
				err := ask(t.Context())
				taken := name == "another" && fault.Is(err, fault.Conflict)
				if !fault.Is(err, fault.Unavailable) && !taken {
					t.Errorf("%s: %v", what, err)
				}
				for e := err; e != nil; e = errors.Unwrap(e) {
					if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(text, hiddenAccess) || strings.Contains(text, hiddenSecret) {
						t.Errorf("%s tells keys: %s", what, text)
					}
				}
				if strings.Contains(fmt.Sprint(err), server.URL) {
					t.Errorf("%s tells a URL: %v", what, err)
				}
			}
		})
	}
}

// A service that says that it removes objects, and lists them again, does not keep a job for ever.
func TestObjectsThatAreNotRemovedEndTheRemoval(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case q.Has("versions"):
			w.Header().Set("Content-Type", "application/xml")
			_, _ = io.WriteString(w, `<ListVersionsResult><Version><Key>a</Key><VersionId>1</VersionId></Version></ListVersionsResult>`)
		case q.Has("delete"):
			w.Header().Set("Content-Type", "application/xml")
			_, _ = io.WriteString(w, `<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>`)
		case q.Has("policy"):
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	s, err := rgw.OpenSingle(rgw.Access{Endpoint: server.URL, Bucket: "bucket", BucketKeys: driver.BucketKeys{Access: "a", Secret: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "does not remove") {
		t.Errorf("%v", err)
	}
}
