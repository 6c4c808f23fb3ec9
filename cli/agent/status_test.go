package agent_test

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/agent"
	"github.com/mainstay-infra/mainstay/cli/exit"
)

const answer = `{"version":"1.2","name":"oslo","server":"https://edge","site_id":"s1","link":{"state":"offline","since":"2026-01-02T03:04:05Z","last_heartbeat_at":null,"last_error":"no \u001b[31mroute"},
"certificate_not_after":"2026-03-04T05:06:07Z","clock_skew_seconds":-7200.4,"outbox":{"events":3,"bytes":2048,"max_bytes":1048576,"when_full":"refuse","oldest_at":"2026-01-02T03:04:05Z",
"accepted":9,"forwarded":4,"dropped":1,"refused":1,"last_refused":[{"event_id":"e1","topic":"t","reason":"too odd","at":"2026-01-02T03:04:05Z"}],"last_error":"backlog_full"},
"twins":{"devices":2,"pending":1},"updates":[{"device_id":"pump","request_id":"r","version":"2.0","state":"downloading","progress":40,"message":"","updated_at":"2026-01-02T03:04:05Z"}],
"deployments":[{"id":"d","name":"web","status":"running","message":""}]}`

// run runs `status ARGS` with an agent that answers at the socket in dir.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := agent.Commands(func(string) string { return "" })[0]
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTheStatusShowsWhatAPersonLooksFor(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "status-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/status" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer)) // a client that left
	}))
	_ = server.Listener.Close() // it is replaced
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)

	out, err := run(t, "--data", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"oslo", "offline since 2026-01-02T03:04:05Z: no ", "ahead by -2h0m0s", "3 events, 2.0 KiB of 1.0 MiB, oldest 2026-01-02", "9 accepted, 4 forwarded, 1 dropped, 1 refused",
		"backlog_full", "e1 (t) 2026-01-02T03:04:05Z: too odd", "2 devices, 1 with something to send", "Update of pump", "2.0: downloading 40%", "Deployment web", "2026-03-04"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("a control character of the answer reaches the terminal")
	}
	out, err = run(t, "--socket", filepath.Join(dir, "agent.sock"), "-o", "json")
	if err != nil || !strings.Contains(out, `"site_id": "s1"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAnAgentThatDoesNotRunIsSaidToBeSo(t *testing.T) {
	t.Parallel()
	_, err := run(t, "--data", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "no agent answers") || !strings.Contains(exit.Hint(err), "doctor") {
		t.Errorf("%v, hint %q", err, exit.Hint(err))
	}
}
