package agent_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/agent"
	"github.com/mainstay-infra/mainstay/cli/exit"
)

const answer = `{"version":"1.2","name":"oslo","server":"https://edge","site_id":"s1","link":{"state":"offline","since":"2026-01-02T03:04:05Z","last_heartbeat_at":null,"last_error":"no \u001b[31mroute"},
"certificate_not_after":"2026-03-04T05:06:07Z","clock_skew_seconds":-7200.4,"outbox":{"events":3,"bytes":2048,"max_bytes":1048576,"when_full":"refuse","oldest_at":"2026-01-02T03:04:05Z",
"accepted":9,"forwarded":4,"dropped":1,"refused":1,"set_aside":1,"discarded":0,"last_refused":[{"event_id":"e1","topic":"t","reason":"too odd","at":"2026-01-02T03:04:05Z","bytes":1,"whole":true}],"last_error":"backlog_full"},
"twins":{"devices":2,"pending":1},"updates":[{"device_id":"pump","request_id":"r","version":"2.0","state":"downloading","progress":40,"message":"","updated_at":"2026-01-02T03:04:05Z"}],
"deployments":[{"id":"d","name":"web","status":"running","message":""}],"alerts":[{"code":"disk_full","message":"The disk is full \u001b[31m"}]}`

// run runs `agent ARGS`.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := &cobra.Command{Use: "agent"}
	cmd.AddCommand(agent.Commands(func(string) string { return "" })...)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// serve listens on the socket of a data directory, whose path it returns.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "status-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close() // it is replaced
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return dir
}

func TestRefusedEventsAreListedPageByPageAndActedUponByName(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	dir := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a body that is cut shows below
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.String()+" "+string(body))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		item := func(id string) string {
			return fmt.Sprintf(
				`[{"event_id":%q,"topic":"t","reason":"too odd","at":"2026-01-02T03:04:05Z","bytes":2048,"whole":true}]`,
				id,
			)
		}
		switch {
		case strings.Contains(string(body), "nobody"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(
				w,
				`{"error":{"code":"not_found","message":"no refused event has the id nobody","request_id":"r"}}`,
			)
		case r.Method == http.MethodPost:
			_, _ = fmt.Fprint(w, `{"events":2}`)
		case r.URL.Query().Get("cursor") == "":
			w.Header().Set("Link", `</v1/events/refused?cursor=next&limit=1>; rel="next"`)
			_, _ = fmt.Fprint(w, item("e1"))
		default:
			_, _ = fmt.Fprint(w, item("e2"))
		}
	}))
	for _, c := range []struct {
		args []string
		says string // of the output, or of the error
		asks string
	}{
		{[]string{"refused"}, "e2", "GET /v1/events/refused?cursor=next "},
		{[]string{"refused", "retry", "--all"}, "2 events will be sent again", `POST /v1/events/refused/retry {"all":true}`},
		{[]string{"refused", "retry", "e1", "e2"}, "2 events", `POST /v1/events/refused/retry {"event_ids":["e1","e2"]}`},
		{[]string{"refused", "discard", "e1"}, "2 events were deleted", `POST /v1/events/refused/discard {"event_ids":["e1"]}`},
		{[]string{"refused", "discard", "nobody"}, "no refused event has the id nobody", `POST /v1/events/refused/discard {"event_ids":["nobody"]}`},
		{[]string{"refused", "discard"}, "--all", ""},
		{[]string{"refused", "discard", "e1", "--all"}, "--all", ""},
	} {
		mu.Lock()
		asked = nil
		mu.Unlock()
		out, err := run(t, append(c.args, "--data", dir)...)
		if err != nil {
			out = err.Error()
		}
		mu.Lock()
		if !strings.Contains(out, c.says) || c.asks == "" && len(asked) > 0 ||
			c.asks != "" && (len(asked) == 0 || asked[len(asked)-1] != c.asks) {
			t.Errorf("%v: %s; asked: %q", c.args, out, asked)
		}
		mu.Unlock()
	}
}

func TestTheStatusShowsWhatAPersonLooksFor(t *testing.T) {
	t.Parallel()
	dir := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/status" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer)) // a client that left
	}))
	out, err := run(t, "status", "--data", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"oslo", "offline since 2026-01-02T03:04:05Z: no ", "ahead by -2h0m0s", "3 events, 2.0 KiB of 1.0 MiB, oldest 2026-01-02", "9 accepted, 4 forwarded, 1 dropped, 1 refused",
		"ALERT", "The disk is full", "1 refused events", "backlog_full", "e1 (t) 2026-01-02T03:04:05Z: too odd", "2 devices, 1 with something to send", "Update of pump", "2.0: downloading 40%", "Deployment web", "2026-03-04"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("a control character of the answer reaches the terminal")
	}
	out, err = run(t, "status", "--socket", filepath.Join(dir, "agent.sock"), "-o", "json")
	if err != nil || !strings.Contains(out, `"site_id": "s1"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAnAgentThatDoesNotRunIsSaidToBeSo(t *testing.T) {
	t.Parallel()
	_, err := run(t, "status", "--data", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "no agent answers") || !strings.Contains(exit.Hint(err), "doctor") {
		t.Errorf("%v, hint %q", err, exit.Hint(err))
	}
}
