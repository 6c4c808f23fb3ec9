package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo/demotest"
)

// notRun are the blocks of the README that no terminal runs, by their first line.
var notRun = map[string]string{
	"make run     # builds the consoles and bin/mainstay, and runs all services on loopback": "it names what there is; make run is run below, and make test runs this test",
}

// The README is followed from top to bottom, in a copy of this tree, on a machine of its own
// as far as the network goes, which reaches nothing.
func TestTheREADMEHoldsWordForWord(t *testing.T) {
	t.Parallel()
	all, err := steps(readDocument(t, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if wrong := notFollowed(all, notRun); wrong != "" {
		t.Fatal("README.md: " + wrong)
	}
	r := newReader(t)
	r.copyTree()
	for _, s := range all {
		r.follow(s)
	}
}

// notFollowed says which step nobody follows though it is not excused, or is excused though
// it is not there.
func notFollowed(all []step, excuses map[string]string) string {
	used := map[string]bool{}
	for _, s := range all {
		if s.terminal != "" {
			continue
		}
		if excuses[s.lines[0]] == "" {
			return fmt.Sprintf(
				"line %d: nobody runs this block: put a marker such as <!-- terminal: 1 --> before it, or name it in notRun with the reason",
				s.line,
			)
		}
		used[s.lines[0]] = true
	}
	for line := range excuses {
		if !used[line] {
			return "no block begins with what is excused: " + line
		}
	}
	return ""
}

func TestABlockThatNobodyRunsIsFound(t *testing.T) {
	t.Parallel()
	all, err := steps("<!-- terminal: 1 -->\n\n    $ a\n\nText.\n\n    $ b\n")
	if err != nil {
		t.Fatal(err)
	}
	for wrong, excuses := range map[string]map[string]string{
		"line 7: nobody runs this block": nil,
		"":                               {"$ b": "it takes hardware"},
		"no block begins with":           {"$ b": "it takes hardware", "$ c": "it is gone"},
	} {
		if got := notFollowed(all, excuses); got == "" != (wrong == "") || !strings.HasPrefix(got, wrong) {
			t.Errorf("%q, want %q", got, wrong)
		}
	}
}

// reader is a person who follows a document.
type reader struct {
	*testing.T
	host      *netlab.Host
	folder    string
	env       []string
	terminals map[string]*terminal
	began     time.Time
}

func newReader(t *testing.T) *reader {
	t.Helper()
	for program, pkg := range map[string]string{"bash": "bash", "make": "make", "curl": "curl", "npm": "npm", "qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "cpio": "cpio"} {
		require.Program(t, program, pkg)
	}
	host, err := netlabtest.New(t).Host("machine")
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, host: host, folder: t.TempDir(), terminals: map[string]*terminal{}, began: time.Now()}
	r.keepKernel()
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); {
		case strings.HasPrefix(name, "EDGE_"),
			strings.HasPrefix(name, "LB_"),
			strings.HasPrefix(name, "HYPERVISOR_"),
			strings.HasPrefix(name, "AGENT_"),
			strings.HasPrefix(name, "MAINSTAY_"),
			strings.HasPrefix(name, "MAKE"):
		default:
			r.env = append(r.env, v)
		}
	}
	// The copy is not a repository, so the version cannot be read from it.
	version, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		version = []byte("dev")
	}
	r.env = append(r.env, "VERSION="+strings.TrimSpace(string(version)), "BASH_SILENCE_DEPRECATION_WARNING=1")
	t.Cleanup(r.endAll)
	return r
}

// keepKernel puts the demo guest's kernel where make run does, while there is a network.
func (r *reader) keepKernel() {
	r.Helper()
	kernel, state := demotest.Kernel(r.T), filepath.Join(r.folder, ".mainstay")
	for folder, mode := range map[string]os.FileMode{state: 0o700, state + "/hypervisor": 0o711, state + "/hypervisor/demo": 0o755} {
		if err := os.MkdirAll(folder, mode); err != nil {
			r.Fatal(err)
		}
		if err := os.Chmod(folder, mode); err != nil {
			r.Fatal(err)
		}
	}
	if err := os.Symlink(kernel, filepath.Join(state, "hypervisor/demo", filepath.Base(kernel))); err != nil {
		r.Fatal(err)
	}
}

// copyTree copies what is in the repository and what was built of it.
func (r *reader) copyTree() {
	r.Helper()
	for _, built := range []string{"web/node_modules/.package-lock.json", "web/dist/lb/index.html"} {
		if _, err := os.Stat(filepath.Join("..", built)); err != nil {
			require.Missing(r.T, "the consoles are not built (make build)")
		}
	}
	const script = `{ git ls-files -co --exclude-standard; find web/dist -type f; [ ! -d bin ] || find bin -type f; } |
		while IFS= read -r file; do [ ! -e "$file" ] || printf '%s\n' "$file"; done | tar -cf - -T - | tar -xf - -C "$1" &&
		ln -s "$PWD/web/node_modules" "$1/web/node_modules"`
	command := exec.Command("sh", "-c", script, "sh", r.folder)
	command.Dir = ".."
	if out, err := command.CombinedOutput(); err != nil {
		r.Fatalf("copy the tree: %v\n%s", err, out)
	}
}

// follow does what a step says.
func (r *reader) follow(s step) {
	r.Helper()
	if s.terminal == "" {
		return
	}
	x := r.terminals[s.terminal]
	if x == nil {
		x = openTerminal(r.T, r.host, s.terminal, r.folder, r.env)
		r.terminals[s.terminal] = x
		if _, err := exec.LookPath("sudo"); err != nil && os.Getuid() == 0 {
			x.do(typing{text: `sudo() { "$@"; }`}, false)
		}
	}
	if s.press != "" {
		x.read()
		x.typed(s.press)
		x.await("the key", func(string) bool { _, back := x.exited(); return back })
		if strings.Contains(x.unread(), "goroutine ") {
			r.Errorf("line %d: it panicked", s.line)
		}
		return
	}
	all := s.commands()
	for i, c := range all {
		r.Logf("after %3.0f s, line %d, terminal %s: %s", time.Since(r.began).Seconds(), s.line, s.terminal, c.text)
		x.do(c, s.stays && i == len(all)-1)
	}
}

// endAll ends what is left on the host: VMs and agents outlive terminals.
func (r *reader) endAll() {
	var own syscall.Stat_t
	if err := r.host.Do(func() error { return syscall.Stat("/proc/thread-self/ns/net", &own) }); err != nil {
		r.Error(err)
		return
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		r.Error(err)
	}
	for _, path := range all {
		var of syscall.Stat_t
		if syscall.Stat(path, &of) != nil || of.Ino != own.Ino {
			continue // it is over, or somewhere else
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
