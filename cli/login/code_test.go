package login_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestALoginSendsTheCodeOfASecondFactorWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // it is compared
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/openapi.yaml":
			_, _ = io.WriteString(w, "info:\n  title: Mainstay VM management\n")
		case r.URL.Path == "/api/auth/login" && strings.Contains(string(body), `"totp_code":"123456"`):
			_, _ = io.WriteString(w, `{"token":"session","user_id":"u","role":"admin","username":"eve","expires_at":"2026-01-02T03:04:05Z"}`)
		case r.URL.Path == "/api/auth/login":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"Two-factor code required"}`)
		case r.URL.Path == "/api/auth/me" && r.Header.Get("Authorization") == "Bearer session":
			_, _ = io.WriteString(w, `{"id":"u","username":"eve","role":"admin","two_factor":true}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"no"}`)
		}
	}))
	t.Cleanup(server.Close)
	d := newDesk(t)
	args := []string{"login", "vm", "--server", server.URL, "--username", "eve", "--password-file", "-"}
	code, _, errs := d.run(strings.NewReader("secret\n"), args...)
	if code == 0 || !strings.Contains(errs, "--code is missing") || d.contexts().All["default"]["vm"].Token != "" {
		t.Errorf("without a code: %d %s", code, errs)
	}
	code, out, errs := d.run(strings.NewReader("secret\n"), append(args, "--code", "123456")...)
	if code != 0 || !strings.Contains(out, "as eve") || d.contexts().All["default"]["vm"].Token != "session" {
		t.Errorf("with a code: %d %s %s", code, out, errs)
	}
}
