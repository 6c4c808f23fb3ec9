package edge_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// id has the form of an ID, so it is not looked up.
const id = "01a1fde9-de24-70d8-8d39-beba54f45acc"

func TestAnErrorTellsWhatTheServerSaidAndExitsWithItsCode(t *testing.T) {
	t.Parallel()
	c := loadContract(t)
	for _, tt := range []struct {
		name, operation, args string
		status                int
		body                  string
		code                  int
		want                  []string
	}{
		{"not found", "GetSite", "site get " + id, 404, `{"error":{"code":"not_found","message":"no such site","request_id":"q7"}}`, 3,
			[]string{"mainstay: no such site (code not_found, request id q7)\n", "hint: 'mainstay edge site list' shows what there is\n"}},
		{"a wrong field", "PatchSite", "site rename s1 x", 400, `{"error":{"code":"invalid","message":"too odd","field":"name","request_id":"q7"}}`, 1,
			[]string{"too odd (code invalid, field name, request id q7)"}},
		{"no credentials", "GetMe", "whoami", 401, `{"error":{"code":"unauthenticated","message":"no token","request_id":"q"}}`, 4,
			[]string{"no token", "hint: give a token with --token or EDGE_TOKEN"}},
		{"not permitted", "ListOrgs", "org list", 403, `{"error":{"code":"denied","message":"not yours","request_id":"q"}}`, 4, []string{"not yours", "whoami"}},
		{"controls in the message", "GetSite", "site get " + id, 404, `{"error":{"code":"x","message":"\u001b[2J","request_id":""}}`, 3, []string{`\x1b[2J (code x)`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c, map[string]http.HandlerFunc{tt.operation: answer(tt.status, tt.body)})
			got := run{server: s.URL}.do(t, strings.Fields(tt.args)...)
			if got.code != tt.code || got.out != "" {
				t.Errorf("exit code %d, printed %q", got.code, got.out)
			}
			for _, want := range tt.want {
				if !strings.Contains(got.err, want) {
					t.Errorf("no %q in %q", want, got.err)
				}
			}
		})
	}
}

func TestAnAnswerOfSomethingElseIsNoCrash(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		h    http.HandlerFunc
		code int
		want string
	}{
		"a proxy's error page": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<h1>oops</h1>", 502) }, 5, "the server answered 502 Bad Gateway"},
		"a web page":           {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<h1>hi</h1>")) }, 1, "answers, but is not an edge control plane\nhint: name another server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(tt.h)
			defer s.Close()
			if got := (run{server: s.URL}).do(t, "site", "list"); got.code != tt.code || !strings.Contains(got.err, tt.want) {
				t.Errorf("%d %s", got.code, got.err)
			}
		})
	}
}

func TestNoServerAndASlowServerAreToldApart(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if got := (run{server: gone.URL}).do(t, "whoami"); got.code != 5 ||
		!strings.Contains(got.err, "connection refused\nhint: is the server running? start it with 'mainstay dev'") {
		t.Errorf("%d %s", got.code, got.err)
	}
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	defer close(release)
	if got := (run{server: slow.URL}).do(t, "whoami", "--timeout", (20 * time.Millisecond).String()); got.code != 5 ||
		!strings.Contains(got.err, "--timeout allows for more") {
		t.Errorf("%d %s", got.code, got.err)
	}
}

func TestAServerThatIsNotTrustedNeedsItsAuthority(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(answer(200, examples()["GetMe"]))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the refused handshake is what is tested
	s.StartTLS()
	defer s.Close()
	if got := (run{server: s.URL}).do(t, "whoami"); got.code != 1 || !strings.Contains(got.err, "--ca-file") {
		t.Errorf("%d %s", got.code, got.err)
	}
	ca := writeFile(t, "ca.pem", pemOf(s.Certificate()))
	run{server: s.URL}.ok(t, "whoami", "--ca-file", ca)
}

func TestAServerWithoutTLSIsToldFromAnAbsentOne(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	server := strings.Replace(s.URL, "http:", "https:", 1)
	if got := (run{server: server}).do(t, "whoami"); got.code != 1 || !strings.Contains(got.err, "begins with http://") {
		t.Errorf("%d %s", got.code, got.err)
	}
}

func TestAWrongCommandLineExitsWith2AndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"site get":                    "SITE is missing",
		"site get a b":                `unexpected argument "b"`,
		"site lst":                    "did you mean list?",
		"site list --nope":            "see 'mainstay edge site list --help'",
		"site list -o xml":            "must be table, wide, json, yaml, name",
		"site list --server nonsense": "--server must be a URL",
		"site label s1 novalue":       "must be KEY=VALUE",
		"site enroll x --cert-out y":  "--cert-out takes --csr",
		"site enroll x":               "an enrollment token is missing",
		"site delete s1":              "Delete site s1 with its devices? Nobody is there to ask: confirm with --yes",
		"site revoke s1":              "confirm with --yes",
		"event send --site s1":        "--topic is missing",
		"event send --site " + id + " --topic t --data {":  "not valid JSON",
		"campaign create x --version 1 --url u --sha256 s": "the targets are missing",
		"deployment update p1 --port 99999":                "not a port",
		"deadletter replay-all":                            "--route is missing",
		"audit list --from yesterday":                      "must be a time",
		"agent heartbeat":                                  "an agent's call takes the agent's token",
		"login":                                            "the password is missing",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			got := run{}.do(t, strings.Fields(line)...)
			if got.code != 2 || !strings.Contains(got.err, want) {
				t.Errorf("exit code %d, want 2 and %q:\n%s", got.code, want, got.err)
			}
		})
	}
}

func TestAnEmptyIDDoesNotAddressTheCollection(t *testing.T) {
	t.Parallel()
	if got := (run{}).do(t, "site", "delete", "", "--yes"); got.code != 2 || !strings.Contains(got.err, "SITE is empty") {
		t.Errorf("%d %s", got.code, got.err)
	}
}

// A script whose variable is not set must not do to everything what was meant for one.
func TestAnEmptyValueIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	for _, args := range [][]string{
		{"campaign", "retry", id, "--device", ""},
		{"campaign", "retry", id, "--device", "pump-1,"},
		{"campaign", "count-targets", "--site", ""},
		{"campaign", "create", "c", "--version", "1", "--url", "https://x", "--sha256", "ab", "--device", ""},
		{"device", "list", "--site", ""},
		{"event", "list", "--topic", ""},
		{"deadletter", "list", "--route", ""},
		{"site", "list", "--search", ""},
	} {
		if got := (run{server: s.URL}).do(t, args...); got.code != 2 || !strings.Contains(got.err, " is empty") {
			t.Errorf("%q: %d %s", args, got.code, got.err)
		}
	}
	twice := []string{"campaign", "count-targets", "--label", "line=a", "--label", "line=b"}
	if got := (run{server: s.URL}).do(t, twice...); got.code != 2 || !strings.Contains(got.err, "line is given twice") {
		t.Errorf("%d %s", got.code, got.err)
	}
	if len(s.calls) > 0 {
		t.Errorf("%v was asked", s.calls)
	}
}

func TestACountIsPrintedAlone(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), map[string]http.HandlerFunc{"CountTargets": answer(200, `{"devices":28}`)})
	for _, flag := range []string{"-q", "--output=name"} {
		if got := (run{server: s.URL}).do(t, "campaign", "count-targets", "--label", "line=a", flag); got.code != 0 || got.out != "28\n" {
			t.Errorf("%s: %d %q %s", flag, got.code, got.out, got.err)
		}
	}
}
