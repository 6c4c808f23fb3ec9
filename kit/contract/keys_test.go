package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

const eventsDocument = `
openapi: 3.0.3
info: {title: Events, version: "1"}
paths:
  /events:
    post:
      operationId: PutEvents
      x-access: admin
      x-audit: none
      requestBody:
        content:
          application/json:
            schema:
              type: object
              properties:
                events: {type: array, items: {$ref: '#/components/schemas/Event'}}
                at: {type: string, format: date-time}
                sink: {type: string}
                input: {type: string, x-nul: true}
                kelvin: {type: integer}
      responses: {'204': {description: ok}}
components:
  schemas:
    Event:
      allOf:
        - type: object
          properties:
            retry_max: {type: integer, maximum: 9}
            labels: {type: object, additionalProperties: {type: string}}
        - type: object
          properties:
            payload: {}
            cause: {$ref: '#/components/schemas/Event'}
`

// exact is a service that does not validate requests itself, like the hottest operations.
func exact(t testing.TB) http.Handler {
	t.Helper()
	c, err := contract.Load([]byte(eventsDocument), "", []string{"admin"})
	if err != nil {
		t.Fatal(err)
	}
	render := func(w http.ResponseWriter, _ *http.Request, err error) {
		f := fault.From(err)
		http.Error(w, f.Field+"|"+f.Message, f.Kind.HTTPStatus())
	}
	r := contract.NewRouter(c, render, func(_ *contract.Operation, next http.Handler) http.Handler { return next })
	r.HandleFunc("POST /events", func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	})
	return r
}

func post(h http.Handler, body string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/events", strings.NewReader(body)))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestKeysThatEncodingJSONWouldTakeForOthersAreRefused(t *testing.T) {
	t.Parallel()
	h := exact(t)
	for body, want := range map[string]string{
		`{"EVENTS": []}`:                                         "EVENTS|EVENTS: there is no such field; did you mean events?",
		`{"\u0045vents": []}`:                                    "Events|Events: there is no such field; did you mean events?",
		`{"sin` + "\u212a" + `": 1}`:                             "sin\u212a|sin\u212a: there is no such field; did you mean sink?",
		`{"events": [{}, {"Retry_Max": 9e18}]}`:                  "events.1.Retry_Max|events.1.Retry_Max: there is no such field; did you mean retry_max?",
		`{"events": [{"cause": {"cause": {"RETRY_MAX": 1}}}]}`:   "events.0.cause.cause.RETRY_MAX|events.0.cause.cause.RETRY_MAX: there is no such field; did you mean retry_max?",
		`{"events": [], "events": [{"retry_max": 1}]}`:           "events|events: is given twice",
		`{"events": [], "\u0065vents": [{}]}`:                    "events|events: is given twice",
		`{"events": [{"labels": {"a": "1", "a": "2"}}]}`:         "events.0.labels.a|events.0.labels.a: is given twice",
		`{"sink": "a\u0000b"}`:                                   "sink|sink: holds NUL",
		`{"events": [{"labels": {"a": "\u0000"}}]}`:              "events.0.labels.a|events.0.labels.a: holds NUL",
		`{"events": [{"labels": {"\u0000": ""}}]}`:               `events.0.labels.\x00|events.0.labels.\x00: holds NUL`,
		`{"x": 1, "x": 2}`:                                       "x|x: is given twice",
		`{"events": []} {"events": []}`:                          "|the request body has more after its JSON, at byte 16",
		"\ufeff{}":                                               "|the request body has more after its JSON, at byte 4",
		`{"events": [{"payload": {"a": [}]}`:                     "|the request body is not valid JSON: error at byte 35",
		`{"events": [{"payload": `:                               "|the request body is not valid JSON: error at byte 25",
		`{"events`:                                               "|the request body is not valid JSON: error at byte 9",
		`{"events": ` + strings.Repeat(`[{"cause":`, 1) + `x x}`: "|the request body is not valid JSON: error at byte 24",
		`{"events":[` + strings.Repeat(`{"cause":`, 200):         "|the request body is nested more than 100 levels deep",
	} {
		if status, got := post(h, body); status != http.StatusBadRequest || got != want {
			t.Errorf("%.80s: %d %q, want %q", body, status, got, want)
		}
	}
}

func TestBodiesWithExactKeysReachTheHandlerUnchanged(t *testing.T) {
	t.Parallel()
	h := exact(t)
	var many strings.Builder
	for i := range 100 {
		many.WriteString(`, "l` + strings.Repeat("x", i) + `": ""`)
	}
	for _, body := range []string{
		``, ` {} `, `null`, `[]`, `"text"`, `7`,
		`{"events": [{"retry_max": 1, "labels": {"a": "", "A": ""}, "payload": {"Retry_max": 1, "a": {}, "a": {}, "A": [{"x": "}\"]"}]}}], "unknown": {"b": 1, "b": 2}}`,
		`{"input": "a\u0000b"}`,
		`{"events": {"Retry_Max": 1}}`, // another type than declared, which the contract refuses
		`{"events": [{"labels": {"z": ""` + many.String() + `}}]}`,
	} {
		if status, got := post(h, body); status != http.StatusOK || got != strings.TrimSpace(body) {
			t.Errorf("%.80s: %d %q", body, status, got)
		}
	}
}

func TestFilesAreNotTakenForJSON(t *testing.T) {
	t.Parallel()
	document := strings.Replace(
		eventsDocument, "        content:\n",
		"        content:\n          application/octet-stream: {schema: {type: string, format: binary}}\n", 1,
	)
	c, err := contract.Load([]byte(document), "", []string{"admin"})
	if err != nil {
		t.Fatal(err)
	}
	render := func(w http.ResponseWriter, _ *http.Request, err error) { http.Error(w, err.Error(), 400) }
	router := contract.NewRouter(c, render, func(_ *contract.Operation, next http.Handler) http.Handler { return next })
	var got io.Reader
	router.HandleFunc("POST /events", func(_ http.ResponseWriter, r *http.Request) { got = r.Body })
	const file = `{"a": 1, "a": 2} and more`
	for kind, taken := range map[string]bool{
		"application/octet-stream": true, "application/octet-stream; x=y": true, "Application/Octet-Stream": true,
		"application/json": false, "": false, "text/plain": false, "application/x-www-form-urlencoded": false,
	} {
		body := &countingReader{Reader: strings.NewReader(file)}
		r := httptest.NewRequest(http.MethodPost, "/events", body)
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		got = nil
		router.ServeHTTP(w, r)
		if (w.Code == 200) != taken || taken && (body.reads != 0 || got == nil) {
			t.Errorf("%s: %d %s, %d reads before the handler", kind, w.Code, w.Body, body.reads)
		}
		if !taken {
			continue
		}
		if text, err := io.ReadAll(got); err != nil || string(text) != file {
			t.Errorf("%s: %q, %v", kind, text, err)
		}
	}
}

// countingReader counts how often it is read.
type countingReader struct {
	io.Reader
	reads int
}

func (r *countingReader) Read(b []byte) (int, error) {
	r.reads++
	return r.Reader.Read(b)
}

func TestPathsAndQueriesHoldOnlyTextThatCanBeStored(t *testing.T) {
	t.Parallel()
	h := newRouter(t)
	for target, want := range map[string]string{
		"/v1/things/a%00b":                  "404 |no such path",
		"/v1/things/a%ff":                   "404 |no such path",
		"/v1/things/ab?cursor=a%00":         "400 cursor|cursor: holds NUL or is not valid UTF-8",
		"/v1/things/ab?limit=5&x=%C3%28":    "400 x|x: holds NUL or is not valid UTF-8",
		"/v1/things/ab?a%00=5":              "400 a?|a?: holds NUL or is not valid UTF-8",
		"/v1/things/ab?limit=5;x=1":         "400 |the query holds a semicolon; write %3B for one in a value, and & between parameters",
		"/v1/things/ab?limit=5&x=%zz":       "400 |the query cannot be read: a percent sign is not followed by two hexadecimal digits",
		"/v1/things/a%C3%A9?x=%F0%9F%A6%A1": "200 aé",
		"/v1/things/ab?x=1%3B2":             "200 ab",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		if got := fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String())); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

func TestTimesThatUTCCannotExpressAreRefused(t *testing.T) {
	t.Parallel()
	c, err := contract.Load([]byte(eventsDocument), "", []string{"admin"})
	if err != nil {
		t.Fatal(err)
	}
	op, _ := c.Operation("POST /events")
	for at, valid := range map[string]bool{
		"2026-01-02T03:04:05.123456789+14:00": true, "0001-01-01T00:00:00Z": true, "9999-12-31T23:59:59Z": true,
		"9999-12-31T23:59:59-01:00": false, "0000-06-01T00:00:00Z": false, "0001-01-01T00:00:00+01:00": false,
		"2026-01-02T03:04:60Z": false, "2026-13-02T03:04:05Z": false, "2026-01-02": false, "-2026-01-02T03:04:05Z": false, "": false,
	} {
		body, err := json.Marshal(map[string]string{"at": at})
		if err != nil {
			t.Fatal(err)
		}
		err = op.CheckRequest(httptest.NewRequest(http.MethodPost, "/events", bytes.NewReader(body)))
		if valid != (err == nil) || !valid && fault.From(err).Field != "at" {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// FuzzExactKeys compares the check with encoding/json: a body that passes has the same meaning for
// a decoder with exact field names as for one that ignores case.
func FuzzExactKeys(f *testing.F) {
	for _, seed := range []string{`{"events":[{"retry_max":1}],"sink":"a"}`, `{"Events":[],"x":{"y":"\""}}`, `{"sink":"\u0000","sin\u212a":1}`, `[{"sink":1}]`, `{"sink":1}{}`} {
		f.Add(seed)
	}
	h := exact(f)
	f.Fuzz(func(t *testing.T, body string) {
		status, _ := post(h, body)
		var byCase struct {
			Sink   any
			Kelvin any
			At     any
		}
		if status != http.StatusOK || json.Unmarshal([]byte(body), &byCase) != nil {
			return
		}
		var byName map[string]any
		if json.Unmarshal([]byte(body), &byName) != nil {
			return
		}
		for name, got := range map[string]any{"sink": byCase.Sink, "kelvin": byCase.Kelvin, "at": byCase.At} {
			want, err := json.Marshal(byName[name])
			if err != nil {
				t.Fatal(err)
			}
			if have, err := json.Marshal(got); err != nil || !bytes.Equal(have, want) {
				t.Errorf("%q: %s is %s by name and %s by encoding/json", body, name, want, have)
			}
		}
	})
}

func BenchmarkExactKeys(b *testing.B) {
	h := exact(b)
	event := `{"retry_max":1,"labels":{"zone":"north","line":"7"},"payload":{"celsius":180,"note":"` + strings.Repeat(
		"x", 100,
	) + `"}}`
	for name, body := range map[string]string{"one": `{"events":[` + event + `]}`, "thousand": `{"events":[` + strings.Repeat(event+",", 999) + event + `]}`} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if status, _ := post(h, body); status != http.StatusOK {
					b.Fatal(status)
				}
			}
		})
		b.Run(name+"-decoded", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				var v struct {
					Events []struct {
						RetryMax int `json:"retry_max"`
						Labels   map[string]string
						Payload  json.RawMessage
					}
				}
				if err := json.Unmarshal([]byte(body), &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
