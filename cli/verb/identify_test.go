package verb_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli"
)

// run runs a command line against a server.
func run(t *testing.T, server string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Main(t.Context(), append(args, "--server", server), cli.IO{
		In: strings.NewReader(""), Out: &stdout, Err: &stderr, Dir: t.TempDir(), ConfigDir: t.TempDir(),
		Getenv: func(string) string { return "" },
	})
	return code, stdout.String(), stderr.String()
}

// mainstay returns a server that serves a contract, and answers everything else with a problem.
func mainstay(t *testing.T, document []byte, status int, body string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token was sent with the question which server this is")
		}
		_, _ = w.Write(document)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

const (
	noPath = `{"error":{"code":"not_found","message":"no such path","request_id":"q"}}`
	denied = `{"error":{"code":"unauthenticated","message":"no token","request_id":"q"}}`
)

func TestAnotherServiceIsNamedInsteadOfWhatItSays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		document []byte
		status   int
		body     string
		args     string
		want     string
	}{
		"no such path":  {lbapi.Document, 404, noPath, "edge site list", "is not an edge control plane\nhint: it says that it is the load balancer;"},
		"no such token": {edgeapi.Document, 401, denied, "vm list --token x", "is not a hypervisor daemon\nhint: it says that it is the edge control plane;"},
		"no list":       {hypervisorapi.Document, 200, `{"a": 1}`, "edge site list", "is not an edge control plane\nhint: it says that it is the hypervisor;"},
		"a web page":    {[]byte("<html>"), 200, "<html>", "vm list", "is not a hypervisor daemon\nhint: name another server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := mainstay(t, tt.document, tt.status, tt.body)
			code, out, errs := run(t, server, strings.Fields(tt.args)...)
			if code != 1 || out != "" || !strings.Contains(errs, server+" answers, but "+tt.want) {
				t.Errorf("%d %s%s", code, out, errs)
			}
		})
	}
}

func TestTheRightServerIsTakenAtItsWord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		document []byte
		status   int
		body     string
		code     int
		want     string
	}{
		"its own refusal":            {edgeapi.Document, 401, denied, 4, "mainstay: no token"},
		"behind a gateway":           {[]byte("<html>"), 404, noPath, 3, "mainstay: no such path"},
		"an answer that it mistakes": {edgeapi.Document, 200, `"x"`, 1, "the answer is not as the API's contract says"},
		"a conflict":                 {lbapi.Document, 409, `{"error":{"code":"conflict","message":"not now","request_id":"q"}}`, 1, "not now"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if code, _, errs := run(t, mainstay(t, tt.document, tt.status, tt.body), "edge", "org", "list"); code != tt.code ||
				!strings.Contains(errs, tt.want) || strings.Contains(errs, "answers, but") {
				t.Errorf("%d %s", code, errs)
			}
		})
	}
}
