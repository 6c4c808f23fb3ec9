package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite" // also the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/reserve"
)

// Engine is the database engine behind a DB.
type Engine uint8

// The engines.
const (
	SQLite Engine = iota
	Postgres
)

// String returns the engine's display name.
func (e Engine) String() string {
	if e == Postgres {
		return "PostgreSQL"
	}
	return "SQLite"
}

// Config holds the location and limits of a database.
type Config struct {
	// URL is a PostgreSQL connection URL. Empty means SQLite.
	URL string
	// Path is the SQLite file. Its directory is created if missing.
	Path string
	// Schema separates services that share one PostgreSQL database.
	Schema string
	// CacheKiB limits SQLite's page cache for the write connection, in KiB; each read connection
	// gets an eighth of it. 0 means 64 MiB.
	CacheKiB int
	// MaxConns limits the connections to PostgreSQL (0 means 16) or the SQLite readers (0 means 4).
	MaxConns int
	// Reserve is how many bytes of disk are kept beside the SQLite file, so that deletions can be stored when the disk is
	// full (0 means none). A service that sets it refuses other changes while the database is Low.
	Reserve int64
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	engine Engine
	write  *sqlx.DB // SQLite: for migrations; lite's connection comes from it
	read   *sqlx.DB // PostgreSQL: the same pool as write
	lite   *liteWriter
	reader *liteReader
	lock   *os.File

	reserve *reserve.File // nil without Config.Reserve and on PostgreSQL
}

// Open opens or creates the database. Faults name the setting "database".
func Open(ctx context.Context, cfg Config) (*DB, error) {
	if cfg.URL != "" {
		return openPostgres(ctx, cfg)
	}
	return openSQLite(ctx, cfg)
}

// Engine returns the engine.
func (d *DB) Engine() Engine { return d.engine }

// Close closes all connections.
func (d *DB) Close() error {
	var err error
	if d.lite != nil {
		err = d.lite.close()
	}
	err = errors.Join(err, d.write.Close())
	if d.read != d.write {
		err = errors.Join(err, d.read.Close()) // also closes its prepared statements
	}
	if d.lock != nil {
		err = errors.Join(err, durable.Unlock(d.lock))
	}
	return err
}

// Ping returns a fault of kind Unavailable if the database does not respond.
func (d *DB) Ping(ctx context.Context) error {
	if err := d.read.PingContext(ctx); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the database does not answer")
	}
	return nil
}

func openSQLite(ctx context.Context, cfg Config) (*DB, error) {
	if cfg.Reserve == 0 {
		return openFile(ctx, cfg)
	}
	// It is filled only if three times as much stays free. Otherwise it would be given and filled again all the time.
	kept := reserve.Open(reserve.Config{
		Path: cfg.Path + "-reserve", Size: cfg.Reserve, Step: cfg.Reserve / 8, Room: 3 * cfg.Reserve,
	})
	d, err := openFile(ctx, cfg)
	for err != nil && CheckFree(cfg.Path) == nil && kept.Give() { // the disk may be full
		d, err = openFile(ctx, cfg)
	}
	if err != nil {
		return nil, err
	}
	kept.Fill()
	d.reserve = kept
	return d, nil
}

// Low reports whether the disk of an SQLite file is, or was until a moment ago, so full that the reserve for deletions
// was taken. Services then refuse what needs more room.
func (d *DB) Low() bool {
	return d.reserve != nil && !d.reserve.Full() && !(d.reserve.Due() && d.reserve.Fill())
}

func openFile(ctx context.Context, cfg Config) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "database: cannot make the folder of %s", cfg.Path)
	}
	lock, err := lockFile(cfg.Path + ".lock")
	if err != nil {
		return nil, err
	}
	// SQLite gives its other files the mode of this one.
	if err := private(cfg.Path); err != nil {
		return nil, errors.Join(fault.Wrap(fault.Invalid, err, "database: cannot open %s", cfg.Path), lock.Close())
	}
	pragmas := "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)" +
		"&_pragma=foreign_keys(1)&_pragma=journal_size_limit(67108864)" +
		"&_pragma=case_sensitive_like(1)" // as in PostgreSQL
	file := "file:" + (&url.URL{Path: cfg.Path}).EscapedPath()
	cache := cmp.Or(cfg.CacheKiB, 64<<10)
	write, err := sqlx.Open(
		"sqlite", fmt.Sprintf("%s?_txlock=immediate&_pragma=cache_size(-%d)&%s", file, cache, pragmas),
	)
	var lite *liteWriter
	if err == nil {
		write.SetMaxOpenConns(2) // one for lite, one for migrations
		lite, err = newLiteWriter(ctx, write)
	}
	if err != nil {
		return nil, errors.Join(cannotOpen(err, cfg.Path), lock.Close())
	}
	read, err := sqlx.Open(
		"sqlite", fmt.Sprintf("%s?_pragma=query_only(1)&_pragma=cache_size(-%d)&%s", file, max(cache/8, 64), pragmas),
	)
	if err != nil {
		return nil, errors.Join(cannotOpen(err, cfg.Path), lite.close(), write.Close(), lock.Close())
	}
	readers := cmp.Or(cfg.MaxConns, 4)
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	return &DB{engine: SQLite, write: write, read: read, lite: lite, reader: newLiteReader(read), lock: lock}, nil
}

// cannotOpen is the fault of an SQLite file that cannot be opened.
func cannotOpen(err error, path string) error {
	return fault.Wrap(fault.Unavailable, err, "database: cannot open %s%s", path, hint(err))
}

// hint completes the message of an error whose own text does not say what to look at: on a full disk
// SQLite may say only that the shared memory beside the file could not be made.
func hint(err error) string {
	if e := (*sqlite.Error)(nil); errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_IOERR {
		return " (is the disk full?)"
	}
	return ""
}

// CheckFree returns an error if another process uses the SQLite file. It creates nothing.
func CheckFree(path string) error {
	if _, err := os.Stat(path + ".lock"); err != nil {
		return nil // nobody has ever opened it
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return err
	}
	return durable.Unlock(lock)
}

// private creates the file if it is missing, and removes group and other permissions if it exists.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = f.Chmod(0o600)
	}
	return errors.Join(err, f.Close())
}

// lockFile locks out other processes for as long as the returned file is open. The kernel releases
// the lock when the process dies, however it dies.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "database: cannot open %s", path)
	}
	if err := durable.Lock(f); err != nil {
		closeErr := f.Close()
		return nil, fault.Wrap(
			fault.Unavailable, errors.Join(err, closeErr),
			"database: another process uses %s; stop it, choose another data folder, or use PostgreSQL to run several",
			strings.TrimSuffix(path, ".lock"),
		)
	}
	return f, nil
}

func openPostgres(ctx context.Context, cfg Config) (*DB, error) {
	pc, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		// pgx's error can contain the URL with its password, so it stays private.
		return nil, fault.Wrap(
			fault.Invalid,
			err,
			"database: not a PostgreSQL URL (postgres://user:password@host:port/name)",
		)
	}
	if cfg.Schema != "" {
		pc.RuntimeParams["search_path"] = cfg.Schema
	}
	pool := sqlx.NewDb(stdlib.OpenDB(*pc), "pgx")
	conns := cmp.Or(cfg.MaxConns, 16)
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	if cfg.Schema != "" {
		// Two replicas may start at the same time; the lock serializes CREATE SCHEMA.
		_, err = pool.ExecContext(ctx, fmt.Sprintf(
			`DO $$ BEGIN PERFORM pg_advisory_xact_lock(7235710); CREATE SCHEMA IF NOT EXISTS %s; END $$`,
			pgx.Identifier{cfg.Schema}.Sanitize(),
		))
	} else {
		err = pool.PingContext(ctx)
	}
	if err != nil {
		return nil, errors.Join(
			fault.Wrap(fault.Unavailable, err, "database: cannot reach PostgreSQL at %s:%d", pc.Host, pc.Port),
			pool.Close(),
		)
	}
	return &DB{engine: Postgres, write: pool, read: pool}, nil
}
