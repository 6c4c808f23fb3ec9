package contracttest_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// judged is a test whose failures are counted.
type judged struct {
	testing.TB
	failures int
}

func (j *judged) Errorf(string, ...any) { j.failures++ }
func (j *judged) Fatalf(string, ...any) { j.failures++ }

func TestSendSendsWhatARequestSays(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // it is compared
		h := r.Header
		_, _ = fmt.Fprintf(w, "%s %q %q %s", r.Method, h["Authorization"], h["Content-Type"], body)
	}))
	t.Cleanup(server.Close)
	for _, tt := range []struct {
		request contracttest.Request
		want    string
	}{
		{contracttest.Request{Method: "GET"}, `GET [] [] `},
		{contracttest.Request{Method: "POST", Token: "t", Body: map[string]int{"a": 1}}, `POST ["Bearer t"] ["application/json"] {"a":1}`},
		{contracttest.Request{Method: "POST", Body: "{"}, `POST [] ["application/json"] {`},
		{contracttest.Request{Method: "PUT", Body: []byte("x")}, `PUT [] ["application/octet-stream"] x`},
		{contracttest.Request{Method: "PUT", Body: "x", Header: map[string]string{"Content-Type": ""}}, `PUT [] [] x`},
	} {
		tt.request.URL = server.URL
		if got := contracttest.Send(t, nil, tt.request).Want(200).Body; got != tt.want {
			t.Errorf("%+v arrived as %s, want %s", tt.request, got, tt.want)
		}
	}
}

func TestAnAnswerThatIsNotTheWantedOneFailsTheTest(t *testing.T) {
	t.Parallel()
	whole := `{"error":{"code":"invalid","message":"no","field":"name","limit":"max","request_id":"r"}}`
	for _, tt := range []struct {
		what   string
		body   string
		judge  func(contracttest.Answer)
		passes bool
	}{
		{"the status", whole, func(a contracttest.Answer) { a.Want(400) }, true},
		{"another status", whole, func(a contracttest.Answer) { a.Want(200) }, false},
		{"the error", whole, func(a contracttest.Answer) { a.Refused(400, "invalid", "name") }, true},
		{"another code", whole, func(a contracttest.Answer) { a.Refused(400, "conflict", "name") }, false},
		{"another field", whole, func(a contracttest.Answer) { a.Refused(400, "invalid", "") }, false},
		{"the limit", whole, func(a contracttest.Answer) { a.Limited(400, "invalid", "name", "max") }, true},
		{"another limit", whole, func(a contracttest.Answer) { a.Limited(400, "invalid", "name", "") }, false},
		{"no request id", `{"error":{"code":"invalid","message":"no"}}`,
			func(a contracttest.Answer) { a.Refused(400, "invalid", "") }, false},
		{"not an error", `{}`, func(a contracttest.Answer) { a.Refused(400, "", "") }, false},
		{"not JSON", `<html>`, func(a contracttest.Answer) { contracttest.As[map[string]any](a) }, false},
	} {
		j := &judged{TB: t}
		tt.judge(contracttest.Answer{TB: j, What: tt.what, Status: 400, Body: tt.body})
		if (j.failures == 0) != tt.passes {
			t.Errorf("%s: %d failures", tt.what, j.failures)
		}
	}
}
