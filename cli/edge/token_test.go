package edge_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func pemOf(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

// withCredentials returns a directory as `mainstay dev` leaves it.
func withCredentials(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".mainstay"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".mainstay", "credentials.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

const devCredentials = `{"edge":{"admin_username":"admin","admin_password":"p","admin_token":"dev-admin","viewer_token":"v","enrollment_token":"dev-enroll"}}`

func TestTheTokenIsTheFlagThenTheEnvironmentThenTheDevelopersFile(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	dir := withCredentials(t, devCredentials)
	env := map[string]string{"EDGE_TOKEN": "from-env"}
	for want, r := range map[string]struct {
		run  run
		args []string
	}{
		"Bearer from-flag": {run{server: s.URL, dir: dir, env: env}, []string{"whoami", "--token", "from-flag"}},
		"Bearer from-env":  {run{server: s.URL, dir: dir, env: env}, []string{"whoami"}},
		"Bearer dev-admin": {run{server: s.URL, dir: dir}, []string{"whoami"}},
		"":                 {run{server: s.URL}, []string{"whoami"}},
	} {
		r.run.ok(t, r.args...)
		if s.auth != want {
			t.Errorf("sent %q, want %q", s.auth, want)
		}
	}
}

func TestTheServerMayComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	run{env: map[string]string{"EDGE_SERVER": s.URL + "/api/v1/"}}.ok(t, "whoami")
	if len(s.called()) != 1 {
		t.Error("another server was called")
	}
}

func TestAServerThatIsNoURLIsNamedByWhatGaveIt(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]run{
		"--server must be a URL":    {server: "nonsense", env: map[string]string{"EDGE_SERVER": "ftp://x"}},
		"EDGE_SERVER must be a URL": {env: map[string]string{"EDGE_SERVER": "ftp://x"}},
	} {
		if got := r.do(t, "whoami"); got.code != 2 || !strings.Contains(got.err, want) {
			t.Errorf("%d %s, want %q", got.code, got.err, want)
		}
	}
}

func TestTheDevelopersCredentialsGoToThisMachineOnly(t *testing.T) {
	t.Parallel()
	dir := withCredentials(t, "this is no JSON, so reading it would fail")
	// 192.0.2.0/24 is reserved for documentation: nothing responds there.
	got := run{server: "http://192.0.2.1:1", dir: dir}.do(t, "whoami", "--timeout", "10ms")
	if strings.Contains(got.err, "credentials") {
		t.Errorf("the file was read: %s", got.err)
	}
	if got := (run{server: "http://localhost:1", dir: dir}).do(t, "whoami"); !strings.Contains(
		got.err, "read credentials",
	) {
		t.Errorf("a broken file went unnoticed: %s", got.err)
	}
}

func TestEnrollingTakesTheDevelopersEnrollmentTokenAndKeepsTheCertificate(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	out := filepath.Join(t.TempDir(), "site.crt")
	got := run{
		server: s.URL,
		dir:    withCredentials(t, devCredentials),
	}.ok(t, "site", "enroll", "plant", "--csr", writeFile(t, "csr", "CSR"), "--cert-out", out)
	if !strings.Contains(s.body, `"enrollment_token":"dev-enroll"`) || !strings.Contains(got.out, "agent-token") {
		t.Errorf("sent %s\nprinted %s", s.body, got.out)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "CERT" {
		t.Errorf("%v %q", err, b)
	}
}

func TestAnAgentNeverCallsWithTheAdminsToken(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	if got := (run{server: s.URL, dir: withCredentials(t, devCredentials)}).do(
		t, "agent", "heartbeat",
	); got.code != 2 ||
		len(s.called()) != 0 {
		t.Errorf("exit code %d, called %v", got.code, s.called())
	}
}

func TestLoginPrintsTheTokenAloneAndTakesThePasswordFromStandardInputOrTheEnvironment(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	for _, r := range []run{{server: s.URL, stdin: "secret\nmore\n"}, {server: s.URL, env: map[string]string{"EDGE_PASSWORD": "secret"}}} {
		if got := r.ok(
			t, "login", "-u", "eve",
		); got.out != "session-token\n" || !strings.Contains(s.body, `"password":"secret"`) ||
			!strings.Contains(s.body, `"username":"eve"`) {
			t.Errorf("printed %q, sent %s", got.out, s.body)
		}
	}
}
