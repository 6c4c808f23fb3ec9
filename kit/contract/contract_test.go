package contract_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

const document = `
openapi: 3.0.3
info: {title: Things, version: "1"}
paths:
  /things/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string, maxLength: 4}}]
    get:
      operationId: GetThing
      x-access: viewer
      parameters:
        - {name: limit, in: query, schema: {type: integer, minimum: 1, maximum: 9}}
        - {name: since, in: query, schema: {type: string, format: date-time}}
        - {name: state, in: query, schema: {type: array, items: {type: string}}}
      responses: {'200': {description: ok, content: {application/json: {schema: {type: object, required: [id], properties: {id: {type: string}}}}}}}
    put:
      operationId: PutThing
      x-access: admin
      x-audit: thing.put
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              required: [name]
              properties:
                name: {type: string, maxLength: 5}
                size: {type: integer}
                tags: {type: object, additionalProperties: {type: string}}
      responses: {'204': {description: ok}}
`

func load(t *testing.T) *contract.Contract {
	t.Helper()
	c, err := contract.Load([]byte(document), "/v1", []string{"viewer", "admin"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newRouter validates every request and responds with the fault's message.
func newRouter(t *testing.T) http.Handler {
	render := func(w http.ResponseWriter, _ *http.Request, err error) {
		f := fault.From(err)
		http.Error(w, f.Field+"|"+f.Message, f.Kind.HTTPStatus())
	}
	r := contract.NewRouter(load(t), render, func(op *contract.Operation, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := op.CheckRequest(r); err != nil {
				render(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	r.HandleFunc(
		"GET /v1/things/{id}",
		func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("id")) },
	)
	r.HandleFunc("PUT /v1/things/{id}", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	})
	return r
}

func TestRequestsAreHeldAgainstTheDocumentAndFaultsNameTheField(t *testing.T) {
	t.Parallel()
	router := newRouter(t)
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		want                     string
	}{
		{"good query", "GET", "/v1/things/a?limit=3", "", 200, "a"},
		{"query of the wrong type", "GET", "/v1/things/a?limit=x", "", 400, "limit|limit: must be an integer"},
		{"query out of range", "GET", "/v1/things/a?limit=10", "", 400, "limit|limit: must be at most 9"},
		{"query with a time twice", "GET", "/v1/things/a?since=2026-01-02T03:04:05Z&since=x", "", 400, "since|since: is given twice"},
		{"query with a number twice", "GET", "/v1/things/a?limit=3&limit=3", "", 400, "limit|limit: is given twice"},
		{"query with a list", "GET", "/v1/things/a?state=x&state=y&limit=3", "", 200, "a"},
		{"path parameter too long", "GET", "/v1/things/abcde", "", 400, "id|id: must have at most 4 characters"},
		{"good body is handed on whole, unknown fields too", "PUT", "/v1/things/a", `{"name":"x","other":1}`, 200, `{"name":"x","other":1}`},
		{"missing field", "PUT", "/v1/things/a", `{}`, 400, "name|name: is required"},
		{"wrong type", "PUT", "/v1/things/a", `{"name":1}`, 400, "name|name: must be a string"},
		{"wrong type further in", "PUT", "/v1/things/a", `{"name":"x","tags":{"zone":7}}`, 400, "tags.zone|tags.zone: must be a string"},
		{"broken JSON", "PUT", "/v1/things/a", `{`, 400, "|the request body is not valid JSON"},
		{"no body", "PUT", "/v1/things/a", ``, 400, "|the request body is missing"},
		{"unknown path", "GET", "/v1/nothing", "", 404, "|"},
		{"wrong method", "DELETE", "/v1/things/a", "", 405, "|"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			var body io.Reader
			if tt.body != "" {
				body = strings.NewReader(tt.body)
			}
			router.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, body))
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("got %d %s, want %d and %q", w.Code, w.Body, tt.status, tt.want)
			}
		})
	}
}

func TestLoadRefusesADocumentThatLeavesTheHouseRulesOpen(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][2]string{
		"unknown access class": {"x-access: viewer", "x-access: everybody"},
		"change without audit": {"x-audit: thing.put", "x-other: thing.put"},
		"unknown extension":    {"x-access: viewer", "x-access: viewer\n      x-acess: admin"},
		"unknown time":         {"x-access: viewer", "x-access: viewer\n      x-time: ever"},
		"body without size":    {"x-access: viewer", "x-access: viewer\n      x-body: large"},
		"unknown validation":   {"x-access: viewer", "x-access: viewer\n      x-validation: none"},
		"no operation id":      {"operationId: GetThing", "description: x"},
		"a path without slash": {"  /things/{id}:", "  things/{id}:"},
	} {
		if _, err := contract.Load(
			[]byte(strings.Replace(document, change[0], change[1], 1)), "/v1", []string{"viewer", "admin"},
		); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestAnAnswerThatTheDocumentDoesNotKnowIsFound(t *testing.T) {
	t.Parallel()
	op, _ := load(t).Operation("GET /v1/things/{id}")
	r := httptest.NewRequest("GET", "/v1/things/a", nil)
	r.SetPathValue("id", "a")
	jsonType := http.Header{"Content-Type": {"application/json"}}
	if err := op.CheckResponse(r, 200, jsonType, []byte(`{"id":"a"}`)); err != nil {
		t.Errorf("good answer: %v", err)
	}
	if op.CheckResponse(r, 200, jsonType, []byte(`{}`)) == nil {
		t.Error("a body without a required field passed")
	}
	if op.CheckResponse(r, 418, jsonType, []byte(`{}`)) == nil {
		t.Error("an undocumented status passed")
	}
}

func TestTheReferenceNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	c := load(t)
	r := contract.NewRouter(c, func(http.ResponseWriter, *http.Request, error) {}, nil)
	c.Mount(r)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", "/docs/", nil))
	if w.Code != 200 || !strings.Contains(w.Body.String(), "/openapi.yaml") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, attr := range []string{`src="http`, `href="http`, `src="//`, `href="//`} {
		if strings.Contains(w.Body.String(), attr) {
			t.Errorf("the page loads assets from elsewhere: %s", attr)
		}
	}
}

func TestPathsWithAServerOfTheirOwnAreNoOperations(t *testing.T) {
	t.Parallel()
	more := document + "  /healthz:\n    servers: [{url: /}]\n    get: {operationId: GetHealth, responses: {'200': {description: ok}}}\n"
	c, err := contract.Load([]byte(more), "/v1", []string{"viewer", "admin"})
	if err != nil || len(c.Operations()) != 2 {
		t.Errorf("%d operations: %v", len(c.Operations()), err)
	}
}

func TestPlannedOperationsAreDocumentationOnly(t *testing.T) {
	t.Parallel()
	text := strings.Replace(document, "      operationId: GetThing\n      x-access: viewer\n",
		"      operationId: GetThing\n      tags: [things, planned]\n      x-access: viewer\n", 1)
	c, err := contract.Load([]byte(text), "/v1", []string{"viewer", "admin"})
	if err != nil {
		t.Fatal(err)
	}
	if all := c.Operations(); len(all) != 1 || all[0].ID != "PutThing" {
		t.Errorf("%+v", all)
	}
	if _, ok := c.Operation("GET /v1/things/{id}"); ok {
		t.Error("a planned operation is one")
	}
}
