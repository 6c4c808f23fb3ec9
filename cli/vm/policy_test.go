package vm_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

func TestFlowsAreFollowedForOneVM(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked []string
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"FollowFlows": func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		const flow = `{"time":"2026-01-02T03:04:05Z","vm_id":"%s","vm":"web","tenant":"acme","direction":"ingress",` +
			`"verdict":"denied","rule":"","protocol":"tcp","source":"2001:db8::1","source_port":5,"destination":"10.87.0.2",` +
			`"destination_port":22}`
		switch len(asked) {
		case 1:
			_, _ = fmt.Fprintf(w, "id: 6\nevent: reset\ndata: {}\n\nid: 7\nevent: flow\ndata: "+flow+"\n\n", daemontest.VMID)
			_, _ = fmt.Fprintf(w, "id: 8\nevent: flow\ndata: "+flow+"\n\n", "another")
		case 2:
			_, _ = fmt.Fprint(w, "id: 9\nevent: reset\ndata: {}\n\n")
		default:
			cancel()
			<-r.Context().Done()
		}
	}})
	got := daemontest.Run{URL: s.URL}.Do(t, ctx, "vm", "flows", "web", "--follow")
	if got.Code != 0 || strings.Join(asked, ",") != ",8,9" {
		t.Errorf("exit code %d, asked for what follows %q", got.Code, asked)
	}
	const line = "2026-01-02T03:04:05Z  ingress denied by (default): tcp [2001:db8::1]:5 -> 10.87.0.2:22\n"
	if got.Out != line || strings.Count(got.Err, "Some flows may be missing") != 1 {
		t.Errorf("printed %q and %q", got.Out, got.Err)
	}
}

func TestAPolicyThatWasShownIsAppliedToItsRevision(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, nil)
	shown := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "network-policy", "show", "web", "--output", "json")
	var sent string
	s = daemontest.Serve(t, map[string]http.HandlerFunc{"PutNetworkPolicy": func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 1<<16)
		n, _ := r.Body.Read(b)
		sent = string(b[:n])
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(daemontest.Examples()["PutNetworkPolicy"]))
	}})
	got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "network-policy", "apply", "web", "-f", writeFile(t, "p", shown.Out))
	if got.Code != 0 || !strings.Contains(sent, `"revision":3`) || !strings.Contains(sent, `"except":["10.1.0.0/16"]`) {
		t.Errorf("%d %s: sent %s", got.Code, got.Err, sent)
	}
	for _, text := range []string{"{", `{"policy": 1}`, `[]`} {
		got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "network-policy", "apply", "web", "-f", writeFile(t, "p", text))
		if got.Code != 2 {
			t.Errorf("%s: exit code %d", text, got.Code)
		}
	}
}
