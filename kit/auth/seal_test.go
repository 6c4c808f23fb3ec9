package auth_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

func newSealer(t testing.TB, secret byte, purpose string) *auth.Sealer {
	t.Helper()
	s, err := auth.NewSealer(bytes.Repeat([]byte{secret}, 32), purpose)
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
			"empty":         func() ([]byte, error) { return s.Open("", "row 7") },
			"huge":          func() ([]byte, error) { return s.Open("v1."+strings.Repeat("A", 1<<20), "row 7") },
		} {
			if got, err := open(); got != nil || !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %.20q, %v", name, got, err)
			}
		}
	}
}

func TestAShortSealingSecretIsInvalid(t *testing.T) {
	t.Parallel()
	if _, err := auth.NewSealer(make([]byte, 31), "a"); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
}

func FuzzOpen(f *testing.F) {
	s := newSealer(f, 1, "fuzz")
	f.Add(s.Seal([]byte("known"), "aad"))
	f.Add("v1.")
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
