// Package store opens the agent's database: one SQLite file that holds what must
// survive the loss of power, tuned for a small box.
//
// Tables (migrations/): outbox and refused_events (package outbox), devices
// (package twin), updates and update_reports (package ota), counters, which are
// numbers that several of them keep with their changes.
package store

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/db"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// cacheKiB is small, as the agent is to be.
const cacheKiB = 1024

// Open opens or makes the database in the data folder.
func Open(ctx context.Context, dir string) (*db.DB, error) {
	d, err := db.Open(ctx, db.Config{Path: filepath.Join(dir, "agent.db"), MaxConns: 1, CacheKiB: cacheKiB})
	if err != nil {
		return nil, err
	}
	own, err := fs.Sub(migrationFiles, "migrations")
	if err == nil {
		err = d.Migrate(ctx, "agent", own)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Count adds n to a counter, within the transaction of what is counted, and
// returns its new value.
func Count(ctx context.Context, tx *db.Tx, name string, n int64) (int64, error) {
	var value int64
	err := tx.Get(ctx, &value, `INSERT INTO counters (name, value) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value RETURNING value`, name, n)
	return value, err
}

// Counter reads a counter; one that was never counted is 0.
func Counter(ctx context.Context, q db.Querier, name string) (int64, error) {
	var value int64
	err := q.Get(ctx, &value, "SELECT value FROM counters WHERE name = ?", name)
	if errors.Is(err, db.ErrNoRows) {
		err = nil
	}
	return value, err
}

// Update runs fn in one transaction, whose beginning and end ctx does not cut
// short: work here is interrupted at any moment, and what it has come to is to be
// stored all the same.
func Update(ctx context.Context, d *db.DB, fn func(tx *db.Tx) error) error {
	return d.Update(context.WithoutCancel(ctx), fn)
}
