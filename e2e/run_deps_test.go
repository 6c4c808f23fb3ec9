package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A machine is a folder with scripts/run-deps.sh and a PATH that holds nothing but the
// programs that every Debian has, an apt of the test's, and what that apt has installed.
type machine struct {
	testing.TB
	dir, bin string
	env      []string
}

// The test's apt knows packages once its lists were updated, and notes how it was called.
const (
	fakeAPTGet = `#!/bin/sh
echo "$@" >>"$MACHINE/apt.log"
while case $1 in -q) true ;; -o) shift ;; *) false ;; esac; do shift; done
what=$1
shift
case $what in
update) [ -z "${OFFLINE:-}" ] || exit 100; touch "$MACHINE/lists" ;;
install)
	[ -e "$MACHINE/lists" ] && [ -z "${OFFLINE:-}" ] || { echo "E: Unable to locate package" >&2; exit 100; }
	for package; do
		case $package in
		qemu-system-x86) touch "$MACHINE/bin/qemu-system-x86_64" ;;
		qemu-utils) touch "$MACHINE/bin/qemu-img" ;;
		xz-utils) touch "$MACHINE/bin/xz" ;;
		busybox-static) touch "$MACHINE/bin/busybox" ;;
		-*) ;;
		*) touch "$MACHINE/bin/$package" ;;
		esac
	done
	chmod +x "$MACHINE"/bin/* ;;
download) [ -e "$MACHINE/lists" ] && [ -z "${OFFLINE:-}" ] || { echo "E: Failed to fetch" >&2; exit 100; }; touch "${1}_1_amd64.deb" ;;
esac
`
	fakeAPTCache = `#!/bin/sh
[ -e "$MACHINE/lists" ] && printf 'linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-1-cloud-amd64\n'
`
)

func newMachine(t testing.TB, user string) *machine {
	t.Helper()
	m := &machine{TB: t, dir: t.TempDir()}
	m.bin = filepath.Join(m.dir, "bin")
	for _, folder := range []string{"bin", "scripts", "tmp"} {
		if err := os.Mkdir(filepath.Join(m.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "mktemp", "rm", "sed", "head", "tail", "ls", "mkdir", "mv", "grep", "cat", "dirname", "touch", "chmod"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"id": "#!/bin/sh\necho " + user + "\n", "apt-get": fakeAPTGet, "apt-cache": fakeAPTCache,
		"dpkg": "#!/bin/sh\necho amd64\n", "ldd": "#!/bin/sh\necho '\tnot a dynamic executable'\n"} {
		if err := os.WriteFile(filepath.Join(m.bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"run-deps.sh", "deps.sh", "packages.sh", "check-tools.sh"} {
		text, err := os.ReadFile(filepath.Join("..", "scripts", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(m.dir, "scripts", name), text, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.env = []string{"PATH=" + m.bin, "MACHINE=" + m.dir, "TMPDIR=" + filepath.Join(m.dir, "tmp")}
	return m
}

// run runs a script and returns its exit code and what it printed. It leaves nothing in
// the folder for temporary files.
func (m *machine) run(script string, env ...string) (code int, output string) {
	m.Helper()
	cmd := exec.Command(filepath.Join(m.dir, "scripts", script))
	cmd.Env = append(slices.Clone(m.env), env...)
	raw, err := cmd.CombinedOutput()
	if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
		m.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(m.dir, "tmp")); err != nil || len(left) > 0 {
		m.Errorf("%s left temporary files: %v %v", script, left, err)
	}
	return cmd.ProcessState.ExitCode(), string(raw)
}

// calls are the calls of apt-get so far, without the options that all of them have.
func (m *machine) calls() (calls []string) {
	m.Helper()
	raw, err := os.ReadFile(filepath.Join(m.dir, "apt.log"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		words := slices.DeleteFunc(
			strings.Fields(line), func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") },
		)
		calls = append(calls, strings.Join(words, " "))
	}
	return calls
}

func (m *machine) kernels() []string {
	m.Helper()
	found, err := filepath.Glob(filepath.Join(m.dir, ".mainstay/hypervisor/demo/linux-image-*.deb"))
	if err != nil {
		m.Fatal(err)
	}
	return found
}

const installs = "install qemu-system-x86 qemu-utils busybox-static cpio xz-utils curl"

func TestMakeRunInstallsWhatTheServicesUseOnceAndShowsWhatFor(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "0")
	code, output := m.run("run-deps.sh")
	if want := []string{
		"update", installs, "download linux-image-6.1.0-1-cloud-amd64",
	}; code != 0 ||
		!slices.Equal(m.calls(), want) {
		t.Fatalf("exit code %d; apt-get was called %q, want %q\n%s", code, m.calls(), want, output)
	}
	for _, shown := range []string{"qemu-system-x86   runs virtual machines", "cpio              packs the demo guest", "Fetching the kernel of the demo guest: linux-image-6.1.0-1-cloud-amd64"} {
		if !strings.Contains(output, shown) {
			t.Errorf("it does not show %q:\n%s", shown, output)
		}
	}
	if strings.Contains(output, "lacks") || strings.Contains(output, "sudo") {
		t.Errorf("all was installed, and it says that something is missing:\n%s", output)
	}
	if len(m.kernels()) != 1 {
		t.Errorf("the kernel is not where the daemon looks for it: %v", m.kernels())
	}
	for folder, mode := range map[string]os.FileMode{".mainstay": 0o700, ".mainstay/hypervisor": 0o711} {
		if info, err := os.Stat(filepath.Join(m.dir, folder)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, want mode %o", folder, info.Mode(), mode)
		}
	}
	calls := len(m.calls())
	if code, output := m.run("run-deps.sh"); code != 0 || output != "" || len(m.calls()) != calls {
		t.Errorf("the second time: exit code %d, apt-get was called %q\n%s", code, m.calls()[calls:], output)
	}
}

func TestMakeRunGoesOnWithoutWhatItCannotInstallAndPrintsTheLineToRun(t *testing.T) {
	t.Parallel()
	const line = "  sudo apt-get update && sudo apt-get install -y --no-install-recommends qemu-system-x86 qemu-utils busybox-static cpio xz-utils curl\n"
	for name, c := range map[string]struct {
		user, env string
		shown     string // beside the line
		installs  bool
	}{
		"as somebody else":   {user: "1000", shown: "  qemu-utils        disks, images and backups of virtual machines\n"},
		"apt has no network": {user: "0", env: "OFFLINE=1", shown: "apt: Unable to locate package\n", installs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, c.user)
			code, output := m.run("run-deps.sh", c.env)
			if code != 0 || !strings.Contains(output, line) || !strings.Contains(output, c.shown) {
				t.Errorf("exit code %d:\n%s", code, output)
			}
			if slices.Contains(m.calls(), installs) != c.installs {
				t.Errorf("apt-get was called %q", m.calls())
			}
		})
	}
}

func TestMakeRunWithoutAPTNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "0")
	for _, name := range []string{"apt-get", "apt-cache", "dpkg"} {
		if err := os.Remove(filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if code, output := m.run("run-deps.sh"); code != 0 ||
		!strings.Contains(output, "qemu-system-x86   runs virtual machines") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

func TestMakeRunInstallsNothingIfItIsToldSo(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "0")
	if code, output := m.run("run-deps.sh", "MAINSTAY_NO_INSTALL=1"); code != 0 || output != "" || m.calls() != nil ||
		m.kernels() != nil {
		t.Errorf("exit code %d, apt-get was called %q\n%s", code, m.calls(), output)
	}
}

func TestAKernelThatCannotBeFetchedDoesNotStopMakeRun(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "0")
	m.run("run-deps.sh")
	for _, kernel := range m.kernels() {
		if err := os.Remove(kernel); err != nil {
			t.Fatal(err)
		}
	}
	code, output := m.run("run-deps.sh", "OFFLINE=1")
	if code != 0 || !strings.Contains(output, "'mainstay image build-demo' will try again") ||
		!strings.Contains(output, "apt: Failed to fetch") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	left, err := os.ReadDir(filepath.Join(m.dir, ".mainstay/hypervisor/demo"))
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v in the folder: %v", left, err)
	}
}

func TestTheTestsNeedWhatTheServicesUseToo(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "1000")
	code, output := m.run("deps.sh")
	if code == 0 || !strings.Contains(output, " qemu-system-x86 qemu-utils ") || !strings.Contains(output, " podman ") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

func TestTheBuildNamesTheProgramsThatItLacks(t *testing.T) {
	t.Parallel()
	const (
		noGo   = "Mainstay is built with Go 1.26 or newer: see https://go.dev/dl/\n"
		noNode = "Mainstay is built with Node.js 20.19 or newer, with npm: see https://nodejs.org/en/download\n"
	)
	m := newMachine(t, "1000")
	add := func(name, text string) {
		if err := os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(code int, output string) {
		t.Helper()
		if gotCode, got := m.run("check-tools.sh"); gotCode != code || got != output {
			t.Errorf("exit code %d, %q; want %d, %q", gotCode, got, code, output)
		}
	}
	expect(1, noGo+noNode)
	add("go", "")
	add("npm", "")
	add("node", "exit 1\n") // as it answers when it is too old
	expect(1, noNode)
	add("node", "exit 0\n")
	expect(0, "")
}

func TestMakeRunInstallsBeforeItStarts(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("make", "--dry-run", "run")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	install, start := strings.Index(string(out), "./scripts/run-deps.sh"), strings.Index(
		string(out), "./bin/mainstay dev",
	)
	if err != nil || install < 0 || start < install {
		t.Errorf("%v\n%s", err, out)
	}
}
