package identity_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
)

func TestATokenEndsWhenItExpires(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		s := w.login("anna")
		w.advance(24*time.Hour - time.Second)
		if _, err := w.Check(w.Context(), s.Token); err != nil {
			w.Error(err)
		}
		w.advance(time.Second)
		w.refused("expired", second(w.Check(w.Context(), s.Token)), fault.Unauthenticated, noToken)
	})
}

func TestALogoutEndsItsTokenAndNoOther(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		first, other := w.login("anna"), w.login("anna")
		must(w.Check(w.Context(), first.Token)) // and is remembered
		if err := w.Logout(w.Context(), first.Token); err != nil {
			w.Fatal(err)
		}
		w.refused("signed out", second(w.Check(w.Context(), first.Token)), fault.Unauthenticated, noToken)
		w.refused("signed out again", w.Logout(w.Context(), first.Token), fault.Unauthenticated, noToken)
		if _, err := w.Check(w.Context(), other.Token); err != nil {
			w.Error(err)
		}
		w.refused("nonsense", w.Logout(w.Context(), "nonsense"), fault.Unauthenticated, noToken)
		again := w.start() // a restart remembers it
		w.refused("after a restart", second(again.Check(w.Context(), first.Token)), fault.Unauthenticated, noToken)
		// What has expired is not kept.
		w.advance(25 * time.Hour)
		if err := w.Logout(w.Context(), w.login("anna").Token); err != nil {
			w.Fatal(err)
		}
		var rows int
		if err := w.db.Get(w.Context(), &rows, "SELECT COUNT(*) FROM revoked_tokens"); err != nil || rows != 1 {
			w.Errorf("%d revoked tokens are kept, %v", rows, err)
		}
	})
}

func TestReplicasShareLogoutsWithinSeconds(t *testing.T) {
	replicas(t, func(w *world, other *identity.Service) {
		w.add("anna", identity.User, "")
		s := w.login("anna")
		must(other.Check(w.Context(), s.Token))
		if err := w.Logout(w.Context(), s.Token); err != nil {
			w.Fatal(err)
		}
		w.advance(2 * time.Second)
		w.refused("signed out elsewhere", second(other.Check(w.Context(), s.Token)), fault.Unauthenticated, noToken)
	})
}

// fill stores revoked tokens of an account.
func (w *world) fill(accountID string, n int) {
	w.Helper()
	err := w.db.Update(w.Context(), func(tx *db.Tx) error {
		for i := range n {
			if _, err := tx.Exec(w.Context(), "INSERT INTO revoked_tokens (id, account_id, expires_at) VALUES (?, ?, ?)",
				fmt.Sprint("filled-", i), accountID, db.At(w.now().Add(time.Hour))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

func TestRevokedTokensAreBounded(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		w.add("bert", identity.User, "")
		kept := w.login("bert")
		survivor := w.login("anna")
		w.fill(survivor.UserID, 999)
		if err := w.Logout(w.Context(), w.login("anna").Token); err != nil { // the thousandth
			w.Fatal(err)
		}
		must(w.Check(w.Context(), survivor.Token))
		last := w.login("anna")
		if err := w.Logout(w.Context(), last.Token); err != nil {
			w.Fatal(err)
		}
		var rows int
		if err := w.db.Get(w.Context(), &rows, "SELECT COUNT(*) FROM revoked_tokens"); err != nil || rows > 1000 {
			w.Errorf("%d rows, %v", rows, err)
		}
		w.refused("the last", second(w.Check(w.Context(), last.Token)), fault.Unauthenticated, noToken)
		w.refused("the others of the account", second(w.Check(w.Context(), survivor.Token)), fault.Unauthenticated, noToken)
		must(w.Check(w.Context(), kept.Token))
		must(w.Check(w.Context(), w.login("anna").Token))
	})
}

func TestTheLowerOfTheTokensAndTheAccountsRoleCounts(t *testing.T) {
	engines(t, func(w *world) {
		w.add("root", identity.Admin, "")
		w.add("anna", identity.User, "")
		s := w.login("anna")
		for _, role := range []identity.Role{identity.Admin, identity.Viewer, identity.User} {
			if _, err := w.Update(w.Context(), identity.System, "anna", identity.Change{Role: &role}); err != nil {
				w.Fatal(err)
			}
			c, err := w.Check(w.Context(), s.Token)
			if want := identity.Lower(role, identity.User); err != nil || c.Role != want {
				w.Errorf("as %s: %+v, %v", role, c, err)
			}
		}
	})
}

func TestWhatEndsTokensEndsThemHereAtOnceAndElsewhereWithinAMinute(t *testing.T) {
	replicas(t, func(w *world, other *identity.Service) {
		text := "another horse"
		tenant := "t2"
		for name, end := range map[string]func(username string) error{
			"a removal": func(u string) error { return w.Remove(w.Context(), identity.System, u) },
			"a new tenant": func(u string) error {
				return second(w.Update(w.Context(), identity.System, u, identity.Change{Tenant: &tenant}))
			},
			"a new password": func(u string) error {
				return second(w.Update(w.Context(), identity.System, u, identity.Change{Password: &text}))
			},
			"a removal and an account of the same name": func(u string) error {
				if err := w.Remove(w.Context(), identity.System, u); err != nil {
					return err
				}
				w.add(u, identity.Admin, "")
				return nil
			},
		} {
			username := strings.ReplaceAll(name, " ", "-")
			w.add(username, identity.User, "")
			s := w.login(username)
			must(w.Check(w.Context(), s.Token))
			must(other.Check(w.Context(), s.Token))
			if err := end(username); err != nil {
				w.Fatal(err)
			}
			w.refused(name+" here", second(w.Check(w.Context(), s.Token)), fault.Unauthenticated, noToken)
			w.advance(time.Minute)
			w.refused(name+" elsewhere", second(other.Check(w.Context(), s.Token)), fault.Unauthenticated, noToken)
		}
	})
}

func TestGroupsOfTheHostAreReadAgainEachMinute(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("anna", 1000, "sudo")
		s := w.login("anna")
		must(w.Check(w.Context(), s.Token))
		w.host.set("anna", 1000)
		w.advance(time.Minute)
		if c, err := w.Check(w.Context(), s.Token); err != nil || c.Role != identity.User {
			w.Errorf("out of sudo: %+v, %v", c, err)
		}
		a := must(w.Account(w.Context(), identity.System, "anna"))
		if a.HostRole != identity.User || a.Role != identity.User {
			w.Errorf("%+v", a)
		}
		w.host.remove("anna")
		w.advance(time.Minute)
		w.refused("gone", second(w.Check(w.Context(), s.Token)), fault.Unauthenticated, noToken)
		w.host.set("anna", 1000)
		w.advance(time.Minute)
		if _, err := w.Check(w.Context(), s.Token); err != nil {
			w.Errorf("back: %v", err)
		}
	})
}

func TestWhatAHostSaidLastCountsForAWhile(t *testing.T) {
	engines(t, func(w *world) {
		w.host.set("anna", 1000)
		w.add("local", identity.User, "")
		s, l := w.login("anna"), w.login("local")
		w.advance(2 * time.Minute)
		must(w.Check(w.Context(), s.Token)) // the host says so at 2:00
		w.host.fail(unasked)
		for range 4 {
			w.advance(time.Minute)
			if _, err := w.Check(w.Context(), s.Token); err != nil {
				w.Fatal(err)
			}
		}
		w.advance(time.Minute) // 7:00
		w.refused("after five minutes", second(w.Check(w.Context(), s.Token)), fault.Unavailable, "")
		w.refused("after a restart", second(w.start().Check(w.Context(), s.Token)), fault.Unavailable, "")
		must(w.Check(w.Context(), l.Token))
		if err := w.Logout(w.Context(), s.Token); err != nil {
			w.Errorf("signing out takes no host: %v", err)
		}
		w.host.fail(nil)
		w.refused("signed out", second(w.Check(w.Context(), s.Token)), fault.Unauthenticated, noToken)
		must(w.Check(w.Context(), w.login("anna").Token))
	})
}

func TestAnotherSecretEndsAllTokens(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.User, "")
		s := w.login("anna")
		rotated := w.start(func(cfg *identity.Config) { cfg.Secret = []byte(strings.Repeat("k", 32)) })
		w.refused("rotated", second(rotated.Check(w.Context(), s.Token)), fault.Unauthenticated, noToken)
	})
}

// seal signs a header and claims with HMAC-SHA256.
func seal(key []byte, head, claims string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func TestForgedTokensAreNobodys(t *testing.T) {
	t.Parallel()
	w := open(t, dbtest.SQLite(t, migrations))
	w.add("anna", identity.Admin, "")
	good := w.login("anna").Token
	parts := strings.Split(good, ".")
	head, claims := string(must(base64.RawURLEncoding.DecodeString(parts[0]))), string(must(base64.RawURLEncoding.DecodeString(parts[1])))
	if _, err := w.Check(t.Context(), seal(secret, head, claims)); err != nil {
		t.Fatalf("the test signs as the service does: %v", err)
	}
	change := func(old, new string) string {
		if !strings.Contains(claims, old) {
			t.Fatalf("%s is not in %s", old, claims)
		}
		return seal(secret, head, strings.Replace(claims, old, new, 1))
	}
	swap := func(old, new string) string {
		if !strings.Contains(head, old) {
			t.Fatalf("%s is not in %s", old, head)
		}
		return seal(secret, strings.Replace(head, old, new, 1), claims)
	}
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	rs := strings.Replace(head, "HS256", "RS256", 1)
	text := base64.RawURLEncoding.EncodeToString([]byte(rs)) + "." + parts[1]
	sum := sha256.Sum256([]byte(text))
	for name, token := range map[string]string{
		"nothing":             "",
		"dots":                "..",
		"alg none":            base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + ".",
		"alg none, signed":    swap(`"HS256"`, `"none"`),
		"alg None":            swap(`"HS256"`, `"None"`),
		"alg HS384":           swap(`"HS256"`, `"HS384"`),
		"RS256 by the secret": swap(`"HS256"`, `"RS256"`),
		"RS256":               text + "." + base64.RawURLEncoding.EncodeToString(must(rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:]))),
		"another typ":         swap(`"JWT"`, `"at+jwt"`),
		"typ in small":        swap(`"JWT"`, `"jwt"`),
		"a key of its own":    swap(`{`, `{"jwk":{"kty":"oct","k":"AAAA"},`),
		"alg twice":           swap(`{`, `{"alg":"none",`),
		"critical":            swap(`{`, `{"crit":["exp"],`),
		"another key":         seal([]byte(strings.Repeat("x", 32)), head, claims),
		"an empty key":        seal(nil, head, claims),
		"a role twice":        change(`"role":"admin"`, `"role":"viewer","role":"admin"`),
		"a subject twice":     change(`"sub":"anna"`, `"sub":"bert","sub":"anna"`),
		"in capitals":         change(`"role"`, `"ROLE"`),
		"no role":             change(`"role":"admin",`, ``),
		"an unknown role":     change(`"admin"`, `"root"`),
		"a role as a number":  change(`"admin"`, `1`),
		"an unknown user":     change(`"anna"`, `"nobody"`),
		"a strange user":      change(`"anna"`, `"a\u0000"`),
		"no user":             change(`"anna"`, `""`),
		"another tenant":      change(`"role"`, `"tenant":"t1","role"`),
		"another epoch":       change(`"epoch":"`, `"epoch":"x`),
		"no end":              change(`"exp"`, `"end"`),
		"an end as a text":    change(`"exp":`, `"exp":"soon","x":`),
		"an end long ago":     change(`"exp":`, `"exp":1,"x":`),
		"an endless end":      change(`"exp":`, `"exp":1e400,"x":`),
		"a negative end":      change(`"exp":`, `"exp":-1,"x":`),
		"no id":               change(`"jti":"`, `"jti":"","x":"`),
		"not an object":       seal(secret, head, `[]`),
		"deeply nested":       seal(secret, head, strings.Repeat(`{"a":`, 600)),
		"a second document":   seal(secret, head, claims+"{}"),
		"huge":                seal(secret, head, strings.Replace(claims, "{", `{"x":"`+strings.Repeat("x", 1<<20)+`",`, 1)),
		"encrypted":           strings.Repeat("e30.", 4) + "e30",
		"a space":             good + " ",
		"a line":              good[:20] + "\n" + good[20:],
		"JSON":                `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
	} {
		c, err := w.Check(t.Context(), token)
		if !fault.Is(err, fault.Unauthenticated) || fault.From(err).Message != noToken || c != (identity.Caller{}) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func FuzzCheck(f *testing.F) {
	w := &world{clock: newClock()}
	now := w.now()
	s, err := auth.NewSessions(w.now, nil, secret)
	if err != nil {
		f.Fatal(err)
	}
	token, _, err := s.Issue(auth.Claims{Subject: "anna", Role: "admin"}, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	parts := strings.Split(token, ".")
	for i := range 2 {
		f.Add(string(must(base64.RawURLEncoding.DecodeString(parts[0]))), string(must(base64.RawURLEncoding.DecodeString(parts[1]))), i == 0)
	}
	f.Add(`{"alg":"none","typ":"JWT"}`, `{"sub":"anna","role":"admin","exp":9999999999,"jti":"x"}`, false)
	d := dbtest.SQLite(f, migrations)
	service, err := identity.New(identity.Config{
		DB: d, Secret: secret, Now: w.now, Sealer: must(auth.NewSealer(secret, identity.Purpose)),
	})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := service.Create(f.Context(), identity.System, identity.NewAccount{
		Username: "anna", Source: identity.Local, Password: password, Role: identity.User,
	}); err != nil {
		f.Fatal(err)
	}
	login, err := service.Login(f.Context(), "anna", password, "")
	if err != nil {
		f.Fatal(err)
	}
	real := strings.Split(login.Token, ".")
	f.Add(string(must(base64.RawURLEncoding.DecodeString(real[0]))), string(must(base64.RawURLEncoding.DecodeString(real[1]))), true)
	f.Fuzz(func(t *testing.T, head, claims string, signed bool) {
		key := secret
		if !signed {
			key = []byte(fmt.Sprintf("%032d", len(claims)))
		}
		c, err := service.Check(t.Context(), seal(key, head, claims))
		switch {
		case err == nil && !signed:
			t.Errorf("%s %s is %+v", head, claims, c)
		case err == nil && (c.Username != "anna" || c.Role == identity.Admin || !c.Expires.After(now)):
			t.Errorf("%s %s is %+v", head, claims, c)
		case err != nil && !fault.Is(err, fault.Unauthenticated):
			t.Errorf("%s %s: %v", head, claims, err)
		}
	})
}
