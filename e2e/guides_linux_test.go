package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
)

// blockWith is the one block of a document that has this line.
func blockWith(t testing.TB, path, line string) string {
	t.Helper()
	all, err := steps(readDocument(t, path))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, s := range all {
		if text := strings.Join(s.lines, "\n") + "\n"; strings.Contains("\n"+text, "\n"+line+"\n") {
			found = append(found, text)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks with the line %q", path, len(found), line)
	}
	return found[0]
}

func TestTheStartOfTheGuidesHoldsWordForWord(t *testing.T) {
	t.Parallel()
	for guide, blocks := range map[string]int{"docs/services/hypervisor.md": 2, "docs/services/vm.md": 4, "docs/services/storage.md": 2} {
		t.Run(guide, func(t *testing.T) { followStart(t, guide, blocks) })
	}
}

// followStart follows the blocks of a guide that are typed into terminals.
func followStart(t *testing.T, guide string, blocks int) {
	all, err := steps(readDocument(t, guide))
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := guestAgent()
	if err != nil {
		t.Fatal(err)
	}
	// MAINSTAY_BINARY may be anywhere, and the agent is looked for beside the program.
	bin := t.TempDir()
	for name, path := range map[string]string{"mainstay": program, "mainstay-guest": agent} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	r.env = append(r.env, "PATH="+bin+":"+os.Getenv("PATH"), "HYPERVISOR_GUEST_AGENT="+agent)
	followed := 0
	for _, s := range all {
		if s.terminal != "" {
			r.follow(s)
			followed++
		}
	}
	if followed != blocks {
		t.Errorf("%d blocks were followed, want %d", followed, blocks)
	}
}

func TestTheHypervisorsGuideShowsADocumentThatIsValid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "hypervisor.toml")
	for name, text := range map[string]string{path: blockWith(t, "docs/services/hypervisor.md", "[jailer]"), filepath.Join(dir, "acme-ci.token"): "a-token-of-some-length-4711\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := configfile.Load(path); err != nil {
		t.Error(err)
	}
}

func TestTheLoadBalancersGuideShowsADocumentThatIsValid(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lb.yaml")
	text := blockWith(t, "docs/services/lb.md", "mainstay lb check /etc/mainstay/lb.yaml")
	begin, after, ok := strings.Cut(text, "mainstay lb check")
	if !ok || after == "" {
		t.Fatal(text)
	}
	write := exec.Command("sh", "-c", strings.ReplaceAll(begin, "/etc/mainstay/lb.yaml", path))
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if code, output := run(t, nil, "lb", "check", path); code != 0 ||
		!strings.Contains(output, "is valid: 1 VIPs, 2 backends") {
		t.Errorf("exit code %d: %s", code, output)
	}
}

func TestWhatTheAgentsGuideTellsProgramsToSendIsTaken(t *testing.T) {
	t.Parallel()
	const usual = "/var/lib/mainstay-agent"
	block := blockWith(t, "docs/services/agent.md", `S="curl --unix-socket `+usual+`/agent.sock"`)
	data := filepath.Join(t.TempDir(), "agent") // a socket's path is short
	p := launch(
		t,
		nil,
		"agent",
		"--server",
		"http://127.0.0.1:1",
		"--enrollment-token",
		enrollmentToken,
		"--name",
		"guide",
		"--data",
		data,
		"--listen",
		"",
	)
	if _, ok := p.awaitOutput(regexp.MustCompile(`msg=listening service=agent`)); !ok {
		t.Fatalf("the agent did not start:\n%s", p.output)
	}
	block = strings.ReplaceAll(strings.ReplaceAll(block, usual, data), `S="curl `, `S="curl -sS --fail-with-body `)
	out, err := exec.Command("sh", "-ec", block).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, part := range []string{`"event_id":`, `"device_id":"pump-1"`, `"rpm":1450`} {
		if !strings.Contains(strings.ReplaceAll(string(out), " ", ""), part) {
			t.Errorf("no %s in what is answered:\n%s", part, out)
		}
	}
}
