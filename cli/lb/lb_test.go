package lb_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/lb"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

const (
	backend = `{"id":3,"address":"10.0.0.12","port":8080,"weight":2,"weightOverridden":true,"healthy":true,"state":"draining","adminDraining":true,"detail":"connected","packets":7,"bytes":700}`
	row     = `{"vip":"192.0.2.10:80:tcp","id":3,"address":"10.0.0.12","port":8080,"weight":2,"weightOverridden":true,"healthy":true,"state":"draining","adminDraining":true,"detail":"no \u001b[31mroute","packets":7,"bytes":700}`
	vip     = `{"name":"192.0.2.10:80:tcp","vipAddress":"192.0.2.10","vipPort":80,"vipPortEnd":90,"protocol":"tcp","mode":"nat","interface":"eth0","startedAt":"2026-01-02T03:04:05Z","packets":1,"bytes":2,"flows":3,` +
		`"dropped":4,"droppedRateLimited":5,"droppedNoBackend":6,"unserved":7,"announced":true,"bgpCommunities":[],"bgpPeers":[],"backends":[` + backend + `]}`
	node = `{"interface":"eth0","backendInterfaces":["eth1"],"xdpMode":"auto","attached":true,"xdpModeAttached":"native","version":"1","startedAt":"2026-01-02T03:04:05Z","notReady":"","insecure":false,"config":{"path":"/etc/lb.yaml","loadedAt":"2026-01-02T03:04:05Z","error":"vips: bad","errorAt":"2026-01-02T03:04:06Z"},` +
		`"drops":{"malformed":3,"ttl":0},"flows":{"entries":5,"evictions":1,"lostReplies":9},"bgp":[{"peer":"10.0.0.254","asn":65000,"state":"active","since":"2026-01-02T03:04:05Z","reason":"hold timer"}],"orchestratorDrains":[{"source":"kubernetes","backends":["10.0.0.1:0"]}]}`
)

// server returns examples and validates requests against the contract.
type server struct {
	url string

	mu    sync.Mutex
	calls []string // METHOD PATH?QUERY BODY
	key   string   // the last Authorization header
}

func serve(t *testing.T, special http.HandlerFunc) *server {
	t.Helper()
	c, err := contract.Load(lbapi.Document, lbapi.BasePath, []string{"bearer", "admin"})
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{
		"ListVIPs":       "[" + vip + "]",
		"GetStatus":      vip,
		"ListBackends":   "[" + row + "]",
		"DrainBackend":   "[" + row + "]",
		"UndrainBackend": "[" + row + "]",
		"SetWeight":      "[" + row + "]",
		"GetNode":        node,
		"Explain":        `{"vip":"192.0.2.10:80:tcp","reason":"flow","backend":"10.0.0.12:8080","slot":7,"slots":65537,"hashed":"10.0.0.11:8080"}`,
	}
	s := &server{}
	mux := http.NewServeMux()
	for _, op := range c.Operations() {
		mux.HandleFunc(op.Pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := op.CheckRequest(r); err != nil {
				t.Errorf("%s: %v", op.ID, err)
			}
			if op.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: Content-Type %q", op.ID, r.Header.Get("Content-Type"))
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			s.mu.Lock()
			s.calls, s.key = append(
				s.calls, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)),
			), r.Header.Get("Authorization")
			s.mu.Unlock()
			if special != nil {
				special(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answers[op.ID]) // a client that left
		})
	}
	hs := httptest.NewServer(contracttest.New(c, lbapi.BasePath).Wrap(t, mux))
	t.Cleanup(hs.Close)
	s.url = hs.URL
	return s
}

func (s *server) seen() ([]string, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls), s.key
}

// run runs `mainstay lb ARGS`.
func run(t *testing.T, env client.Environment, args ...string) (string, error) {
	t.Helper()
	if env.Getenv == nil {
		env.Getenv = func(string) string { return "" }
	}
	if env.Dir == "" {
		env.Dir = t.TempDir()
	}
	root := &cobra.Command{Use: "lb", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(lb.Commands(env)...)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCommandsAskWhatTheyShouldAndShowWhatMatters(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args  string
		calls string // separated by ;
		shows []string
	}{
		{"vip list", "GET /api/v1/vips", []string{"192.0.2.10:80:tcp"}},
		{"backend list --limit 1", "GET /api/v1/backends", []string{"10.0.0.12:8080"}},
		{"backend drain 3", "POST /api/v1/backends/3/drain {}", []string{"draining"}},
		{"backend undrain 3", "POST /api/v1/backends/3/undrain {}", nil},
		{"backend weight 3 10", `POST /api/v1/backends/3/weight {"weight":10}`, nil},
		{"vips", "GET /api/v1/vips", []string{"192.0.2.10:80:tcp", "80-90", "0 of 1", "RATE LIMITED"}},
		{"backends", "GET /api/v1/backends", []string{"10.0.0.12:8080", "draining (operator)", "2 (override)", `no \x1b[31mroute`}},
		{"drain 3", "POST /api/v1/backends/3/drain {}", []string{"draining"}},
		{"undrain 10.0.0.12:8080", "GET /api/v1/backends;POST /api/v1/backends/3/undrain {}", []string{"10.0.0.12:8080"}},
		{"weight 3 10", `POST /api/v1/backends/3/weight {"weight":10}`, nil},
		{"weight 10.0.0.12:8080 0 --vip 192.0.2.10:80:tcp", `GET /api/v1/backends;POST /api/v1/backends/3/weight {"vip":"192.0.2.10:80:tcp","weight":0}`, nil},
		{"explain 198.51.100.7:4000 192.0.2.10:80", "GET /api/v1/explain?client=198.51.100.7:4000&vip=192.0.2.10:80:tcp",
			[]string{"192.0.2.10:80:tcp sends it to 10.0.0.12:8080, where the flow is already. A new flow would get 10.0.0.11:8080 (slot 7 of 65537)."}},
		{"node", "GET /api/v1/node", []string{"eth0, eth1, attached as native (asked for: auto)", "vips: bad", "Dropped: malformed", "5 entries, 1 evicted", "AS 65000, active since", "hold timer", "Drained by kubernetes"}},
	} {
		s := serve(t, nil)
		out, err := run(t, client.Environment{}, append(strings.Fields(tt.args), "--server", s.url)...)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		calls, _ := s.seen()
		if got := strings.ReplaceAll(strings.Join(calls, ";"), "%3A", ":"); got != tt.calls {
			t.Errorf("%s: asked %s, want %s", tt.args, got, tt.calls)
		}
		for _, want := range tt.shows {
			if !strings.Contains(out, want) {
				t.Errorf("%s: lacks %q:\n%s", tt.args, want, out)
			}
		}
		if strings.Contains(out, "\x1b") || strings.Contains(out, "ttl") {
			t.Errorf("%s shows too much:\n%q", tt.args, out)
		}
	}
}

func TestProgramsGetWhatTheAPISent(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for format, want := range map[string]string{"json": `"vipPortEnd": 90`, "yaml": "vipPortEnd: 90"} {
		out, err := run(t, client.Environment{}, "vips", "-o", format, "--server", s.url)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

func TestTheKeyIsFoundWhereItMayBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("key", "from-file\n")
	write(".mainstay/credentials.json", `{"lb": {"api_key": "from-dev"}}`)
	env := func(key string) client.Environment {
		return client.Environment{
			Dir:    dir,
			Getenv: func(name string) string { return map[string]string{"LB_API_KEY": key}[name] },
		}
	}
	for _, tt := range []struct {
		env  client.Environment
		args []string
		want string
	}{
		{env("from-env"), []string{"--api-key-file", file}, "Bearer from-file"},
		{env("from-env"), nil, "Bearer from-env"},
		{env("id:ops=new=1,old"), nil, "Bearer new=1"},
		{env(""), nil, "Bearer from-dev"},
		{client.Environment{}, nil, ""},
	} {
		s := serve(t, nil)
		if _, err := run(t, tt.env, append([]string{"vips", "--server", s.url}, tt.args...)...); err != nil {
			t.Fatal(err)
		}
		if _, key := s.seen(); key != tt.want {
			t.Errorf("%v: %q, want %q", tt.args, key, tt.want)
		}
	}
	if _, err := run(
		t,
		env(""),
		"vips",
		"--server",
		"http://192.0.2.1:1",
		"--timeout",
		"1ms",
	); err == nil ||
		strings.Contains(err.Error(), "from-dev") {
		t.Errorf("%v", err)
	}
}

func TestErrorsSayWhatToDoNext(t *testing.T) {
	t.Parallel()
	answers := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(
				w,
				`{"error":{"code":"x","message":"the reason","request_id":"r1"}}`,
			) // a client that left
		}
	}
	for status, want := range map[int]struct {
		code int
		hint string
	}{401: {exit.Denied, "LB_API_KEY"}, 403: {exit.Denied, "read-only"}, 404: {exit.NotFound, "lb backend list"}, 503: {exit.Unavailable, "lb node"}} {
		_, err := run(t, client.Environment{}, "drain", "3", "--server", serve(t, answers(status)).url)
		if exit.Code(err) != want.code || !strings.Contains(exit.Hint(err), want.hint) ||
			!strings.Contains(err.Error(), "the reason (code x, request id r1)") {
			t.Errorf("%d: %v, hint %q", status, err, exit.Hint(err))
		}
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	if _, err := run(t, client.Environment{}, "vips", "--server", closed.URL); !strings.Contains(
		exit.Hint(err), "mainstay serve lb",
	) {
		t.Errorf("%v", err)
	}
	s := serve(t, nil)
	if _, err := run(t, client.Environment{}, "drain", "10.0.0.99:1", "--server", s.url); exit.Code(
		err,
	) != exit.NotFound {
		t.Errorf("%v", err)
	}
	for _, line := range []string{"drain", "drain x", "weight 3", "weight 3 1001", "weight 3 -- -1", "weight 3 x", "explain a", "vips extra", "vips --server x"} {
		args := strings.Fields(line)
		if !slices.Contains(args, "--server") {
			args = append([]string{args[0], "--server", s.url}, args[1:]...)
		}
		if _, err := run(t, client.Environment{}, args...); exit.Code(err) != exit.Usage {
			t.Errorf("%s: %v", line, err)
		}
	}
}
