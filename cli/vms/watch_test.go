package vms_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/clitest"
)

func TestWatchContinuesAfterTheLastEventUntilTheVMIsGone(t *testing.T) {
	t.Parallel()
	var asked []string
	s := serve(t, map[string]http.HandlerFunc{"WatchVMEvents": func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("tenant")+"/"+r.Header.Get("Last-Event-ID"))
		if len(asked) == 3 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"there is no such VM"}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		const event = `{"id":%d,"at":"2026-01-02T03:04:05Z","kind":"state","message":"m\u001b%d","actor":"ann"}`
		_, _ = fmt.Fprintf(w, "id: %d\nevent: event\ndata: "+event+"\n\nevent: other\ndata: {}\n\n", len(asked)+6, len(asked), len(asked))
	}})
	code, out, errOut := clitest.Run(t, t.TempDir(), "", "vms", "--server", s.URL, "--token", "t", "--tenant", "acme", "watch", "web", "--last-event-id", "6")
	if got := strings.Join(asked, " "); code == 0 || got != "acme/6 acme/7 acme/8" || !strings.Contains(errOut, "there is no such VM") {
		t.Errorf("exit code %d, asked for what follows %s: %s", code, got, errOut)
	}
	const lines = "2026-01-02T03:04:05Z  state      m\\x1b1 (ann)\n2026-01-02T03:04:05Z  state      m\\x1b2 (ann)\n"
	if out != lines {
		t.Errorf("printed %q", out)
	}
}
