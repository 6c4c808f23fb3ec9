package httpserve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
)

func ExampleJSONErrors() {
	render := httpserve.JSONErrors(quiet(), problem.Nested)
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/v1/sites", nil)
	render(w, r, fault.InvalidField("limit", "must be between 1 and 100, not 0"))
	fmt.Println(w.Code, w.Body)
	// Output: 400 {"error":{"code":"invalid","message":"limit: must be between 1 and 100, not 0","field":"limit","request_id":""}}
}

func TestRetryAfterIsRoundedUpToWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "", time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2"} {
		w := httptest.NewRecorder()
		httpserve.JSONErrors(quiet(), problem.Nested)(
			w, httptest.NewRequest("GET", "/", nil), fault.New(fault.TooMany, "x").WithRetryAfter(d),
		)
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%s: %q", d, got)
		}
		if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("header %v", w.Header())
		}
	}
}

func TestUnauthenticatedCarriesAChallengeUnlessTheHandlerSetOne(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"", `Basic realm="x"`} {
		w := httptest.NewRecorder()
		if own != "" {
			w.Header().Set("WWW-Authenticate", own)
		}
		httpserve.JSONErrors(quiet(), problem.Nested)(
			w, httptest.NewRequest("GET", "/", nil), fault.New(fault.Unauthenticated, "x"),
		)
		if got := w.Header().Get("WWW-Authenticate"); got != own && got != "Bearer" {
			t.Errorf("own %q: %q", own, got)
		}
	}
}

func TestOnlyTheLogSeesTheCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("inner detail")
	for _, c := range []struct {
		err   error
		level string
	}{
		{cause, "ERROR"},
		{fault.Wrap(fault.StorageFailed, cause, "disk"), "ERROR"},
		{fault.Wrap(fault.Unavailable, cause, "provider"), "WARN"},
		{fault.New(fault.Unavailable, "busy"), ""},
		{fault.Wrap(fault.Invalid, cause, "bad"), ""},
		{nil, "ERROR"},
	} {
		log, out := newLog()
		w := httptest.NewRecorder()
		httpserve.JSONErrors(log, problem.Nested)(w, httptest.NewRequest("GET", "/", nil), c.err)
		if (out.String() == "") != (c.level == "") || !strings.Contains(out.String(), c.level) {
			t.Errorf("%v: logged %q", c.err, out)
		}
		if strings.Contains(w.Body.String(), "inner detail") {
			t.Errorf("%v: the caller sees %s", c.err, w.Body)
		}
	}
}

func TestNothingIsAppendedToAResponseThatHasBegun(t *testing.T) {
	t.Parallel()
	render := httpserve.JSONErrors(quiet(), problem.Nested)
	h := httpserve.RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("half"))
		render(w, r, errors.New("late"))
	}))
	if w := call(h, "GET", "/"); w.Code != 200 || w.Body.String() != "half" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAClientThatLeftIsNotAServerError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log, out := newLog()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	httpserve.JSONErrors(log, problem.Nested)(w, r, fmt.Errorf("query: %w", ctx.Err()))
	if w.Code != 499 || out.String() != "" {
		t.Errorf("%d, log %q", w.Code, out)
	}
}

func TestBodyErrorsNameTheFieldAndTheExpectedType(t *testing.T) {
	t.Parallel()
	type target struct {
		Name   string            `json:"name"`
		Count  *int              `json:"count"`
		Labels map[string]string `json:"labels"`
		Inner  struct {
			Tags []string `json:"tags"`
			OK   bool     `json:"ok"`
		} `json:"inner"`
		At time.Time `json:"at"`
	}
	for _, c := range []struct {
		body  string
		kind  fault.Kind
		field string
		text  string
	}{
		{``, fault.Invalid, "", "empty"},
		{`{"name":`, fault.Invalid, "", "ends before"},
		{`{x`, fault.Invalid, "", "not valid JSON"},
		{`[]`, fault.Invalid, "", "must be an object, not array"},
		{`{"name":1}`, fault.Invalid, "name", "must be a string, not number"},
		{`{"count":"1"}`, fault.Invalid, "count", "must be an integer in range, not string"},
		{`{"labels":[]}`, fault.Invalid, "labels", "must be an object"},
		{`{"inner":{"tags":"a"}}`, fault.Invalid, "inner.tags", "must be an array"},
		{`{"inner":{"ok":1}}`, fault.Invalid, "inner.ok", "must be a boolean"},
		{`{"nam":"a"}`, fault.Invalid, "nam", "no such field"},
		{`{"at":"yesterday"}`, fault.Invalid, "", "is not a time as RFC 3339 has it"},
		{`{"at":5}`, fault.Invalid, "", "is not a time as RFC 3339 has it"},
		{`{"name":"` + strings.Repeat("a", 100) + `"}`, fault.TooLarge, "", "larger than 100 bytes"},
	} {
		var err error
		h := httpserve.LimitBody(100)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			d := json.NewDecoder(r.Body)
			d.DisallowUnknownFields()
			err = httpserve.BodyError(d.Decode(&target{}))
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(c.body)))
		f := fault.From(err)
		if f == nil || f.Kind != c.kind || f.Field != c.field || !strings.Contains(f.Message, c.text) {
			t.Errorf("%.40s: %+v", c.body, f)
		}
	}
}

func TestBodyErrorKeepsWhatIsNotTheInputsFault(t *testing.T) {
	t.Parallel()
	if httpserve.BodyError(nil) != nil {
		t.Error("nil became an error")
	}
	own := fault.New(fault.Conflict, "x")
	if got := httpserve.BodyError(own); got != error(own) {
		t.Error(got)
	}
	var target any // not a pointer
	if got := httpserve.BodyError(json.Unmarshal([]byte("{}"), target)); !fault.Is(got, fault.Internal) {
		t.Error(got)
	}
	if got := httpserve.BodyError(os.ErrDeadlineExceeded); !fault.Is(got, fault.Invalid) {
		t.Error(got)
	}
}

func TestABodyOverTheLimitClosesTheConnection(t *testing.T) {
	t.Parallel()
	render := httpserve.JSONErrors(quiet(), problem.Nested)
	h := httpserve.Chain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v any
		render(w, r, httpserve.BodyError(json.NewDecoder(r.Body).Decode(&v)))
	}), httpserve.RequestID, httpserve.LimitBody(10))
	s, _ := running(t, httpserve.Config{}, h)
	resp, err := http.Post(s.URL(), "application/json", strings.NewReader(`"`+strings.Repeat("a", 100)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 || !resp.Close {
		t.Errorf("%d, close %v", resp.StatusCode, resp.Close)
	}
}

func TestTheServersOwnFailureNamesTheRequestIDThatItPromises(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc // nil: err is rendered
		err     error
		want    string
	}{
		"an unknown error": {err: errors.New("inner detail"), want: "internal error; the server's log has the details under request id q-1"},
		"a panic":          {handler: func(http.ResponseWriter, *http.Request) { panic("inner detail") }, want: "internal error; the server's log has the details under request id q-1"},
		"another fault":    {err: fault.New(fault.NotFound, "no such site"), want: "no such site"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, out := newLog()
			render, h := httpserve.JSONErrors(log, problem.Nested), c.handler
			if h == nil {
				h = func(w http.ResponseWriter, r *http.Request) { render(w, r, c.err) }
			}
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Request-Id", "q-1")
			httpserve.RequestID(httpserve.Recover(render, log)(h)).ServeHTTP(w, r)
			var body struct {
				Error struct {
					Message   string `json:"message"`
					RequestID string `json:"request_id"`
				} `json:"error"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error.Message != c.want ||
				body.Error.RequestID != "q-1" {
				t.Errorf("%v %s", err, w.Body)
			}
			if strings.Contains(c.want, "q-1") && !strings.Contains(out.String(), "request_id=q-1") {
				t.Errorf("the log does not have what is promised: %s", out)
			}
		})
	}
}
