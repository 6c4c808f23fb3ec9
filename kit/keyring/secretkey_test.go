package keyring_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/keyring"
)

var tables = dbtest.Migrations{"keyring": keyring.Migrations()}

// unused means that nothing in the database was made with a key.
func unused(context.Context, []byte) (used, fits bool, err error) { return false, true, nil }

// config returns the sources of a service without settings.
func config(t *testing.T, data string) keyring.Config {
	t.Helper()
	return keyring.Config{Data: data, Fits: unused, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func TestASecretKeyIsMadeOnceAndOnlyItsOwnerReadsIt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		cfg := config(t, filepath.Join(t.TempDir(), "data"))
		keys, err := keyring.SecretKeys(t.Context(), d, cfg)
		if err != nil || len(keys.Current) != 32 || len(keys.Accepted) != 0 || keys.Replaced {
			t.Fatalf("%+v, %v", keys, err)
		}
		if again, err := keyring.SecretKeys(t.Context(), d, cfg); err != nil || !bytes.Equal(again.Current, keys.Current) {
			t.Errorf("%+v, %v; want %x", again, err, keys.Current)
		}
		path := filepath.Join(cfg.Data, "secret.key")
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if err := os.WriteFile(path, []byte("cut"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keyring.SecretKeys(t.Context(), d, cfg); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%v", err)
		}
	})
}

func TestAnUnusableKeyFileIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	for name, place := range map[string]func(path string) error{
		"a pipe":     func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a folder":   func(path string) error { return os.Mkdir(path, 0o700) },
		"a disk":     func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 20<<30)) },
		"a dead end": func(path string) error { return os.Symlink(path, path) },
	} {
		for _, file := range []string{"secret.key", "secret.key.previous", "secret.key.new"} {
			cfg := config(t, t.TempDir())
			path := filepath.Join(cfg.Data, file)
			if err := place(path); err != nil {
				t.Fatal(err)
			}
			if _, err := keyring.SecretKeys(t.Context(), d, cfg); !fault.Is(err, fault.Invalid) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestKeyFilesOfAKilledProcessAreRemovedAndExposedOnesReported(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := config(t, t.TempDir())
	cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	d := dbtest.SQLite(t, tables)
	if _, err := keyring.SecretKeys(t.Context(), d, cfg); err != nil || out.Len() > 0 {
		t.Fatalf("%v, %s", err, out.String())
	}
	path := filepath.Join(cfg.Data, "secret.key")
	for left, age := range map[string]time.Duration{".secret.key-1": time.Hour, ".secret.key-2": 0} {
		name := filepath.Join(cfg.Data, left)
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(name, []byte("copy"), 0o600), os.Chtimes(name, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := keyring.SecretKeys(t.Context(), d, cfg); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(cfg.Data)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	// Another process may be writing the young one.
	if got := strings.Join(names, " "); err != nil || got != ".secret.key-2 secret.key" {
		t.Errorf("%s, %v", got, err)
	}
	if log := out.String(); !strings.Contains(log, "other users") || !strings.Contains(log, path) {
		t.Errorf("%s", log)
	}
}

func TestADatabaseOpensWithItsOwnKeyOnly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		cfg := config(t, t.TempDir())
		if _, err := keyring.SecretKeys(t.Context(), d, cfg); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(cfg.Data, "secret.key")
		kept, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(cfg keyring.Config, code string) {
			t.Helper()
			if _, err := keyring.SecretKeys(t.Context(), d, cfg); !fault.Is(err, fault.Conflict) ||
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
		if keys, err := keyring.SecretKeys(t.Context(), d, cfg); err != nil || keys.Replaced {
			t.Errorf("the right key: %+v, %v", keys, err)
		}
		other.Replace = true
		if keys, err := keyring.SecretKeys(t.Context(), d, other); err != nil || !keys.Replaced {
			t.Errorf("a key in the place of a lost one: %+v, %v", keys, err)
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
	if _, err := keyring.SecretKeys(t.Context(), d, cfg); fault.From(err).Code != "secret_key_missing" {
		t.Errorf("no key: %v", err)
	}
	cfg.Configured = strings.Repeat("k", 32)
	if _, err := keyring.SecretKeys(t.Context(), d, cfg); fault.From(err).Code != "wrong_secret_key" {
		t.Errorf("another key: %v", err)
	}
	fits = true
	if _, err := keyring.SecretKeys(t.Context(), d, cfg); err != nil {
		t.Errorf("the right key: %v", err)
	}
}

func TestAConfiguredSecretKeyMustBeLong(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t, tables)
	for field, cfg := range map[string]keyring.Config{
		"secret-key":          {Configured: "short", Fits: unused},
		"accepted-secret-key": {Configured: strings.Repeat("k", 32), Accepted: "short", Fits: unused},
	} {
		if _, err := keyring.SecretKeys(t.Context(), d, cfg); !fault.Is(err, fault.Invalid) ||
			fault.From(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
