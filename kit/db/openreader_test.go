package db_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

func TestAReaderReadsBesideTheOwnerAndWritesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	if _, err := db.OpenReader(t.Context(), db.Config{Path: path}); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was created: %v", err)
	}
	owner, err := db.Open(t.Context(), db.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Close() }()
	add := func() error {
		return owner.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS things (id BIGINT)")
			if err == nil {
				_, err = tx.Exec(t.Context(), "INSERT INTO things (id) VALUES (1)")
			}
			return err
		})
	}
	if err := add(); err != nil {
		t.Fatal(err)
	}
	r, err := db.OpenReader(t.Context(), db.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for want := range 3 {
		var n int
		if err := r.Get(t.Context(), &n, "SELECT COUNT(*) FROM things"); err != nil || n != want+1 {
			t.Errorf("%d, %v", n, err)
		}
		if err := add(); err != nil {
			t.Error(err)
		}
	}
	var none int
	if err := r.Get(t.Context(), &none, "INSERT INTO things (id) VALUES (2) RETURNING id"); err == nil {
		t.Error("it writes")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
