package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// request has a parameter of every kind.
type request struct {
	ID      string
	Name    *string
	Limit   *int
	Since   *time.Time
	Labels  *[]string
	IfMatch *string
	Session *string
	Body    *body
}

type body struct {
	Text string `json:"text"`
}

// answer is the response type of the tested operation.
type answer interface {
	visit(w http.ResponseWriter) error
}

type ok struct {
	Body body
	ETag *string
}

func (r ok) visit(w http.ResponseWriter) error {
	return rest.WriteJSON(w, 201, "application/json", r.Body, "ETag", r.ETag, "X-Not-Sent", (*string)(nil))
}

func bind(in *rest.Input, q *request) {
	in.Path("id", &q.ID)
	in.Query("name", false, &q.Name)
	in.Query("limit", false, &q.Limit)
	in.Query("since", false, &q.Since)
	in.Query("labels", false, &q.Labels)
	in.Header("If-Match", false, &q.IfMatch)
	in.Cookie("session", false, &q.Session)
	q.Body = rest.JSON[body](in, false)
}

// serve runs an operation, and returns a client for it.
func serve(t *testing.T, call func(context.Context, request) (answer, error)) *rest.Client {
	t.Helper()
	mux := http.NewServeMux()
	render := httpserve.JSONErrors(slog.New(slog.DiscardHandler), problem.Nested)
	mux.HandleFunc("POST /v1/things/{id}", rest.Serve(render, bind, call, answer.visit))
	server := httptest.NewServer(httpserve.Chain(mux, httpserve.RequestID))
	t.Cleanup(server.Close)
	c, err := rest.NewClient(server.URL+"/v1", rest.WithHTTPClient(server.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// to returns the request that a generated client would send.
func to(q request) *rest.Output {
	out := rest.To("POST", "/things/{id}").Path("id", q.ID)
	out.Query("name", q.Name)
	out.Query("limit", q.Limit)
	out.Query("since", q.Since)
	out.Query("labels", q.Labels)
	out.Header("If-Match", q.IfMatch)
	out.Cookie("session", q.Session)
	if q.Body != nil {
		out.JSON("application/json", q.Body)
	}
	return out
}

func TestAServerGetsWhatTheClientWasGiven(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, q := range map[string]request{
		"the least":   {ID: "a"},
		"all of them": {ID: "a", Name: new("b"), Limit: new(7), Since: &since, Labels: &[]string{"x=1", "y=2"}, IfMatch: new(`"3"`), Session: new("s"), Body: &body{"t"}},
		"what has a meaning in addresses": {
			ID: "a/b?c#d %2F..{id}", Name: new("&name=c+d, é;=%"), Labels: &[]string{"a,b", "c&d"}, Body: &body{"</é\n"},
		},
		"empty values": {ID: "a", Name: new(""), Limit: new(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got request
			c := serve(t, func(_ context.Context, q request) (answer, error) {
				got = q
				return ok{body{"done"}, new("7")}, nil
			})
			r, err := c.Send(t.Context(), to(q), nil)
			done, err := rest.Do[body](r, err)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, q) {
				t.Errorf("the server got\n%s, not\n%s", show(got), show(q))
			}
			if done.Text != "done" || r.StatusCode != 201 || r.Header.Get("ETag") != "7" {
				t.Errorf("the client got %d %v %+v", r.StatusCode, r.Header, done)
			}
			if _, sent := r.Header["X-Not-Sent"]; sent {
				t.Error("a header without a value was sent")
			}
		})
	}
}

func show(v any) string {
	text, _ := json.Marshal(v) // it has nothing that cannot be encoded
	return string(text)
}

func TestARequestThatDoesNotFitIsRefusedWithItsField(t *testing.T) {
	t.Parallel()
	c := serve(t, func(context.Context, request) (answer, error) {
		t.Error("the operation was called")
		return nil, errors.New("called")
	})
	twice := func(_ context.Context, r *http.Request) error {
		r.Header["If-Match"] = []string{"1", "2"}
		return nil
	}
	query := func(text string) rest.Editor {
		return func(_ context.Context, r *http.Request) error {
			r.URL.RawQuery = text
			return nil
		}
	}
	for name, tt := range map[string]struct {
		edit  rest.Editor
		body  string
		field string
	}{
		"a query that is not a number": {query("limit=many"), "", "limit"},
		"a query that is not a time":   {query("since=yesterday"), "", "since"},
		"a header twice":               {twice, "", "If-Match"},
		"a body that is not JSON":      {nil, "{", ""},
		"a body of another type":       {nil, `{"text": 7}`, "text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var edits []rest.Editor
			if tt.edit != nil {
				edits = append(edits, tt.edit)
			}
			out := rest.To("POST", "/things/{id}").Path("id", "a").Body("application/json", strings.NewReader(tt.body))
			_, err := rest.Read(c.Send(t.Context(), out, edits))
			var refused *rest.Refusal
			if !errors.As(err, &refused) || refused.Status != 400 || refused.Code != "invalid" ||
				refused.Field != tt.field {
				t.Errorf("want 400 invalid of %q, got %v", tt.field, err)
			}
		})
	}
}

func TestRequiredParametersAreRequired(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"limit", "If-Match", "session"} {
		mux := http.NewServeMux()
		mux.HandleFunc(
			"GET /",
			rest.Serve(
				httpserve.JSONErrors(slog.New(slog.DiscardHandler), problem.Nested),
				func(in *rest.Input, q *request) {
					in.Query("limit", field == "limit", &q.Limit)
					in.Header("If-Match", field == "If-Match", &q.IfMatch)
					in.Cookie("session", field == "session", &q.Session)
				},
				func(context.Context, request) (answer, error) { return ok{}, nil },
				answer.visit,
			),
		)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != 400 || !strings.Contains(w.Body.String(), `"field":"`+field+`"`) {
			t.Errorf("without %s: %d %s", field, w.Code, w.Body)
		}
	}
}

func TestAnErrorOfAnOperationIsTheAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer answer
		err    error
		status int
		code   string
	}{
		"a fault":     {nil, fault.New(fault.NotFound, "there is no such thing"), 404, "not_found"},
		"no answer":   {nil, nil, 500, "internal"},
		"not encoded": {unencodable{}, nil, 500, "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(context.Context, request) (answer, error) { return tt.answer, tt.err })
			_, err := rest.Do[body](c.Send(t.Context(), to(request{ID: "a"}), nil))
			var refused *rest.Refusal
			if !errors.As(err, &refused) || refused.Status != tt.status || refused.Code != tt.code ||
				refused.RequestID == "" {
				t.Errorf("want %d %s with a request id, got %+v %v", tt.status, tt.code, refused, err)
			}
		})
	}
}

type unencodable struct{}

func (unencodable) visit(w http.ResponseWriter) error {
	return rest.WriteJSON(w, 200, "application/json", func() {})
}

// enveloped wraps responses in {"data": …}.
type enveloped struct{ http.ResponseWriter }

func (enveloped) Envelope(status int, body any) any {
	return map[string]any{"data": body, "success": status < 400}
}

func TestAnAnswerCanHaveAnEnvelope(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	if err := rest.WriteJSON(enveloped{w}, 200, "application/json", body{"x"}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(w.Body.String()), `{"data":{"text":"x"},"success":true}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWhatIsNotTheContractsAnswerIsAnError(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer *http.Response
		err    error
		want   string
	}{
		"no answer":         {nil, errors.New("connection refused"), "connection refused"},
		"a page of a proxy": {response(502, "<html>"), nil, "the server answered 502 without an error of its contract"},
		"a login page":      {response(200, "<html>"), nil, "not as the contract says"},
		"a redirect":        {response(302, ""), nil, "the server answered 302"},
		"another type":      {response(200, `{"text": 7}`), nil, "not as the contract says: text: must be a string, not number"},
		"an endless answer": {endless(), nil, "larger than 256 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := rest.Do[body](tt.answer, tt.err); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("want %q, got %v", tt.want, err)
			}
		})
	}
}

func response(status int, text string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}
}

func endless() *http.Response {
	r := response(200, "")
	r.Body = io.NopCloser(zeros{})
	return r
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestTheTextsOfARefusalAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100_000)
	body := `{"error":{"code":"` + long + `","message":"` + long + `"}}`
	_, err := rest.Read(response(500, body), nil)
	var r *rest.Refusal
	if !errors.As(err, &r) || len(r.Message) < 4000 || len(err.Error()) > 10_000 || !utf8.ValidString(r.Message) {
		t.Errorf("%d bytes, %d of them the message", len(err.Error()), len(r.Message))
	}
}

func TestFormsAndPartsAreRead(t *testing.T) {
	t.Parallel()
	type form struct {
		Name string `json:"name"`
		Age  int    `json:"age"`
	}
	var got form
	var part string
	mux := http.NewServeMux()
	render := httpserve.JSONErrors(slog.New(slog.DiscardHandler), problem.Nested)
	type request struct {
		form  *form
		parts *multipart.Reader
		text  *string
	}
	mux.HandleFunc("POST /", rest.Serve(render, func(in *rest.Input, q *request) {
		switch {
		case in.Is("application/x-www-form-urlencoded"):
			q.form = rest.Form[form](in)
		case in.Is("multipart/form-data"):
			q.parts = in.Multipart()
		default:
			q.text = rest.Text[string](in, true)
		}
	}, func(_ context.Context, q request) (answer, error) {
		switch {
		case q.form != nil:
			got = *q.form
		case q.parts != nil:
			p, err := q.parts.NextPart()
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(p)
			part = p.FormName() + "=" + string(text)
			return ok{}, err
		default:
			part = *q.text
		}
		return ok{}, nil
	}, answer.visit))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c, err := rest.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	send := func(out *rest.Output) {
		t.Helper()
		if _, err := rest.Read(c.Send(t.Context(), out, nil)); err != nil {
			t.Fatal(err)
		}
	}
	send(rest.To("POST", "/").Form(form{"a&b=c", 7}))
	if want := (form{"a&b=c", 7}); got != want {
		t.Errorf("got the form %+v, want %+v", got, want)
	}
	var parts bytes.Buffer
	w := multipart.NewWriter(&parts)
	if err := errors.Join(w.WriteField("disk", "bytes"), w.Close()); err != nil {
		t.Fatal(err)
	}
	send(rest.To("POST", "/").Body(w.FormDataContentType(), &parts))
	if part != "disk=bytes" {
		t.Errorf("got the part %q", part)
	}
	send(rest.To("POST", "/").Body("text/plain", strings.NewReader("hello")))
	if part != "hello" {
		t.Errorf("got the text %q", part)
	}
	res, err := c.Send(t.Context(), rest.To("POST", "/").Body("multipart/form-data", strings.NewReader("x")), nil)
	if _, err := rest.Read(res, err); err == nil || res.StatusCode != 400 {
		t.Errorf("parts without a boundary: %v", err)
	}
}

func TestAStreamIsSentWithItsLengthAndClosed(t *testing.T) {
	t.Parallel()
	source := &closing{Reader: strings.NewReader("12345")}
	w := httptest.NewRecorder()
	if err := rest.WriteStream(w, 200, "application/octet-stream", source, 5); err != nil {
		t.Fatal(err)
	}
	if w.Body.String() != "12345" || w.Header().Get("Content-Length") != "5" || !source.closed {
		t.Errorf("%q %v, closed: %t", w.Body, w.Header(), source.closed)
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}
