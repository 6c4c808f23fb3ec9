package fleet_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
	"github.com/mainstay-infra/mainstay/service/hypervisor/httpapi"
)

// through is an answer that the registry passes on.
type through struct {
	status int
	header http.Header
	body   string
	err    error
}

// hostile runs a node that answers with f, and sends a request to it through the registry.
func (w *world) hostile(f http.HandlerFunc, change ...func(*fleet.Forwarding, *http.Request)) through {
	w.Helper()
	host := httptest.NewServer(f)
	w.Cleanup(host.Close)
	hb := numbers(1, 1)
	hb.Url = host.URL
	_ = w.Deregister(w.Context(), "h", nil) // it is another one each time
	delete(w.after, "h")
	w.beat("h", hb)
	failed := make(chan error, 1)
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Request-Id", "the registry's")
		to := fleet.Forwarding{Node: "h", Path: "/v1/vms", Query: r.URL.RawQuery, Tenant: "acme", Actor: "ann"}
		for _, c := range change {
			c(&to, r)
		}
		_, err := httpapi.Forward(w.Registry, rw, r, to)
		failed <- err
		if err != nil {
			rw.WriteHeader(http.StatusTeapot)
		}
	}))
	defer front.Close()
	req, err := http.NewRequestWithContext(inTime(w.T), "POST", front.URL+"/fleet/nodes/h/v1/vms?q=1", strings.NewReader("{}"))
	if err != nil {
		w.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer secret", "Cookie": "session=secret", "Mainstay-Tenant": "other", "Mainstay-Actor": "root",
		"X-Forwarded-For": "1.2.3.4", "Origin": "http://evil.example", "Idempotency-Key": "k", "Content-Type": "application/json",
		"Connection": "X-Secret", "X-Secret": "x",
	} {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil { // else the registry has broken off
		err = <-failed
	}
	return through{res.StatusCode, res.Header, string(body), err}
}

func TestAForwardedRequestHasTheFleetsCredentialsAndNoOthers(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	seen := make(chan *http.Request, 1)
	got := w.hostile(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // it is compared
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		seen <- r
		rw.Header().Set("Link", `</v1/vms?cursor=abc>; rel="next"`)
		answer(rw, 201, map[string]string{"id": "x"})
	})
	if got.err != nil || got.status != 201 || got.body != "{\"id\":\"x\"}\n" {
		t.Fatalf("%+v", got)
	}
	if link := got.header.Get("Link"); link != `</fleet/nodes/h/v1/vms?cursor=abc&q=1>; rel="next"` {
		t.Errorf("the next page is at %s", link)
	}
	r := <-seen
	body, _ := io.ReadAll(r.Body) // it is compared
	if r.URL.String() != "/v1/vms?q=1" || string(body) != "{}" {
		t.Errorf("%s arrived with %q", r.URL, body)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer acting." + token, "Mainstay-Tenant": "acme", "Mainstay-Actor": "ann", "Idempotency-Key": "k",
		"Cookie": "", "X-Forwarded-For": "", "Origin": "", "X-Secret": "", "Content-Type": "application/json",
	} {
		if got := strings.Join(r.Header.Values(name), ","); got != want {
			t.Errorf("%s arrived as %q", name, got)
		}
	}
}

func TestALyingHostGivesNothingToTheRegistrysCallersButData(t *testing.T) {
	t.Parallel()
	reply := func(status int, header ...string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				rw.Header().Add(header[i], header[i+1])
			}
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, "{}")
		}
	}
	const json = "application/json"
	for name, c := range map[string]struct {
		host http.HandlerFunc
		want string
	}{
		"a redirect":         {reply(302, "Location", "http://169.254.169.254/", "Content-Type", json), "it answers 302"},
		"a page":             {reply(200, "Content-Type", "text/html"), "not in the form of a daemon's"},
		"a picture":          {reply(200, "Content-Type", "image/svg+xml"), "not in the form of a daemon's"},
		"nothing it is":      {reply(200, "Content-Type", ""), "not in the form of a daemon's"},
		"an error page":      {reply(500, "Content-Type", "text/html"), "it answers 500"},
		"a refused token":    {reply(401, "Content-Type", json), "it refuses the fleet's token"},
		"a socket unasked":   {reply(101, "Connection", "Upgrade", "Upgrade", "websocket"), "unreachable"},
		"endless headers":    {reply(200, "Content-Type", json, "X", strings.Repeat("x", 1<<20)), "unreachable"},
		"not modified":       {reply(304, "Content-Type", json), "it answers 304"},
		"a closed door":      {func(rw http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, "the connection failed"},
		"an answer too late": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := sqlite(t)
			var limit []func(*fleet.Forwarding, *http.Request)
			if name == "an answer too late" {
				limit = append(limit, func(_ *fleet.Forwarding, r *http.Request) {
					ctx, cancel := littleTime(r)
					t.Cleanup(cancel)
					*r = *r.WithContext(ctx)
				})
			}
			got := w.hostile(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // else its context does not end with the connection
				c.host(rw, r)
			}, limit...)
			f := fault.From(got.err)
			if got.err == nil || f.Code != fleet.CodeUnreachable || !strings.Contains(f.Message, "node h is unreachable") ||
				!strings.Contains(f.Message, c.want) || got.header.Get("Location") != "" {
				t.Errorf("%+v", got)
			}
		})
	}
	w := sqlite(t)
	got := w.hostile(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Set-Cookie", "a=b")
		rw.WriteHeader(http.StatusEarlyHints) // the first answer of two
		for name, value := range map[string]string{
			"Set-Cookie": "a=b", "Location": "/x", "Access-Control-Allow-Origin": "*", "X-Request-Id": "the host's",
			"Content-Type": json, "Strict-Transport-Security": "max-age=1", "Connection": "Upgrade", "Upgrade": "x",
			"Link": "<http://evil.example/?cursor=c>; rel=\"next\"", "Trailer": "X-Late",
		} {
			rw.Header().Set(name, value)
		}
		rw.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(rw, `{"error":"no","code":"conflict"}`)
		rw.Header().Set("X-Late", "x")
	})
	if got.err != nil || got.status != http.StatusConflict || got.header.Get("X-Request-Id") != "the registry's" ||
		got.header.Get("X-Content-Type-Options") != "nosniff" ||
		got.header.Get("Link") != `</fleet/nodes/h/v1/vms?cursor=c&q=1>; rel="next"` {
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"Set-Cookie", "Location", "Access-Control-Allow-Origin", "Strict-Transport-Security", "Upgrade", "X-Late"} {
		if got.header.Get(name) != "" {
			t.Errorf("%s is passed on", name)
		}
	}
	// What ends in the middle is not taken for a whole answer.
	got = w.hostile(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", json)
		_, _ = io.WriteString(rw, `[{},`)
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	if got.err == nil || got.status != 200 {
		t.Errorf("a part of an answer: %+v", got)
	}
	// What a host that is not there, or not known, is answered with.
	hb := numbers(1, 1)
	hb.Url = closedURL()
	w.beat("gone", hb)
	if got = w.hostile(nil, func(f *fleet.Forwarding, _ *http.Request) { f.Node = "gone" }); !fault.Is(got.err, fault.Unreachable) {
		t.Errorf("%+v", got)
	}
	for _, unknown := range []string{"x", "..", "a/b", ""} {
		got = w.hostile(nil, func(f *fleet.Forwarding, _ *http.Request) { f.Node = unknown })
		if !fault.Is(got.err, fault.NotFound) {
			t.Errorf("%q: %+v", unknown, got)
		}
	}
}

func TestNamesOfCallersArriveAsDifferentNames(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	names := map[string]string{}
	for _, name := range []string{
		"ann", "Ann Lee", "vm-service/ann", "vm-service%2Fann", "é", "e", strings.Repeat("x", 300), strings.Repeat("x", 301),
		"ann@example.org", "a\nb", "a\\b",
	} {
		var got string
		w.hostile(func(rw http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Mainstay-Actor")
			answer(rw, 200, "x")
		}, func(f *fleet.Forwarding, _ *http.Request) { f.Actor = name })
		bad := strings.ContainsFunc(got, func(c rune) bool { return c <= ' ' || c > '~' })
		if other, taken := names[got]; got == "" || len(got) > 256 || bad || taken {
			t.Errorf("%q arrives as %q, as does %q", name, got, other)
		}
		names[got] = name
	}
	for _, usual := range []string{"ann", "vm-service/ann", "ann@example.org"} {
		if names[usual] != usual {
			t.Errorf("%s does not arrive as it is", usual)
		}
	}
}

// littleTime is the context of a request that has little time, but enough to be sent.
func littleTime(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), 2*time.Second)
}
