package vms_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/mainstay-infra/mainstay/cli/clitest"
)

// echo is a socket that greets with the request's path and query, and then sends back one message.
func echo(t *testing.T) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close(websocket.StatusNormalClosure, "it has ended") }() // the other side may be gone
		if conn.Write(r.Context(), websocket.MessageBinary, []byte(r.URL.RequestURI()+" ")) != nil {
			return
		}
		if _, message, err := conn.Read(r.Context()); err == nil {
			_ = conn.Write(r.Context(), websocket.MessageBinary, message) // the client may have left
		}
	}
}

func TestAConsoleIsAttachedToTheTerminal(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string]http.HandlerFunc{"OpenConsole": echo(t)})
	code, out, errOut := clitest.Run(t, t.TempDir(), "uname", "vms", "--server", s.URL, "--token", "t", "--tenant", "acme", "console", "web")
	if code != 0 || out != "/api/vms/web/console?tenant=acme uname" || !strings.Contains(errOut, "The console has ended.") || s.Auth() != "Bearer t" {
		t.Errorf("%d %q %q as %q", code, out, errOut, s.Auth())
	}
	refused := serve(t, map[string]http.HandlerFunc{"OpenConsole": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"error":"the VM is stopped"}`) // the client may have left
	}})
	code, _, errOut = clitest.Run(t, t.TempDir(), "", "vms", "--server", refused.URL, "--token", "t", "console", "web")
	if code == 0 || !strings.Contains(errOut, "the VM is stopped") {
		t.Errorf("%d %q", code, errOut)
	}
}

func TestTheScreenIsAskedForBeforeAPortIsOpened(t *testing.T) {
	t.Parallel()
	s := serve(t, map[string]http.HandlerFunc{"OpenScreen": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"error":"the VM has no screen"}`) // the client may have left
	}})
	code, out, errOut := clitest.Run(t, t.TempDir(), "", "vms", "--server", s.URL, "--token", "t", "vnc", "web")
	if code == 0 || out != "" || !strings.Contains(errOut, "the VM has no screen") || s.Called() != "OpenScreen" {
		t.Errorf("%d %q %q, called %s", code, out, errOut, s.Called())
	}
}
