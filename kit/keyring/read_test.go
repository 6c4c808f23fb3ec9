package keyring_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/keyring"
)

func TestKeysAreReadBesideTheService(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		cfg := config(t, filepath.Join(t.TempDir(), "data"))
		if _, err := keyring.ReadKeys(t.Context(), d, cfg); !fault.Is(err, fault.Conflict) {
			t.Errorf("there are none yet: %v", err)
		}
		if _, err := os.Stat(cfg.Data); err == nil {
			t.Error("it has made the folder")
		}
		keys, err := keyring.SecretKeys(t.Context(), d, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keyring.ReadKeys(t.Context(), d, cfg); err != nil || len(got) != 1 || !bytes.Equal(got[0], keys.Current) {
			t.Errorf("%x, %v", got, err)
		}
		// A rotation that the service has not done yet.
		next := cfg
		next.Configured = strings.Repeat("n", 32)
		if _, err := keyring.ReadKeys(t.Context(), d, next); !fault.Is(err, fault.Conflict) {
			t.Errorf("another key: %v", err)
		}
		if err := os.Rename(filepath.Join(cfg.Data, "secret.key"), filepath.Join(cfg.Data, "secret.key.previous")); err != nil {
			t.Fatal(err)
		}
		got, err := keyring.ReadKeys(t.Context(), d, next)
		if err != nil || len(got) != 2 || !bytes.Equal(got[0], keys.Current) {
			t.Errorf("%x, %v", got, err)
		}
		if files, err := os.ReadDir(cfg.Data); err != nil || len(files) != 1 {
			t.Errorf("%v, %v", files, err)
		}
	})
}
