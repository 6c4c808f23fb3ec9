package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

var reread = regexp.MustCompile(`credentials are read again`)

func TestSIGHUPReadsCredentialsAgainAndEndsNothing(t *testing.T) {
	t.Parallel()
	const before, after = "admin-token-before-the-change-0001", "admin-token-after-the-change-000002"
	e := newEdge(t)
	file := filepath.Join(t.TempDir(), "admin")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(before)
	e.env = []string{"EDGE_ADMIN_TOKEN_FILE=" + file}
	e.start()
	defer e.stop()
	ask(e.api(before).GetMe(t.Context())).is(t, http.StatusOK)
	write(after)
	if err := e.process.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, ok := e.process.awaitOutput(reread); !ok {
		t.Fatalf("nothing was read again:\n%s", tail(e.process.output.String(), 20))
	}
	ask(e.api(before).GetMe(t.Context())).is(t, http.StatusUnauthorized)
	ask(e.api(after).GetMe(t.Context())).is(t, http.StatusOK)
}

func TestAControlPlaneWithoutCredentialsMakesThemOnItsFirstStart(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.env = nil
	e.start()
	defer func() { e.stop() }()
	path := filepath.Join(e.data, "credentials.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	var made struct {
		Edge struct {
			Username string `json:"admin_username"`
			Password string `json:"admin_password"`
			Token    string `json:"admin_token"`
		} `json:"edge"`
	}
	if err := json.Unmarshal(text, &made); err != nil {
		t.Fatal(err)
	}
	login := func() {
		t.Helper()
		ask(e.api(made.Edge.Token).GetMe(t.Context())).is(t, http.StatusOK)
		ask(
			e.api("").Login(
				t.Context(), edgeapi.LoginRequest{Username: made.Edge.Username, Password: made.Edge.Password},
			),
		).is(t, http.StatusOK)
	}
	login()
	e.stop()
	e.start() // with the same ones
	login()
}
