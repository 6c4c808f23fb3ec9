//go:build linux

package identity_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
	"github.com/mainstay-infra/mainstay/service/vm/pam"
	"github.com/mainstay-infra/mainstay/service/vm/pam/pamtest"
)

// The real stack, with real accounts of this machine.
func TestAccountsOfThisMachineSignIn(t *testing.T) {
	t.Parallel()
	path, h := pamtest.Program(t), pamtest.Accounts(t)
	client := pam.Program(path, "mainstay", pamtest.ConfDir(t, map[string]string{"mainstay": pamtest.UnixRules}))
	w := open(t, dbtest.SQLite(t, migrations), func(cfg *identity.Config) { cfg.Host = client })
	plain, err := w.Login(t.Context(), h.Plain, h.Password, "")
	if err != nil || plain.Role != identity.User || plain.Username != h.Plain {
		t.Errorf("%+v, %v", plain, err)
	}
	sudo, err := w.Login(t.Context(), h.Sudo, h.Password, "")
	if err != nil || sudo.Role != identity.Admin {
		t.Fatalf("%+v, %v", sudo, err)
	}
	for _, username := range []string{h.Expired, h.Locked, h.Stale, "nobody-of-that-name"} {
		w.refused(username, second(w.Login(t.Context(), username, h.Password, "")), fault.Unauthenticated, badLogin)
	}
	w.refused("a wrong password", second(w.Login(t.Context(), h.Plain, "wrong horse", "")), fault.Unauthenticated, badLogin)
	if _, total, err := w.Accounts(t.Context(), identity.System, 0, 10); err != nil || total != 2 {
		t.Errorf("%d accounts, %v", total, err)
	}

	must(w.Check(t.Context(), sudo.Token))
	change := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Cleanup(func() { change("usermod", "-aG", "sudo", "-e", "", h.Sudo) }) // as other tests find it
	change("gpasswd", "-d", h.Sudo, "sudo")
	w.advance(time.Minute)
	if c, err := w.Check(t.Context(), sudo.Token); err != nil || c.Role != identity.User {
		t.Errorf("out of sudo: %+v, %v", c, err)
	}
	change("usermod", "-e", "1990-01-01", h.Sudo)
	w.advance(time.Minute)
	w.refused("expired meanwhile", second(w.Check(t.Context(), sudo.Token)), fault.Unauthenticated, noToken)
	if c, err := w.Check(t.Context(), plain.Token); err != nil || c.Role != identity.User {
		t.Errorf("another: %+v, %v", c, err)
	}
}
