// Package store opens the agent's database: a SQLite file with everything that must survive power
// loss, tuned for small machines.
//
//	store.go     the database, and its counters
//	damage.go    a damaged or missing database
//
// Tables (migrations/): outbox and refused_events (package outbox), devices (package twin), updates
// and update_reports (package ota), and counters, which several packages update together with their
// data.
package store

import (
	"context"
	"embed"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/reserve"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	// cacheKiB is small to save memory.
	cacheKiB = 1024
	fileName = "agent.db"
)

const (
	reserveFile = "reserve"
	// reserveSize is the space for the write-ahead log while the outbox is emptied on a full disk.
	// SQLite moves its log into the database every 4 MiB, and a transaction has less than 2 MiB.
	reserveSize = 8 << 20
	reserveStep = 2 << 20
	// tight is the amount of free space below which there is an alert, in bytes.
	tight = 1 << 20
)

// DB is the agent's database.
type DB struct {
	*db.DB
	reserve *reserve.File
	path    string

	damageOnce sync.Once
	damaged    chan struct{} // closed when the database turns out to be damaged
}

// Open opens or creates the database in the data folder. If the database is damaged, Open sets it
// aside and creates a new one; see SetAside.
func Open(ctx context.Context, dir string) (*DB, error) { return openOrReplace(ctx, dir, false) }

// Reopen is Open for a folder that must have a database already. If the database is missing or
// empty, Reopen creates a new one and records that; see Missing.
func Reopen(ctx context.Context, dir string) (*DB, error) { return openOrReplace(ctx, dir, true) }

func openOrReplace(ctx context.Context, dir string, expected bool) (*DB, error) {
	path := filepath.Join(dir, fileName)
	r := reserve.Open(reserve.Config{Path: filepath.Join(dir, reserveFile), Size: reserveSize, Step: reserveStep})
	d, err := open(ctx, path, expected)
	for err != nil && fault.Is(err, fault.StorageFailed) && r.Give() {
		d, err = open(ctx, path, expected) // the disk is full, and opening needs a little space
	}
	if IsDamage(err) {
		if err = setAside(path); err == nil {
			d, err = open(ctx, path, false)
		}
	}
	if errors.Is(err, errMissing) {
		// The mark comes first: a new database that a crash left behind would look like the old one.
		err = markMissing(path)
		for err != nil && r.Give() {
			err = markMissing(path)
		}
		if err == nil {
			d, err = open(ctx, path, false)
		}
	}
	if err != nil {
		return nil, err
	}
	r.Fill()
	return &DB{DB: d, reserve: r, path: path, damaged: make(chan struct{})}, nil
}

// open opens the database. If it is expected to exist and is empty, the error is errMissing.
func open(ctx context.Context, path string, expected bool) (*db.DB, error) {
	d, err := db.Open(ctx, db.Config{Path: path, MaxConns: 1, CacheKiB: cacheKiB})
	if err != nil {
		return nil, asStorageFault(err)
	}
	if _, statErr := os.Stat(path + damagedMark); statErr == nil {
		err = ErrDamaged
	}
	if err == nil && expected {
		err = checkNotEmpty(ctx, d)
	}
	if err == nil {
		err = d.Migrate(ctx, "agent", db.EmbeddedMigrations(migrationFiles))
	}
	if err == nil {
		err = check(ctx, d, path)
	}
	if err != nil {
		return nil, asStorageFault(errors.Join(err, d.Close()))
	}
	return d, nil
}

// Room returns a fault if the disk is too full to accept anything new. Otherwise the stored data
// could not be deleted after it was sent.
func (d *DB) Room(ctx context.Context) error {
	if d.reserve.Full() {
		return nil
	}
	if d.reserve.Due() {
		// First release the space of the write-ahead log. If that fails, the disk is simply as full
		// as before.
		var row struct {
			Busy   int `db:"busy"`
			Frames int `db:"log"`
			Moved  int `db:"checkpointed"`
		}
		_ = d.Get(ctx, &row, "PRAGMA wal_checkpoint(TRUNCATE)")
		if d.reserve.Fill() {
			return nil
		}
	}
	return fault.New(
		fault.StorageFailed,
		"the disk is full; nothing was stored. Make room in the data folder: at least %.1f MiB",
		float64(max(d.reserve.Missing(), 1<<18))/(1<<20),
	).
		WithCode("storage_full")
}

// Tight reports whether the disk is full or nearly full.
func (d *DB) Tight() bool {
	free, ok := d.reserve.Free()
	return !d.reserve.Full() || ok && free < tight
}

// Give releases a part of the reserved space, for a file that is as important as emptying the
// outbox. It reports whether there was anything to release.
func (d *DB) Give() bool { return d.reserve.Give() }

// Settle runs fn in a transaction, like Update. It is for transactions that free space, such as
// emptying the outbox: on a full disk, it may use the reserved space.
func (d *DB) Settle(ctx context.Context, fn func(tx *db.Tx) error) error {
	for {
		err := d.Update(ctx, fn)
		if err == nil || !fault.Is(err, fault.StorageFailed) || !d.reserve.Give() {
			return err
		}
	}
}

// Update runs fn in a transaction. Cancelling ctx does not interrupt the transaction's start and
// commit: work here is interrupted at any moment, and its results must be stored nevertheless.
func (d *DB) Update(ctx context.Context, fn func(tx *db.Tx) error) error {
	return d.Notice(d.DB.Update(context.WithoutCancel(ctx), fn))
}

// Get reads one row.
func (d *DB) Get(ctx context.Context, dest any, query string, args ...any) error {
	return d.Notice(d.DB.Get(ctx, dest, query, args...))
}

// Select reads all rows.
func (d *DB) Select(ctx context.Context, dest any, query string, args ...any) error {
	return d.Notice(d.DB.Select(ctx, dest, query, args...))
}

// Count adds n to a counter and returns the new value. The transaction must be the one of the
// change that is counted.
func Count(ctx context.Context, tx *db.Tx, name string, n int64) (int64, error) {
	var value int64
	err := tx.Get(ctx, &value, `INSERT INTO counters (name, value) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value RETURNING value`, name, n)
	return value, err
}

// Counter returns the value of a counter, or 0 if it does not exist.
func Counter(ctx context.Context, q db.Querier, name string) (int64, error) {
	var value int64
	err := q.Get(ctx, &value, "SELECT value FROM counters WHERE name = ?", name)
	if errors.Is(err, db.ErrNoRows) {
		err = nil
	}
	return value, err
}
