package app_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/app"
)

// runAgent runs `mainstay agent ARGS`.
func runAgent(t *testing.T, args ...string) (string, error) {
	t.Helper()
	for _, cmd := range app.Commands() {
		if cmd.Name() != "agent" {
			continue
		}
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	t.Fatal("there is no command agent")
	return "", nil
}

func TestAnAgentWithoutAServerSaysWhichSettingIsMissing(t *testing.T) {
	if _, err := runAgent(t, "--data", t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "server: is required") {
		t.Errorf("%v", err)
	}
}

func TestTheDoctorFailsWithWhatToDo(t *testing.T) {
	out, err := runAgent(
		t,
		"doctor",
		"--data",
		t.TempDir(),
		"--server",
		"http://127.0.0.1:1",
		"--enrollment-token",
		"x",
		"--podman-socket",
		"",
	)
	if err == nil || !strings.Contains(err.Error(), "control plane") || !strings.Contains(out, "PROBLEM") ||
		!strings.Contains(out, "-> is --server right") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = runAgent(t, "doctor", "-o", "json", "--data", t.TempDir())
	if err == nil || !strings.Contains(out, `"verdict": "problem"`) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err = runAgent(t, "doctor", "-o", "xml"); err == nil {
		t.Error("a format that does not exist is accepted")
	}
}
