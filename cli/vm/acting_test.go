package vm_test

import (
	"net/http"
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
