package auth_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

func newSealer(t testing.TB, secret byte, purpose string, accepted ...byte) *auth.Sealer {
	t.Helper()
	var others [][]byte
	for _, other := range accepted {
		others = append(others, bytes.Repeat([]byte{other}, 32))
	}
	s, err := auth.NewSealer(bytes.Repeat([]byte{secret}, 32), purpose, others...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpenNeedsTheSameSecretPurposeAndAAD(t *testing.T) {
	t.Parallel()
	s := newSealer(t, 1, "a")
	for _, plaintext := range []string{"", "hunter2", strings.Repeat("x", 10_000)} {
		sealed := s.Seal([]byte(plaintext), "row 7")
		if got, err := newSealer(t, 1, "a").Open(sealed, "row 7"); string(got) != plaintext || err != nil {
			t.Errorf("%.20q: %.20q, %v", plaintext, got, err)
		}
		if again := s.Seal([]byte(plaintext), "row 7"); again == sealed {
			t.Error("equal plaintexts have equal seals")
		}
		flipped := []byte(sealed)
		flipped[len(flipped)/2] ^= 1
		for name, open := range map[string]func() ([]byte, error){
			"other secret":  func() ([]byte, error) { return newSealer(t, 2, "a").Open(sealed, "row 7") },
			"other purpose": func() ([]byte, error) { return newSealer(t, 1, "b").Open(sealed, "row 7") },
			"other aad":     func() ([]byte, error) { return s.Open(sealed, "row 8") },
			"flipped bit":   func() ([]byte, error) { return s.Open(string(flipped), "row 7") },
			"cut":           func() ([]byte, error) { return s.Open(sealed[:10], "row 7") },
			"no version":    func() ([]byte, error) { return s.Open(sealed[3:], "row 7") },
			"no key id":     func() ([]byte, error) { return s.Open("v2."+sealed[20:], "row 7") },
			"other key id":  func() ([]byte, error) { return s.Open("v2.0123456789abcdef."+sealed[20:], "row 7") },
			"empty":         func() ([]byte, error) { return s.Open("", "row 7") },
			"huge":          func() ([]byte, error) { return s.Open("v1."+strings.Repeat("A", 1<<20), "row 7") },
		} {
			if got, err := open(); got != nil || !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %.20q, %v", name, got, err)
			}
		}
	}
}

// sealedByFirstVersion is "hunter2" for "row 7", sealed with secret 1 for purpose "a" before sealed
// values named their keys.
const sealedByFirstVersion = "v1.AAECAwQFBgcICQoLoiKqIDK86xKEFhyq0Tod1WlN5x3ATg8"

func TestWhatAnAcceptedKeySealedOpensAndIsStale(t *testing.T) {
	t.Parallel()
	old, renewed, next := newSealer(t, 1, "a"), newSealer(t, 2, "a", 1), newSealer(t, 1, "a", 2)
	for name, sealed := range map[string]string{
		"by the old key": old.Seal([]byte("hunter2"), "row 7"), "by the first version": sealedByFirstVersion,
	} {
		if got, err := renewed.Open(sealed, "row 7"); string(got) != "hunter2" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if !renewed.Stale(sealed) {
			t.Errorf("%s: is not stale", name)
		}
		if _, err := renewed.Open(sealed, "row 8"); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: opens for another row: %v", name, err)
		}
		if _, err := newSealer(t, 2, "a").Open(sealed, "row 7"); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: opens with a key that is not accepted: %v", name, err)
		}
	}
	sealed := renewed.Seal([]byte("hunter2"), "row 7")
	if renewed.Stale(sealed) || !old.Stale(sealed) || !next.Stale(sealed) {
		t.Errorf("%s: only what the current key sealed is not stale", sealed)
	}
	if got, err := next.Open(sealed, "row 7"); string(got) != "hunter2" || err != nil {
		t.Errorf("by the next key: %q, %v", got, err)
	}
	if got, err := old.Open(sealed, "row 7"); err == nil {
		t.Errorf("by an unknown key: %q", got)
	}
}

func TestASealedValueNamesItsKey(t *testing.T) {
	t.Parallel()
	id := func(s *auth.Sealer) string {
		parts := strings.Split(s.Seal([]byte("x"), ""), ".")
		if len(parts) != 3 || parts[0] != "v2" || len(parts[1]) != 16 {
			t.Errorf("%q", parts)
		}
		return parts[1]
	}
	one := id(newSealer(t, 1, "a"))
	if again, other := id(newSealer(t, 1, "b", 2)), id(newSealer(t, 2, "a", 1)); again != one || other == one {
		t.Errorf("%s, %s, %s", one, again, other)
	}
}

func TestAShortSealingSecretIsInvalid(t *testing.T) {
	t.Parallel()
	short, long := make([]byte, 31), make([]byte, 32)
	if _, err := auth.NewSealer(short, "a"); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	if _, err := auth.NewSealer(long, "a", short); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

func FuzzOpen(f *testing.F) {
	s := newSealer(f, 1, "fuzz", 2)
	f.Add(s.Seal([]byte("known"), "aad"))
	f.Add(newSealer(f, 2, "fuzz").Seal([]byte("known"), "aad"))
	f.Add("v1.")
	f.Add("v2.")
	f.Add("v2..")
	f.Add("v2.0123456789abcdef." + strings.Repeat("A", 40))
	f.Add("v1." + strings.Repeat("A", 40))
	f.Fuzz(func(t *testing.T, sealed string) {
		got, err := s.Open(sealed, "aad")
		// Every worker process seals the seed with its own nonce, so the text may differ, but it
		// must open to the same plaintext.
		if err == nil && string(got) != "known" {
			t.Errorf("a forgery opened: %q", sealed)
		}
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%v", err)
		}
	})
}
