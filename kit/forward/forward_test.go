package forward_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/forward"
)

// pass sends a request through a forwarding service to one that answers with f.
func pass(t *testing.T, f http.HandlerFunc, change func(*forward.Target)) (res *http.Response, body string, err error) {
	t.Helper()
	other := httptest.NewServer(f)
	t.Cleanup(other.Close)
	failed := make(chan error, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 8)
		w.Header().Set("X-Request-Id", "ours")
		u, err := url.Parse(other.URL + "/v1/things?q=1")
		if err != nil {
			t.Error(err)
		}
		to := forward.Target{URL: u, Transport: http.DefaultTransport, Header: http.Header{"Authorization": {"Bearer ours"}}}
		if change != nil {
			change(&to)
		}
		_, err = forward.Serve(w, r, to)
		failed <- err
		if err != nil {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(front.Close)
	req, err := http.NewRequestWithContext(t.Context(), "POST", front.URL+"/here?q=1", strings.NewReader("12345678"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer theirs", "Cookie": "secret", "X-Secret": "x", "Connection": "X-Secret", "Accept": "a/b",
	} {
		req.Header.Set(name, value)
	}
	if res, err = http.DefaultTransport.RoundTrip(req); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(raw), <-failed
}

func TestOnlyKnownHeadersPassAndTheCredentialsAreTheForwardersOwn(t *testing.T) {
	t.Parallel()
	res, body, err := pass(t, func(w http.ResponseWriter, r *http.Request) {
		for name, want := range map[string]string{
			"Authorization": "Bearer ours", "Accept": "a/b", "Cookie": "", "X-Secret": "", "X-Forwarded-For": "",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s arrived as %q", name, got)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("X-Request-Id", "theirs")
		w.Header().Set("Link", `</v1/things?cursor=next>; rel="next"`)
		_, _ = io.Copy(w, r.Body) // the test sees what arrived
	}, nil)
	if err != nil || res.StatusCode != 200 || body != "12345678" {
		t.Fatalf("%d %q %v", res.StatusCode, body, err)
	}
	if link := res.Header.Get("Link"); link != `</here?cursor=next&q=1>; rel="next"` {
		t.Errorf("the next page is at %s", link)
	}
	if res.Header.Get("Set-Cookie") != "" || res.Header.Get("X-Request-Id") != "ours" {
		t.Errorf("%v", res.Header)
	}
}

func TestRefusalsAreTranslatedIfTheForwarderWantsThat(t *testing.T) {
	t.Parallel()
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"error":"no"}`) // the test sees what arrived
	}
	if res, body, err := pass(t, refuse, nil); err != nil || res.StatusCode != 409 || body != `{"error":"no"}` {
		t.Errorf("%d %q %v", res.StatusCode, body, err)
	}
	told := errors.New("told")
	res, _, err := pass(t, refuse, func(to *forward.Target) {
		to.Refused = func(res *http.Response) error {
			if raw, err := io.ReadAll(res.Body); err != nil || string(raw) != `{"error":"no"}` {
				t.Errorf("%q %v", raw, err)
			}
			return told
		}
	})
	if res.StatusCode != http.StatusTeapot || !errors.Is(err, told) {
		t.Errorf("%d %v", res.StatusCode, err)
	}
}

func TestWhatNoServiceAnswersIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		kind   string
		want   string
	}{
		"a page":     {200, "text/html", "not in the form"},
		"a redirect": {302, "application/json", "it answers 302"},
		"a proxy":    {502, "text/html", "it answers 502"},
		"no token":   {401, "application/json", "it answers 401"},
	} {
		_, _, err := pass(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(c.status)
		}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestABodyThatIsTooLargeIsTold(t *testing.T) {
	t.Parallel()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it breaks off
	}))
	t.Cleanup(front.Close)
	u, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader("123456789"))
	w := httptest.NewRecorder()
	r.Body = http.MaxBytesReader(w, r.Body, 8)
	if _, err := forward.Serve(w, r, forward.Target{URL: u, Transport: http.DefaultTransport}); !fault.Is(err, fault.TooLarge) {
		t.Error(err)
	}
}
