// Package keyring binds a database to the keys that were used with it: the service's secret key,
// and a certificate authority's key.
//
// With another key, a service would start, seem healthy, and fail wherever a sealed secret is
// needed. So the database stores a fingerprint of each key, and a service refuses to start with
// another key, or without one, unless the operator declares the old key lost.
//
// # Rotation
//
// A service has a current secret key and others that it accepts: what they sealed still opens, and
// what they signed still counts. If the fingerprint in the database is that of an accepted key, the
// service rotates: in one transaction it seals everything again with the current key, and stores
// that key's fingerprint. The old key is then retired. If a service is started with a retired key as
// the current one, it uses the database's key, which must be among the accepted ones. So a replica
// with the settings of before the rotation does not rotate back.
//
// # Files
//
// Without settings, the keys are files in the data directory. The service never changes or replaces
// a file that holds the only copy of a key that the database needs:
//
//   - secret.key is the current key. The service creates it, and never replaces it.
//   - secret.key.previous is accepted. The operator renames secret.key to it in order to rotate.
//   - secret.key.new is the key that the service made for the last rotation. After the
//     rotation secret.key is a copy of it. Until then there is no secret.key, so the renaming
//     cannot be repeated by mistake.
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
func Migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }

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
