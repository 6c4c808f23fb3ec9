package auth_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

var (
	secretA = bytes.Repeat([]byte("a"), 32)
	secretB = bytes.Repeat([]byte("b"), 32)
)

func nothingRevoked(context.Context, string) (bool, error) { return false, nil }

func newSessions(
	t *testing.T, now func() time.Time, revoked func(context.Context, string) (bool, error), secrets ...[]byte,
) *auth.Sessions {
	t.Helper()
	s, err := auth.NewSessions(now, revoked, secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// forge replaces something in a part of a token.
func forge(t *testing.T, token string, part int, old, new string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[part])
	if err != nil || !bytes.Contains(raw, []byte(old)) {
		t.Fatalf("%s in %s: %v", old, raw, err)
	}
	parts[part] = base64.RawURLEncoding.EncodeToString(bytes.Replace(raw, []byte(old), []byte(new), 1))
	return strings.Join(parts, ".")
}

// sign replaces the signature of a token.
func sign(secret []byte, token string) string {
	head := token[:strings.LastIndex(token, ".")]
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(head))
	return head + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func TestASessionIsWhoItsTokenSaysUntilItExpires(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 500, time.UTC)
	s := newSessions(t, func() time.Time { return now }, nothingRevoked, secretA)
	token, issued, err := s.Issue(auth.Claims{Subject: "anna", Role: "admin", Tenant: "t1"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Check(t.Context(), token)
	if err != nil || got != issued || got.Subject != "anna" || got.Role != "admin" || got.Tenant != "t1" ||
		len(got.ID) != 36 ||
		got.ID[14] != '4' {
		t.Errorf("%+v, %v", got, err)
	}
	if other, _, err := s.Issue(auth.Claims{Subject: "anna"}, time.Hour); err != nil || other == token {
		t.Errorf("two tokens are one: %v", err)
	}
	now = issued.Expires
	if _, err := s.Check(t.Context(), token); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("at its end: %v", err)
	}
}

func TestAForgedSessionIsNobodys(t *testing.T) {
	t.Parallel()
	s := newSessions(t, time.Now, nothingRevoked, secretA)
	token, _, err := s.Issue(auth.Claims{Subject: "anna", Role: "viewer"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	unsigned := forge(t, token, 0, `"HS256"`, `"none"`)
	// The same key, and an algorithm that the server did not choose.
	hs512 := forge(t, token, 0, `"HS256"`, `"HS512"`)
	head := hs512[:strings.LastIndex(hs512, ".")]
	stranger, _, err := newSessions(t, time.Now, nothingRevoked, secretB).Issue(auth.Claims{Subject: "anna"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, forged := range map[string]string{
		"another role":          forge(t, token, 1, "viewer", "admin"),
		"algorithm none":        unsigned,
		"none, no signature":    unsigned[:strings.LastIndex(unsigned, ".")+1],
		"another algorithm":     sign(secretA, head+"."),
		"another key":           stranger,
		"another type":          sign(secretA, forge(t, token, 0, `"JWT"`, `"at+jwt"`)),
		"no type":               sign(secretA, forge(t, token, 0, `,"typ":"JWT"`, ``)),
		"a claim twice":         sign(secretA, forge(t, token, 1, `"role":"viewer"`, `"role":"viewer","role":"admin"`)),
		"a claim in capitals":   sign(secretA, forge(t, token, 1, `"sub":`, `"SUB":`)),
		"a header twice":        sign(secretA, forge(t, token, 0, `"alg":"HS256"`, `"alg":"HS256","alg":"HS256"`)),
		"no end":                sign(secretA, forge(t, token, 1, `"exp":`, `"end":`)),
		"an end after time":     sign(secretA, forge(t, token, 1, `"exp":`, `"exp":1000000000000000000,"x":`)),
		"an unknown key id":     forge(t, token, 0, `"kid":"`, `"kid":"x`),
		"a line break":          token[:20] + "\n" + token[20:],
		"cut short":             token[:len(token)-4],
		"nothing":               "",
		"not a token":           "a.b.c",
		"larger than any token": token + strings.Repeat("A", 5000),
	} {
		if got, err := s.Check(t.Context(), forged); !fault.Is(err, fault.Unauthenticated) || got != (auth.Claims{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestSecretsOfSessionsCanBeReplaced(t *testing.T) {
	t.Parallel()
	old := newSessions(t, time.Now, nothingRevoked, secretA)
	token, _, err := old.Issue(auth.Claims{Subject: "anna"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	between := newSessions(t, time.Now, nothingRevoked, secretB, secretA)
	if _, err := between.Check(t.Context(), token); err != nil {
		t.Errorf("a token of the secret before: %v", err)
	}
	fresh, _, err := between.Issue(auth.Claims{Subject: "anna"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	after := newSessions(t, time.Now, nothingRevoked, secretB)
	if _, err := after.Check(t.Context(), fresh); err != nil {
		t.Errorf("a token of the new secret: %v", err)
	}
	if _, err := after.Check(t.Context(), token); err == nil {
		t.Error("a token of a secret that is gone")
	}
	for _, secrets := range [][][]byte{nil, {secretA[:31]}, {secretA, secretB[:1]}} {
		if _, err := auth.NewSessions(time.Now, nothingRevoked, secrets...); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", secrets, err)
		}
	}
}

func TestARevokedSessionEndsAtOnce(t *testing.T) {
	t.Parallel()
	revoked := map[string]bool{}
	var broken error
	s := newSessions(
		t, time.Now, func(_ context.Context, id string) (bool, error) { return revoked[id], broken }, secretA,
	)
	token, issued, err := s.Issue(auth.Claims{Subject: "anna"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	revoked["another"] = true
	if _, err := s.Check(t.Context(), token); err != nil {
		t.Error(err)
	}
	broken = errors.New("the database is away")
	if _, err := s.Check(t.Context(), token); !errors.Is(err, broken) {
		t.Errorf("nobody knows whether it was revoked: %v", err)
	}
	broken = nil
	revoked[issued.ID] = true
	if _, err := s.Check(t.Context(), token); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("revoked: %v", err)
	}
}

func FuzzCheckSession(f *testing.F) {
	s, err := auth.NewSessions(time.Now, nothingRevoked, secretA)
	if err != nil {
		f.Fatal(err)
	}
	token, _, err := s.Issue(auth.Claims{Subject: "anna"}, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := s.Check(t.Context(), text); err == nil && c.Subject != "anna" {
			t.Errorf("%q is %+v", text, c)
		}
	})
}
