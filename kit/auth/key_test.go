package auth_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

func TestASecretKeyIsMadeOnceAndOnlyItsOwnerReadsIt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	key, err := auth.SecretKey("", dir)
	if err != nil || len(key) != 32 {
		t.Fatalf("%x, %v", key, err)
	}
	if again, err := auth.SecretKey("", dir); err != nil || !bytes.Equal(again, key) {
		t.Errorf("%x, %v; want %x", again, err, key)
	}
	path := filepath.Join(dir, "secret.key")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(path, []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.SecretKey("", dir); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

func TestAConfiguredSecretKeyMustBeLong(t *testing.T) {
	t.Parallel()
	if _, err := auth.SecretKey("short", ""); !fault.Is(err, fault.Invalid) || fault.From(err).Field != "secret-key" {
		t.Errorf("%v", err)
	}
	long := strings.Repeat("k", 32)
	if key, err := auth.SecretKey(long, ""); err != nil || string(key) != long {
		t.Errorf("%q, %v", key, err)
	}
}
