package vm_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

func TestWatchPrintsEventsAndContinuesAfterTheLastOne(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked []string
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"WatchVMs": func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		event := `{"at":"2026-01-02T03:04:05Z","vm_id":"1","name":"web","tenant":"acme","kind":"state","message":"m%d","actor":"ann"}`
		switch len(asked) {
		case 1:
			_, _ = fmt.Fprintf(w, "id: 6\nevent: reset\ndata: {}\n\nid: 7\nevent: vm\ndata: "+event+"\n\n", 1)
		case 2:
			_, _ = fmt.Fprintf(w, "id: 9\nevent: reset\ndata: {}\n\nid: 10\nevent: vm\ndata: "+event+"\n\n", 2)
		default:
			cancel()
			<-r.Context().Done()
		}
	}})
	got := daemontest.Run{URL: s.URL}.Do(t, ctx, "vm", "watch")
	if got.Code != 0 || strings.Join(asked, ",") != ",7,10" {
		t.Errorf("exit code %d, asked for what follows %q", got.Code, asked)
	}
	const lines = "2026-01-02T03:04:05Z  web  state      m1 (ann)\n2026-01-02T03:04:05Z  web  state      m2 (ann)\n"
	if got.Out != lines || strings.Count(got.Err, "Some events are missing") != 1 {
		t.Errorf("printed %q and %q", got.Out, got.Err)
	}
}
