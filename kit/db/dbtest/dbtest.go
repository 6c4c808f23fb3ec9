// Package dbtest runs a store's tests on both engines.
//
// Each starts one private PostgreSQL per test binary, from the binaries that Debian's package
// installs, in a temporary directory, listening on a Unix socket only. Every test gets its own
// database.
package dbtest

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Migrations maps an owner to the migrations of its tables.
type Migrations map[string]fs.FS

// Each runs test once on SQLite and once on PostgreSQL, in parallel.
func Each(t *testing.T, migrations Migrations, test func(t *testing.T, d *db.DB)) {
	t.Helper()
	for _, engine := range []string{"SQLite", "PostgreSQL"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg := db.Config{Path: filepath.Join(t.TempDir(), "test.db")}
			if engine == "PostgreSQL" {
				cfg = db.Config{URL: PostgresURL(t), Schema: "test"}
			}
			test(t, Open(t, cfg, migrations))
		})
	}
}

// Open opens and migrates a database that is closed when the test ends.
func Open(t testing.TB, cfg db.Config, migrations Migrations) *db.DB {
	t.Helper()
	d, err := db.Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close database: %v", err)
		}
	})
	for owner, m := range migrations {
		if err := d.Migrate(context.Background(), owner, m); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// SQLite opens a fresh SQLite database.
func SQLite(t testing.TB, migrations Migrations) *db.DB {
	t.Helper()
	return Open(t, db.Config{Path: filepath.Join(t.TempDir(), "test.db")}, migrations)
}

// PostgresURL creates an empty database on the private PostgreSQL and returns its URL. If
// PostgreSQL is not installed, the test is skipped (or fails, see package require).
func PostgresURL(t testing.TB) string {
	t.Helper()
	server := startPostgres(t)
	name := fmt.Sprintf("t%d", server.databases.Add(1))
	if err := server.exec("CREATE DATABASE " + name); err != nil {
		t.Fatalf("create test database: %v", err)
	}
	return server.url(name)
}
