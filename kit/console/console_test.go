package console_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mainstay-infra/mainstay/kit/console"
)

var script = strings.Repeat("console.log('hello');", 100)

func files() fstest.MapFS {
	return fstest.MapFS{
		"index.html":          {Data: []byte("<!doctype html><title>Console</title>")},
		"assets/main-abc1.js": {Data: []byte(script)},
		"icon.svg":            {Data: []byte("<svg/>")},
	}
}

// serve sends a request to a console in front of a service that has /metrics and the API.
func serve(t *testing.T, method, path string, header map[string]string) *http.Response {
	t.Helper()
	c, err := console.New(files())
	if err != nil {
		t.Fatal(err)
	}
	service := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})
	known := func(r *http.Request) bool { return r.URL.Path == "/metrics" }
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	c.Wrap(service, known).ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var browser = map[string]string{
	"Accept":          "text/html,application/xhtml+xml,*/*;q=0.8",
	"Accept-Encoding": "gzip, deflate, br",
}

func TestPagesAnswerTheIndexAndTheServiceAnswersTheRest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method, path string
		header       map[string]string
		page         bool
	}{
		{"GET", "/", nil, true},
		{"HEAD", "/", browser, true},
		{"GET", "/sites", browser, true},
		{"GET", "/campaigns/01a1/devices", browser, true},
		{"GET", "/sites", nil, false}, // a program that lost its way gets an error it can read
		{"POST", "/", browser, false},
		{"POST", "/sites", browser, false},
		{"GET", "/metrics", browser, false},
		{"GET", "/api/v1/nothing", browser, false},
		{"GET", "/assets/gone-1.js", browser, false},
		{"GET", "/../../etc/passwd", browser, true}, // a page like any other; no file system is behind it
	} {
		res := serve(t, tt.method, tt.path, tt.header)
		if page := res.StatusCode == http.StatusOK; page != tt.page {
			t.Errorf("%s %s: %d", tt.method, tt.path, res.StatusCode)
		}
	}
}

func TestThePolicyAdmitsNothingButOurOwnFiles(t *testing.T) {
	t.Parallel()
	res := serve(t, "GET", "/sites", browser)
	policy := res.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
		strings.Contains(policy, "http") {
		t.Errorf("policy %q", policy)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache", "Content-Type": "text/html; charset=utf-8"} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestHashedFilesAreKeptForEverAndCompressed(t *testing.T) {
	t.Parallel()
	res := serve(t, "GET", "/assets/main-abc1.js", map[string]string{"Accept-Encoding": "gzip"})
	if got := res.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
		t.Errorf("Cache-Control: %q", got)
	}
	if res.Header.Get("Content-Encoding") != "gzip" || res.ContentLength >= int64(len(script)) {
		t.Fatalf("%v", res.Header)
	}
	unzipped, err := gzip.NewReader(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := body(t, unzipped); got != script {
		t.Errorf("%d bytes, want %d", len(got), len(script))
	}
	if plain := serve(t, "GET", "/assets/main-abc1.js", map[string]string{"Accept-Encoding": "gzip;q=0"}); body(
		t, plain.Body,
	) != script {
		t.Error("a client that refuses gzip did not get the plain file")
	}
	if small := serve(t, "GET", "/icon.svg", browser); small.Header.Get("Content-Encoding") != "" ||
		body(t, small.Body) != "<svg/>" {
		t.Error("a file that does not shrink must be sent as it is")
	}
}

func TestAPageThatHasNotChangedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	etag := serve(t, "GET", "/", browser).Header.Get("ETag")
	res := serve(t, "GET", "/", map[string]string{"Accept-Encoding": "gzip", "If-None-Match": etag})
	if etag == "" || res.StatusCode != http.StatusNotModified {
		t.Errorf("ETag %q: %d", etag, res.StatusCode)
	}
}

func TestAConsoleWithoutAnIndexIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := console.New(fstest.MapFS{"assets/a.js": {}}); err == nil {
		t.Error("accepted")
	}
}
