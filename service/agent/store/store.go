// Package store opens the agent's database: one SQLite file that holds what must
// survive the loss of power, tuned for a small box.
//
//	store.go     the database, and numbers that are kept with what they count
//	reserve.go   disk space that is kept for emptying the outbox
//	damage.go    a database that is damaged is set aside
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
	"os"
	"path/filepath"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	// cacheKiB is small, as the agent is to be.
	cacheKiB = 1024
	fileName = "agent.db"
)

// DB is the agent's database.
type DB struct {
	*db.DB
	reserve *reserve
	path    string

	damageOnce sync.Once
	damaged    chan struct{} // closed when the database turned out to be damaged
}

// Open opens or makes the database in the data folder. A database that is damaged
// is set aside, and a new one takes its place; see SetAside.
func Open(ctx context.Context, dir string) (*DB, error) {
	path := filepath.Join(dir, fileName)
	r := newReserve(dir)
	d, err := open(ctx, path)
	for err != nil && fault.Is(err, fault.StorageFailed) && r.give() {
		d, err = open(ctx, path) // the disk is full, and opening takes a little room
	}
	if IsDamage(err) {
		if err = setAside(path); err == nil {
			d, err = open(ctx, path)
		}
	}
	if err != nil {
		return nil, err
	}
	r.fill()
	return &DB{DB: d, reserve: r, path: path, damaged: make(chan struct{})}, nil
}

func open(ctx context.Context, path string) (*db.DB, error) {
	d, err := db.Open(ctx, db.Config{Path: path, MaxConns: 1, CacheKiB: cacheKiB})
	if err != nil {
		return nil, asStorageFault(err)
	}
	if _, statErr := os.Stat(path + damagedMark); statErr == nil {
		err = ErrDamaged
	}
	own, subErr := fs.Sub(migrationFiles, "migrations")
	if err == nil {
		err = subErr
	}
	if err == nil {
		err = d.Migrate(ctx, "agent", own)
	}
	if err == nil {
		err = check(ctx, d, path)
	}
	if err != nil {
		return nil, asStorageFault(errors.Join(err, d.Close()))
	}
	return d, nil
}

// Room reports, as a fault, that the disk is too full to take anything new: what is
// stored could not be deleted any more once it was sent.
func (d *DB) Room(ctx context.Context) error {
	if d.reserve.whole() {
		return nil
	}
	if d.reserve.due() {
		// What the write-ahead log took is given back first. If it cannot be, the disk
		// is as full as it was.
		var row struct {
			Busy   int `db:"busy"`
			Frames int `db:"log"`
			Moved  int `db:"checkpointed"`
		}
		_ = d.Get(ctx, &row, "PRAGMA wal_checkpoint(TRUNCATE)")
		if d.reserve.fill() {
			return nil
		}
	}
	return fault.New(
		fault.StorageFailed,
		"the disk is full; nothing was stored. Make room in the data folder: at least %.1f MiB",
		float64(max(d.reserve.missing(), 1<<18))/(1<<20),
	).
		WithCode("storage_full")
}

// Tight reports whether the disk is full, or nearly so.
func (d *DB) Tight() bool {
	free, ok := d.reserve.free()
	return !d.reserve.whole() || ok && free < tight
}

// Give gives a part of what is reserved back to the disk, for a file that matters as much as emptying
// the outbox. It reports whether there was anything left to give.
func (d *DB) Give() bool { return d.reserve.give() }

// Settle runs fn in one transaction like Update. It is for what makes the outbox and
// its like smaller: on a full disk it may use the space that was reserved for that.
func (d *DB) Settle(ctx context.Context, fn func(tx *db.Tx) error) error {
	for {
		err := d.Update(ctx, fn)
		if err == nil || !fault.Is(err, fault.StorageFailed) || !d.reserve.give() {
			return err
		}
	}
}

// Update runs fn in one transaction, whose beginning and end ctx does not cut
// short: work here is interrupted at any moment, and what it has come to is to be
// stored all the same.
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
