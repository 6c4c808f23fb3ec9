package keyring_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/keyring"
)

var tables = dbtest.Migrations{"keyring": keyring.Migrations()}

// unused means that nothing in the database was made with a key.
func unused(context.Context, []byte) (used, fits bool, err error) { return false, true, nil }

func TestASecretKeyIsMadeOnceAndOnlyItsOwnerReadsIt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		cfg := keyring.Config{Data: filepath.Join(t.TempDir(), "data"), Fits: unused}
		key, replaced, err := keyring.SecretKey(t.Context(), d, cfg)
		if err != nil || len(key) != 32 || replaced {
			t.Fatalf("%x, %v, %v", key, replaced, err)
		}
		if again, _, err := keyring.SecretKey(t.Context(), d, cfg); err != nil || !bytes.Equal(again, key) {
			t.Errorf("%x, %v; want %x", again, err, key)
		}
		path := filepath.Join(cfg.Data, "secret.key")
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if err := os.WriteFile(path, []byte("cut"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := keyring.SecretKey(t.Context(), d, cfg); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%v", err)
		}
	})
}

func TestADatabaseOpensWithItsOwnKeyOnly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		cfg := keyring.Config{Data: t.TempDir(), Fits: unused}
		if _, _, err := keyring.SecretKey(t.Context(), d, cfg); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(cfg.Data, "secret.key")
		kept, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(cfg keyring.Config, code string) {
			t.Helper()
			if _, _, err := keyring.SecretKey(t.Context(), d, cfg); !fault.Is(err, fault.Conflict) ||
				fault.From(err).Code != code ||
				!strings.Contains(err.Error(), "--replace-lost-keys") {
				t.Errorf("%v", err)
			}
		}
		other := cfg
		other.Configured = strings.Repeat("k", 32)
		refused(other, "wrong_secret_key")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		refused(cfg, "secret_key_missing")
		if _, err := os.Stat(path); err == nil {
			t.Error("a new key was made all the same")
		}
		if err := os.WriteFile(path, kept, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, replaced, err := keyring.SecretKey(t.Context(), d, cfg); err != nil || replaced {
			t.Errorf("the right key: %v, %v", replaced, err)
		}
		other.Replace = true
		if _, replaced, err := keyring.SecretKey(t.Context(), d, other); err != nil || !replaced {
			t.Errorf("a key in the place of a lost one: %v, %v", replaced, err)
		}
		refused(cfg, "wrong_secret_key")
	})
}

// Databases of older versions have no fingerprint; their content identifies the key.
func TestADatabaseWithoutFingerprintsIsHeldAgainstWhatItHolds(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	fits := false
	cfg := keyring.Config{
		Data: t.TempDir(),
		Fits: func(_ context.Context, key []byte) (bool, bool, error) { return true, fits && key != nil, nil },
	}
	if _, _, err := keyring.SecretKey(t.Context(), d, cfg); fault.From(err).Code != "secret_key_missing" {
		t.Errorf("no key: %v", err)
	}
	cfg.Configured = strings.Repeat("k", 32)
	if _, _, err := keyring.SecretKey(t.Context(), d, cfg); fault.From(err).Code != "wrong_secret_key" {
		t.Errorf("another key: %v", err)
	}
	fits = true
	if _, _, err := keyring.SecretKey(t.Context(), d, cfg); err != nil {
		t.Errorf("the right key: %v", err)
	}
}

func TestAConfiguredSecretKeyMustBeLong(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	if _, _, err := keyring.SecretKey(
		t.Context(), d, keyring.Config{Configured: "short", Fits: unused},
	); !fault.Is(err, fault.Invalid) ||
		fault.From(err).Field != "secret-key" {
		t.Errorf("%v", err)
	}
}
