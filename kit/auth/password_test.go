package auth_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// cheap keeps the tests fast; only the cost differs.
var cheap = auth.PasswordParams{Memory: 64, Passes: 1, Lanes: 1}

func newHasher(t testing.TB, p auth.PasswordParams) *auth.Hasher {
	t.Helper()
	h, err := auth.NewHasher(p, 2)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAPasswordVerifiesAgainstItsOwnHashOnly(t *testing.T) {
	t.Parallel()
	h, ctx := newHasher(t, cheap), t.Context()
	a, err := h.HashPassword(ctx, "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	b, err := h.HashPassword(ctx, "correct horse")
	if err != nil || a == b {
		t.Errorf("two hashes share their salt: %s, %v", a, err)
	}
	if !strings.HasPrefix(a, "$argon2id$v=19$m=64,t=1,p=1$") {
		t.Error(a)
	}
	for password, want := range map[string]bool{"correct horse": true, "wrong": false, "": false, strings.Repeat("a", 1025): false} {
		if ok, err := h.VerifyPassword(ctx, a, password); ok != want || err != nil {
			t.Errorf("%.20q: %v, %v", password, ok, err)
		}
	}
}

func TestTheReferenceImplementationsHashVerifies(t *testing.T) {
	t.Parallel()
	// From test.c of github.com/P-H-C/phc-winner-argon2.
	const encoded = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	h := newHasher(t, cheap)
	if ok, err := h.VerifyPassword(t.Context(), encoded, "password"); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	if !h.NeedsRehash(encoded) {
		t.Error("other parameters need no rehash")
	}
}

func TestTheDefaultParametersAreAccepted(t *testing.T) {
	t.Parallel()
	if h := newHasher(t, auth.DefaultPasswordParams()); h.NeedsRehash(
		"$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
	) {
		t.Error("a hash with the default parameters needs a rehash")
	}
}

func TestHostileStoredStringsAreRefusedBeforeAnyWork(t *testing.T) {
	t.Parallel()
	const tail = "$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	h := newHasher(t, cheap)
	for _, encoded := range []string{
		"", "plain", "$argon2i$v=19$m=256,t=2,p=1" + tail, "$argon2id$v=16$m=256,t=2,p=1" + tail,
		"$argon2id$v=19$m=4294967295,t=2,p=1" + tail, "$argon2id$v=19$m=65537,t=2,p=1" + tail,
		"$argon2id$v=19$m=256,t=4294967295,p=1" + tail, "$argon2id$v=19$m=256,t=0,p=1" + tail,
		"$argon2id$v=19$m=256,t=2,p=0" + tail, "$argon2id$v=19$m=256,t=2,p=255" + tail, "$argon2id$v=19$m=256,t=2,p=257" + tail,
		"$argon2id$v=19$m=7,t=2,p=1" + tail, "$argon2id$v=19$m=0256,t=2,p=1" + tail, "$argon2id$v=19$t=2,m=256,p=1" + tail,
		"$argon2id$v=19$m=256,t=2" + tail, "$argon2id$v=19$m=256,t=2,p=1$c29t$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
		"$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$", "$argon2id$v=19$m=256,t=2,p=1" + tail + strings.Repeat("A", 512),
	} {
		if ok, err := h.VerifyPassword(t.Context(), encoded, "password"); ok || !fault.Is(err, fault.Internal) {
			t.Errorf("%q: %v, %v", encoded, ok, err)
		}
	}
}

func TestPasswordsOfBadLengthAreInvalid(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"", strings.Repeat("a", 1025)} {
		_, err := newHasher(t, cheap).HashPassword(t.Context(), password)
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != "password" {
			t.Error(err)
		}
	}
}

func TestAnUnknownUserNeverVerifies(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"", "a", strings.Repeat("a", 1025)} {
		if ok, err := newHasher(t, cheap).VerifyUnknown(t.Context(), password); ok || err != nil {
			t.Error(ok, err)
		}
	}
}

func TestWaitingForATurnEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newHasher(t, cheap).HashPassword(ctx, "a"); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
}

func TestBadHasherSettingsAreInvalid(t *testing.T) {
	t.Parallel()
	if _, err := auth.NewHasher(cheap, 0); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if _, err := auth.NewHasher(auth.PasswordParams{Memory: 1 << 20, Passes: 1, Lanes: 1}, 1); !fault.Is(
		err, fault.Invalid,
	) {
		t.Error(err)
	}
}

// FuzzStoredHash runs the parser through NeedsRehash, which does no hashing.
func FuzzStoredHash(f *testing.F) {
	f.Add("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4")
	f.Add("$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEg")
	f.Add("$argon2id$v=19$m=,t=,p=$$")
	h := newHasher(f, cheap)
	f.Fuzz(func(t *testing.T, encoded string) {
		if h.NeedsRehash(encoded) {
			return
		}
		if _, err := h.VerifyPassword(t.Context(), encoded, "password"); err != nil {
			t.Errorf("%q has the Hasher's parameters but does not parse: %v", encoded, err)
		}
	})
}
