// Package pamtest gives tests the program mainstay-pam, and accounts of this machine.
package pamtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// Main is for TestMain: it runs the tests, which share the program and the accounts, and removes
// both.
func Main(m *testing.M) {
	code := m.Run()
	for _, undo := range cleanups {
		undo()
	}
	os.Exit(code)
}

var (
	mu       sync.Mutex
	cleanups []func()
)

// finally calls undo after all tests.
func finally(undo func()) {
	mu.Lock()
	defer mu.Unlock()
	cleanups = append(cleanups, undo)
}

// build builds the program once.
var build = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "mainstay-pam-")
	if err != nil {
		return "", err
	}
	finally(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "mainstay-pam")
	cmd := exec.Command("go", "build", "-tags", "pam", "-o", path, "github.com/mainstay-infra/mainstay/cmd/mainstay-pam")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// Program returns the path of mainstay-pam.
func Program(t testing.TB) string {
	t.Helper()
	require.Program(t, "gcc", "gcc")
	if _, err := os.Stat("/usr/include/security/pam_appl.h"); err != nil {
		require.Missing(t, "PAM's headers are not installed (apt-get install libpam0g-dev)")
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// HostAccounts are accounts of this machine, made for the tests. Each has the password. Sudo is in
// the group of that name, and Stale must change its password.
type HostAccounts struct{ Plain, Sudo, Expired, Locked, Stale, Password string }

var makeAccounts = sync.OnceValues(func() (HostAccounts, error) {
	prefix := fmt.Sprintf("mstest%d", os.Getpid())
	sweep()
	h := HostAccounts{
		Plain: prefix + "p", Sudo: prefix + "s", Expired: prefix + "e", Locked: prefix + "l", Stale: prefix + "d",
		Password: auth.NewToken("Päss "), // blanks and letters beyond ASCII count, too
	}
	hash, err := exec.Command("openssl", "passwd", "-6", h.Password).Output()
	if err != nil {
		return h, err
	}
	for _, name := range []string{h.Plain, h.Sudo, h.Expired, h.Locked, h.Stale} {
		err = errors.Join(err, do("useradd", "-M", "-s", "/usr/sbin/nologin", "-p", strings.TrimSpace(string(hash)), name))
		finally(func() { _ = do("userdel", name) })
	}
	return h, errors.Join(err,
		do("usermod", "-aG", "sudo", h.Sudo),
		do("usermod", "-e", "1990-01-01", h.Expired),
		do("usermod", "-L", h.Locked),
		do("chage", "-d", "0", h.Stale), // must change its password
	)
})

// do runs a program.
func do(args ...string) error {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", args, err, out)
	}
	return nil
}

var ours = regexp.MustCompile(`(?m)^(mstest(\d+)[a-z]):`)

// sweep removes the accounts of test processes that were killed.
func sweep() {
	passwd, _ := os.ReadFile("/etc/passwd")
	for _, m := range ours.FindAllStringSubmatch(string(passwd), -1) {
		if _, err := os.Stat("/proc/" + m[2]); errors.Is(err, os.ErrNotExist) {
			_ = do("userdel", m[1])
		}
	}
}

// Accounts returns the accounts of this machine.
func Accounts(t testing.TB) HostAccounts {
	t.Helper()
	if os.Getuid() != 0 {
		require.Missing(t, "only root can make accounts")
	}
	require.Program(t, "useradd", "passwd")
	require.Program(t, "openssl", "openssl")
	h, err := makeAccounts()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ConfDir returns a folder with rules, by the name of the service.
func ConfDir(t testing.TB, rules map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range rules {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// UnixRules check passwords as the host does.
const UnixRules = "auth required pam_unix.so nodelay\naccount required pam_unix.so\n"
