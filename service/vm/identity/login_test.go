package identity_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
)

func TestAPasswordBuysATokenThatSaysWhoItsHolderIs(t *testing.T) {
	engines(t, func(w *world) {
		a := w.add("anna.b-c_d", identity.User, "t1")
		s := w.login("anna.b-c_d")
		want := w.now().Add(24 * time.Hour)
		if s.UserID != a.ID || s.Username != "anna.b-c_d" || s.Role != identity.User || s.Tenant != "t1" || !s.ExpiresAt.Equal(want) {
			w.Errorf("%+v", s)
		}
		parts := strings.Split(s.Token, ".")
		var head, claims map[string]any
		for i, into := range []*map[string]any{&head, &claims} {
			if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(parts[i])), into); err != nil {
				w.Fatal(err)
			}
		}
		if head["alg"] != "HS256" || head["typ"] != "JWT" {
			w.Errorf("%v", head)
		}
		if claims["sub"] != "anna.b-c_d" || claims["role"] != "user" || claims["tenant"] != "t1" ||
			claims["exp"] != float64(want.Unix()) || claims["iat"] != float64(w.now().Unix()) || len(claims["jti"].(string)) != 36 {
			w.Errorf("%v", claims)
		}
		c, err := w.Check(w.Context(), s.Token)
		if err != nil || c.UserID != a.ID || c.Username != s.Username || c.Role != s.Role || c.Tenant != "t1" ||
			c.TokenID != claims["jti"] || !c.Expires.Equal(want) {
			w.Errorf("%+v, %v", c, err)
		}
	})
}

func TestAnUnknownUserIsAnsweredLikeAWrongPassword(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		w.host.set("bert", 1000)
		var answers []string
		for _, username := range []string{"anna", "bert", "nobody", "Anna", ".."} {
			_, err := w.Login(w.Context(), username, "wrong horse", "")
			w.refused(username, err, fault.Unauthenticated, badLogin)
			answers = append(answers, fault.From(err).PublicCode()+fault.From(err).Message)
		}
		for _, a := range answers {
			if a != answers[0] {
				w.Errorf("answers differ: %q", answers)
			}
		}
		for _, try := range []string{"", strings.Repeat("x", 5000), password + "\x00", password + " "} {
			w.advance(time.Hour)
			_, err := w.Login(w.Context(), "anna", try, "")
			w.refused("a wrong password", err, fault.Unauthenticated, badLogin)
		}
		denied := 0
		for _, e := range w.events {
			if strings.HasPrefix(e.Message, "denied") && e.Action == "auth.login" {
				denied++
			}
		}
		if denied != 9 {
			w.Errorf("%d refused logins are recorded, not 9", denied)
		}
	})
}

func TestWhatCannotBeAUsernameIsInvalidAndCountsNothing(t *testing.T) {
	engines(t, func(w *world) {
		for _, username := range []string{
			"", strings.Repeat("a", 65), "a b", "a/b", "ä", "а", "a\x00", "a\xff", "a\n", "a@b", "a'--", "\u202ea",
		} {
			for range 60 {
				_, err := w.Login(w.Context(), username, password, "")
				if f := fault.From(err); f == nil || f.Kind != fault.Invalid || f.Field != "username" {
					w.Fatalf("%q: %v", username, err)
				}
			}
		}
		w.add(strings.Repeat("a", 64), identity.User, "")
		w.login(strings.Repeat("a", 64))
	})
}

func TestGroupsOfTheHostMakeTheRole(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("root", 0, "root")
		w.host.set("wheelie", 1001, "users", "wheel")
		w.host.set("sudoer", 1002, "sudo")
		w.host.set("admin", 1003, "adm")
		w.host.set("plain", 1004, "sudoers", "wheels", "root")
		for username, want := range map[string]identity.Role{
			"root": identity.Admin, "wheelie": identity.Admin, "sudoer": identity.Admin, "admin": identity.Admin, "plain": identity.User,
		} {
			s := w.login(username)
			if c, err := w.Check(w.Context(), s.Token); s.Role != want || err != nil || c.Role != want {
				w.Errorf("%s: %+v, %v", username, s, err)
			}
			if again := w.login(username); again.UserID != s.UserID {
				w.Errorf("%s has two accounts", username)
			}
		}
	})
}

// A directory may ignore case. Two spellings must not be two accounts, of which one has no second
// factor.
func TestAnAccountOfTheHostHasTheHostsSpelling(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("anna", 1000)
		w.host.accounts["ANNA"] = w.host.accounts["anna"]
		first, second := w.login("anna"), w.login("ANNA")
		if first.UserID != second.UserID || second.Username != "anna" {
			w.Errorf("%+v, %+v", first, second)
		}
		w.host.accounts["root2"] = hostAccount{password: password}
		_, err := w.Login(w.Context(), "root2", password, "")
		w.refused("a host without a name", err, fault.Unauthenticated, badLogin)
		// A local account hides the one of the host, whatever is typed.
		w.host.set("bert", 0)
		w.host.accounts["BERT"] = w.host.accounts["bert"]
		if _, err := w.Create(w.Context(), identity.System, identity.NewAccount{
			Username: "bert", Source: identity.Local, Password: "another horse", Role: identity.Viewer,
		}); err != nil {
			w.Fatal(err)
		}
		for _, username := range []string{"bert", "BERT"} {
			_, err := w.Login(w.Context(), username, password, "")
			w.refused(username, err, fault.Unauthenticated, badLogin)
		}
	})
}

func TestWithoutTheHostOnlyLocalAccountsSignIn(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("bert", 0)
		s := w.login("bert")
		local := w.start(func(cfg *identity.Config) { cfg.Host = nil })
		_, err := local.Login(w.Context(), "bert", password, "")
		w.refused("a login", err, fault.Unauthenticated, badLogin)
		_, err = local.Check(w.Context(), s.Token)
		w.refused("a token", err, fault.Unauthenticated, noToken)
		w.add("anna", identity.User, "")
		if _, err := local.Login(w.Context(), "anna", password, ""); err != nil {
			w.Error(err)
		}
	})
}

func TestLocalAccountsCanBeShutOut(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("bert", 0)
		w.add("anna", identity.Admin, "")
		s := w.login("anna")
		only := w.start(func(cfg *identity.Config) { cfg.HostOnly = true })
		w.refused("a login", second(only.Login(w.Context(), "anna", password, "")), fault.Unauthenticated, badLogin)
		w.refused("a token", second(only.Check(w.Context(), s.Token)), fault.Unauthenticated, noToken)
		must(only.Check(w.Context(), must(only.Login(w.Context(), "bert", password, "")).Token))
		// A local admin is none then.
		w.refused("the last admin", only.Remove(w.Context(), identity.System, "bert"), fault.Conflict, "")
		if _, err := identity.New(identity.Config{Secret: secret, HostOnly: true}); !fault.Is(err, fault.Invalid) {
			w.Errorf("nobody may sign in: %v", err)
		}
	})
}

func TestAHostThatCannotSayIsNotADenial(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("bert", 1000)
		w.host.fail(unasked)
		for range 20 { // counts nothing
			_, err := w.Login(w.Context(), "bert", password, "")
			w.refused("not asked", err, fault.Unavailable, "")
		}
		w.host.fail(nil)
		w.login("bert")
		w.host.fail(unanswered)
		for range 5 { // may be a way to try passwords
			_, err := w.Login(w.Context(), "bert", password, "")
			w.refused("crashed", err, fault.Unavailable, "")
		}
		w.host.fail(nil)
		_, err := w.Login(w.Context(), "bert", password, "")
		w.refused("the sixth", err, fault.TooMany, tooMany)
	})
}

func TestAChangeThatCannotBeRecordedIsNotMade(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("bert", 0)
		w.add("anna", identity.Admin, "")
		s := w.login("anna")
		c := must(w.Check(w.Context(), s.Token))
		w.broken = errors.New("the log is full")
		if _, err := w.Login(w.Context(), "bert", password, ""); !errors.Is(err, w.broken) {
			w.Errorf("login: %v", err)
		}
		if err := w.Logout(w.Context(), s.Token); !errors.Is(err, w.broken) {
			w.Errorf("logout: %v", err)
		}
		if _, err := w.SetUp(w.Context(), c); !errors.Is(err, w.broken) {
			w.Errorf("setup: %v", err)
		}
		if err := w.Remove(w.Context(), identity.System, "anna"); !errors.Is(err, w.broken) {
			w.Errorf("remove: %v", err)
		}
		w.broken = nil
		w.advance(time.Minute)
		if _, err := w.Check(w.Context(), s.Token); err != nil {
			w.Error(err)
		}
		if _, total, err := w.Accounts(w.Context(), identity.System, 0, 10); err != nil || total != 1 {
			w.Errorf("%d accounts, %v", total, err)
		}
	})
}

func TestLifetimesAndSecretsHaveLeastValues(t *testing.T) {
	t.Parallel()
	w := open(t, dbtest.SQLite(t, migrations))
	w.add("anna", identity.User, "")
	for lifetime, want := range map[time.Duration]time.Duration{
		0: 24 * time.Hour, time.Minute: time.Hour, -1: time.Hour, 3 * time.Hour: 3 * time.Hour,
	} {
		s, err := w.start(func(cfg *identity.Config) { cfg.Lifetime = lifetime }).Login(t.Context(), "anna", password, "")
		if err != nil || s.ExpiresAt.Sub(w.now()) != want {
			t.Errorf("%v: %v, %v", lifetime, s.ExpiresAt, err)
		}
	}
	for n := range identity.MinSecret {
		if _, err := identity.New(identity.Config{Secret: secret[:n]}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "32 bytes") {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestWhoeverHangsUpHasFailedAllTheSame(t *testing.T) {
	engines(t, func(w *world) {
		for range 5 {
			ctx, hangUp := context.WithCancel(w.Context())
			w.host.before = func(string) { hangUp() }
			_, err := w.Login(ctx, "bert", "wrong horse", "")
			w.refused("a guess", err, fault.Unauthenticated, badLogin)
		}
		var pending int
		if err := w.db.Get(w.Context(), &pending, "SELECT COUNT(*) FROM login_attempts WHERE pending"); err != nil || pending != 0 || len(w.events) != 5 {
			w.Errorf("%d attempts are not settled, %d are recorded, %v", pending, len(w.events), err)
		}
		_, err := w.Login(w.Context(), "bert", "wrong horse", "")
		w.refused("the sixth", err, fault.TooMany, tooMany)
	})
}

func TestNothingSecretIsStoredReadably(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		c := w.caller("anna")
		setup := must(w.SetUp(w.Context(), c))
		codes := must(w.Verify(w.Context(), c, w.code(setup.Secret)))
		var texts []string
		for _, query := range []string{
			"SELECT password_hash || epoch FROM accounts", "SELECT secret || recovery FROM second_factors",
		} {
			var found []string
			if err := w.db.Select(w.Context(), &found, query); err != nil || len(found) != 1 {
				w.Fatal(found, err)
			}
			texts = append(texts, found...)
		}
		all := strings.Join(texts, " ")
		for _, clear := range []string{password, setup.Secret, codes[0], strings.ReplaceAll(codes[0], "-", "")} {
			if strings.Contains(all, clear) {
				w.Errorf("%s is readable in %s", clear, all)
			}
		}
	})
}
