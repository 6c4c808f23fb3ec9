// Package keyring binds a database to the keys that were used with it: the service's secret key,
// and a certificate authority's key.
//
// With another key, a service would start, seem healthy, and fail wherever a sealed secret is
// needed. So the database stores a fingerprint of each key, and a service refuses to start with
// another key, or without one, unless the operator declares the old key lost.
package keyring

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"

	"github.com/mainstay-infra/mainstay/kit/db"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the tables of this package, for db.DB.Migrate.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the directory is compiled in
	}
	return sub
}

// Fingerprint returns the fingerprint of a public value, such as the DER of a public key.
func Fingerprint(public []byte) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:])
}

// Known returns the fingerprint that the database stores under a name, or "".
func Known(ctx context.Context, q db.Querier, name string) (string, error) {
	var fingerprint string
	err := q.Get(ctx, &fingerprint, "SELECT fingerprint FROM keyring WHERE name = ?", name)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	return fingerprint, err
}

// Keep stores a fingerprint and returns the one that is stored afterwards. If replace is false, an
// existing fingerprint is kept.
func Keep(ctx context.Context, d *db.DB, name, fingerprint string, replace bool) (kept string, err error) {
	err = d.Update(ctx, func(tx *db.Tx) error {
		query := "INSERT INTO keyring (name, fingerprint) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
		if replace {
			query = "INSERT INTO keyring (name, fingerprint) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET fingerprint = excluded.fingerprint"
		}
		if _, err := tx.Exec(ctx, query, name, fingerprint); err != nil {
			return err
		}
		kept, err = Known(ctx, tx, name)
		return err
	})
	return kept, err
}
