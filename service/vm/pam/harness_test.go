//go:build linux

package pam_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/require"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, undo := range cleanups {
		undo()
	}
	os.Exit(code)
}

// cleanups run after all tests, since tests share the program and the accounts.
var cleanups []func()

// build builds the program once.
var build = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "mainstay-pam-")
	if err != nil {
		return "", err
	}
	cleanups = append(cleanups, func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "mainstay-pam")
	cmd := exec.Command("go", "build", "-tags", "pam", "-o", path, "../../../cmd/mainstay-pam")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// program returns the path of mainstay-pam.
func program(t *testing.T) string {
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

// hostAccounts are accounts of this machine, made for the tests. Each has the password.
type hostAccounts struct{ plain, sudo, expired, locked, stale, password string }

var makeAccounts = sync.OnceValues(func() (hostAccounts, error) {
	prefix := fmt.Sprintf("mstest%d", os.Getpid())
	h := hostAccounts{
		plain: prefix + "p", sudo: prefix + "s", expired: prefix + "e", locked: prefix + "l", stale: prefix + "d",
		password: auth.NewToken("Päss "), // blanks and letters beyond ASCII count, too
	}
	do := func(stdin string, args ...string) error {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", args, err, out)
		}
		return nil
	}
	hash, err := exec.Command("openssl", "passwd", "-6", h.password).Output()
	if err != nil {
		return h, err
	}
	for _, name := range []string{h.plain, h.sudo, h.expired, h.locked, h.stale} {
		err = errors.Join(err, do("", "useradd", "-M", "-s", "/usr/sbin/nologin", "-p", strings.TrimSpace(string(hash)), name))
		cleanups = append(cleanups, func() { _ = do("", "userdel", name) })
	}
	return h, errors.Join(err,
		do("", "usermod", "-aG", "sudo", h.sudo),
		do("", "usermod", "-e", "1990-01-01", h.expired),
		do("", "usermod", "-L", h.locked),
		do("", "chage", "-d", "0", h.stale), // must change its password
	)
})

func accounts(t *testing.T) hostAccounts {
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

// confDir returns a folder with rules, by the name of the service.
func confDir(t *testing.T, rules map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range rules {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	unixRules   = "auth required pam_unix.so nodelay\naccount required pam_unix.so\n"
	permitRules = "auth required pam_permit.so\naccount required pam_permit.so\n"
	denyRules   = "auth required pam_deny.so\naccount required pam_deny.so\n"
)

// script returns rules that run a shell script as the check of the password.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "check")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return "auth required pam_exec.so quiet " + path + "\naccount required pam_permit.so\n"
}
