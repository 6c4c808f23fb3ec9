package vm_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

func TestCommandsSayForWhomTheyActOnlyWhenTold(t *testing.T) {
	t.Parallel()
	var sent atomic.Value
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"GetMe": func(w http.ResponseWriter, r *http.Request) {
		sent.Store(r.Header.Get("Mainstay-Tenant") + " " + r.Header.Get("Mainstay-Actor"))
		daemontest.Answer(200, daemontest.Examples()["GetMe"])(w, r)
	}})
	run := daemontest.Run{URL: s.URL}
	run.OK(t, "vm", "whoami", "--as-tenant", "acme", "--as-actor", "alice")
	if got := sent.Load(); got != "acme alice" {
		t.Errorf("sent %q", got)
	}
	run.OK(t, "vm", "whoami")
	if got := sent.Load(); got != " " {
		t.Errorf("sent %q", got)
	}
}

func TestCommandsReachAHostThroughTheRegistry(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, nil)
	host, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	registry := httptest.NewServer(http.StripPrefix("/fleet/nodes/host-1", httputil.NewSingleHostReverseProxy(host)))
	defer registry.Close()
	run := daemontest.Run{URL: registry.URL}
	for line, called := range map[string]string{
		"vm list --node host-1":              "ListVMs",
		"vm stop web --node=host-1":          "ListVMs StopVM",
		"image list --node host-1":           "ListImages",
		"vm exec web --node host-1 -- uname": "ListVMs Exec",
	} {
		before := len(s.Requests())
		run.OK(t, strings.Fields(line)...)
		var got []string
		for _, r := range s.Requests()[before:] {
			got = append(got, r.Operation)
		}
		if all := strings.Join(got, " "); all != called {
			t.Errorf("%s: called %s", line, all)
		}
	}
	for _, name := range []string{"..", "a/b", "-"} {
		if got := run.Do(t, t.Context(), "vm", "list", "--node="+name); got.Code != 2 || !strings.Contains(got.Err, "--node") {
			t.Errorf("%q: exit code %d, %s", name, got.Code, got.Err)
		}
	}
}
