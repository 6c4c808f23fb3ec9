//go:build linux

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
)

// cli runs `mainstay vms` with the service's token, and returns its exit code and what it prints.
func (m *vmManager) cli(args ...string) (code int, out, errOut string) {
	m.Helper()
	path, err := binary()
	if err != nil {
		m.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"vms", "--server", m.url}, args...)...)
	cmd.Env = append(os.Environ(), "VM_TOKEN="+m.token)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		m.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// A guest that really runs is reached through VM management: its console, programs and files, and a scan
// asks its agent.
func TestAGuestIsReachedThroughVMManagement(t *testing.T) {
	t.Parallel()
	needRoot(t)
	d := newHypervisor(t, nil, freeLoopback(t))
	d.start()
	d.withDemo(t)
	m := newVMManager(t, d.listen)
	m.start()
	if code, _, errOut := m.cli("create", "web", "--image", "demo", "--memory", "192M"); code != 0 {
		t.Fatal(errOut)
	}
	if code, _, errOut := m.cli("start", "web"); code != 0 {
		t.Fatal(errOut)
	}
	eventually(t, "the agent answers", func() bool {
		code, out, _ := m.cli("exec", "web", "--", "echo", "from the guest")
		return code == 0 && out == "from the guest\n"
	})
	if code, _, _ := m.cli("exec", "web", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("a program that ends with 7 is told as %d", code)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("content ", 1<<16)), 0o640); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := m.cli("cp", file, "web:/tmp/"); code != 0 {
		t.Error(errOut)
	}
	if code, out, errOut := m.cli("exec", "web", "--", "wc", "-c", "/tmp/file"); code != 0 || out != "524288 /tmp/file\n" {
		t.Errorf("%d %q %s", code, out, errOut)
	}
	if code, _, errOut := m.cli("cp", "web:/tmp/file", file+".back"); code != 0 {
		t.Error(errOut)
	} else if back, err := os.ReadFile(file + ".back"); err != nil || len(back) != 524288 {
		t.Errorf("%d bytes came back, %v", len(back), err)
	}
	console := launch(t, []string{"VM_TOKEN=" + m.token}, "vms", "--server", m.url, "console", "web")
	if _, ok := console.awaitOutput(regexp.MustCompile(`demo guest: ready`)); !ok {
		t.Errorf("the console shows no boot:\n%s", console.output.String())
	}
	console.kill()
	m.scan("web")
}

// scan has a VM scanned whose agent answers.
func (m *vmManager) scan(name string) {
	m.Helper()
	status, raw := m.call("POST", "/api/compliance/scan/"+name, map[string]any{"profile_id": "level-2"})
	if status != 202 {
		m.Fatalf("%d %s", status, raw)
	}
	scan := hvAs[vmapi.ComplianceScan](m.TB, raw)
	m.call("GET", "/api/jobs/"+scan.JobId+"?wait=60", map[string]any{})
	_, raw = m.call("GET", "/api/compliance/results", map[string]any{})
	found, judged := hvAs[[]vmapi.ComplianceResult](m.TB, raw)[0], 0
	for _, c := range found.Checks {
		if c.Scope == vmapi.ComplianceCheckScopeGuest && c.Status != vmapi.ComplianceCheckStatusSkipped {
			judged++
		}
	}
	if found.Status != vmapi.ComplianceStatusCompleted || judged < 10 {
		m.Errorf("%s %s: %d checks of the guest were not skipped", found.Status, found.Error, judged)
	}
}
