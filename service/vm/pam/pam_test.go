//go:build linux

package pam_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/pam"
	"github.com/mainstay-infra/mainstay/service/vm/pam/pamtest"
)

func TestTheHostDecidesWhosePasswordIsRight(t *testing.T) {
	t.Parallel()
	path, h := pamtest.Program(t), pamtest.Accounts(t)
	c := pam.Program(path, "mainstay", pamtest.ConfDir(t, map[string]string{"mainstay": pamtest.UnixRules}))

	a, err := c.Authenticate(t.Context(), h.Plain, h.Password)
	if err != nil || a.Username != h.Plain || a.UID == 0 || slices.Contains(a.Groups, "sudo") {
		t.Errorf("an account: %+v, %v", a, err)
	}
	a, err = c.Authenticate(t.Context(), h.Sudo, h.Password)
	if err != nil || !slices.Contains(a.Groups, "sudo") || !slices.Contains(a.Groups, h.Sudo) {
		t.Errorf("a member of sudo: %+v, %v", a, err)
	}
	if a, err = c.Lookup(t.Context(), h.Sudo); err != nil || !slices.Contains(a.Groups, "sudo") {
		t.Errorf("looked up: %+v, %v", a, err)
	}
	for name, try := range map[string]struct{ username, password string }{
		"a wrong password":                {h.Plain, h.Password + "x"},
		"a part of the password":          {h.Plain, h.Password[:len(h.Password)-1]},
		"an empty password":               {h.Plain, ""},
		"cut off by a zero byte":          {h.Plain, h.Password + "\x00x"},
		"a huge password":                 {h.Plain, strings.Repeat("x", pam.MaxPassword+1)},
		"a long password":                 {h.Plain, strings.Repeat("x", pam.MaxPassword)},
		"another's password":              {"root", h.Password},
		"an unknown user":                 {"nobody-of-that-name", h.Password},
		"a user with a path":              {"../" + h.Plain, h.Password},
		"a folder":                        {"..", h.Password},
		"no user":                         {"", h.Password},
		"an expired account":              {h.Expired, h.Password},
		"a locked account":                {h.Locked, h.Password},
		"a password that must be changed": {h.Stale, h.Password},
	} {
		a, err := c.Authenticate(t.Context(), try.username, try.password)
		if !fault.Is(err, fault.Unauthenticated) || a.Username != "" {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		if err != nil && strings.Contains(err.Error(), h.Password) {
			t.Errorf("%s: the error contains the password: %v", name, err)
		}
	}
	for _, username := range []string{h.Expired, "nobody-of-that-name", ".."} {
		if a, err := c.Lookup(t.Context(), username); !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("%s looked up: %+v, %v", username, a, err)
		}
	}
}

// libpam takes the rules of "other" for a service without a file.
func TestAServiceWithoutRulesOfItsOwnAcceptsNobody(t *testing.T) {
	t.Parallel()
	path, h := pamtest.Program(t), pamtest.Accounts(t)
	dir := pamtest.ConfDir(t, map[string]string{"other": permitRules, "permit": permitRules, "deny": denyRules})
	if a, err := pam.Program(path, "permit", dir).Authenticate(t.Context(), h.Plain, "any"); err != nil || a.Username != h.Plain {
		t.Errorf("rules that permit: %+v, %v", a, err)
	}
	if _, err := pam.Program(path, "permit", dir).Authenticate(t.Context(), "nobody-of-that-name", "any"); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("rules that permit whom the host does not know: %v", err)
	}
	if _, err := pam.Program(path, "deny", dir).Authenticate(t.Context(), h.Plain, h.Password); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("rules that deny: %v", err)
	}
	for _, service := range []string{"absent", "../pam.d/permit", "", "x/permit"} {
		a, err := pam.Program(path, service, dir).Authenticate(t.Context(), h.Plain, "any")
		if err == nil || a.Username != "" {
			t.Errorf("%q: %+v, %v", service, a, err)
		}
	}
	_, err := pam.Program(path, "absent", dir).Authenticate(t.Context(), h.Plain, "any")
	if !fault.Is(err, fault.Unavailable) || !errors.Is(err, pam.ErrNotAsked) {
		t.Errorf("a service without a file: %v", err)
	}
}

func TestWhatGoesWrongIsNotADenial(t *testing.T) {
	t.Parallel()
	path, h := pamtest.Program(t), pamtest.Accounts(t)
	dir := pamtest.ConfDir(t, map[string]string{
		"crash": script(t, "kill -9 $PPID"),
		"hang":  script(t, "exec sleep 20"),
		"lack":  "auth required pam_of_that_name_there_is_none.so\naccount required pam_permit.so\n",
	})
	for service, limit := range map[string]time.Duration{"crash": time.Minute, "hang": 500 * time.Millisecond, "lack": time.Minute} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := pam.Program(path, service, dir).Authenticate(ctx, h.Plain, h.Password)
		cancel()
		if !fault.Is(err, fault.Unavailable) || errors.Is(err, pam.ErrNotAsked) {
			t.Errorf("%s: %v", service, err)
		}
		if strings.Contains(err.Error(), h.Password) {
			t.Errorf("%s: the error contains the password: %v", service, err)
		}
	}
	for _, c := range []*pam.Client{
		pam.Program("/of/that/name/there/is/none", "mainstay", dir),
		pam.Socket(filepath.Join(dir, "no.sock"), "mainstay"),
	} {
		if _, err := c.Authenticate(t.Context(), h.Plain, h.Password); !fault.Is(err, fault.Unavailable) || !errors.Is(err, pam.ErrNotAsked) {
			t.Errorf("without a program: %v", err)
		}
	}
	// Programs that answer nonsense.
	for name, text := range map[string]string{
		"nothing": "", "text": "cat >/dev/null; echo yes", "an endless answer": "exec cat /dev/zero",
		"neither":  `printf '\000\000\000\002{}'`,
		"a length": `printf '\377\377\377\377'`,
	} {
		liar := filepath.Join(t.TempDir(), "liar")
		if err := os.WriteFile(liar, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := pam.Program(liar, "mainstay", dir).Authenticate(t.Context(), h.Plain, h.Password); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a program that answers %s: %v", name, err)
		}
	}
}

func TestThePasswordIsWhereNobodySeesIt(t *testing.T) {
	t.Parallel()
	path, h := pamtest.Program(t), pamtest.Accounts(t)
	// The script is a child of the process that asks, and sees what others could.
	seen := filepath.Join(t.TempDir(), "seen")
	look := `cat /proc/$PPID/cmdline /proc/$PPID/environ /proc/self/environ >` + seen + `; grep "^CoreDump\|^NoNewPrivs" /proc/$PPID/status >>` + seen
	c := pam.Program(path, "mainstay", pamtest.ConfDir(t, map[string]string{"mainstay": script(t, look)}))
	if _, err := c.Authenticate(t.Context(), h.Plain, h.Password); err != nil && !fault.Is(err, fault.Unauthenticated) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(seen)
	if err != nil || !strings.Contains(string(text), "mainstay-pam") {
		t.Fatalf("%q, %v", text, err)
	}
	if strings.Contains(string(text), h.Password) {
		t.Error("the password is in an argument or in the environment")
	}
	if strings.Contains(string(text), "HOME=") {
		t.Errorf("the environment of the service is handed on: %q", text)
	}
}

// go vet does not look at the program without its tag.
func TestTheProgramPassesVet(t *testing.T) {
	t.Parallel()
	pamtest.Program(t)
	cmd := exec.CommandContext(t.Context(), "go", "vet", "-tags", "pam", "../../../cmd/mainstay-pam")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
