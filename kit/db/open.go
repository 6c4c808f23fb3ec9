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
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Engine is the database behind a DB.
type Engine uint8

// The engines.
const (
	SQLite Engine = iota
	Postgres
)

// String is the engine's name as people write it.
func (e Engine) String() string {
	if e == Postgres {
		return "PostgreSQL"
	}
	return "SQLite"
}

// Config says where the data lives.
type Config struct {
	// URL is a PostgreSQL connection URL. Empty means SQLite.
	URL string
	// Path is the SQLite file. Its folder is made if it is missing.
	Path string
	// Schema keeps services apart that share one PostgreSQL database.
	Schema string
	// CacheKiB bounds the pages that SQLite keeps in memory for writing, and for each
	// reader an eighth of it. 0 means 64 MiB.
	CacheKiB int
	// MaxConns bounds the connections to PostgreSQL, or the SQLite readers. 0
	// means 16 and 4.
	MaxConns int
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	engine Engine
	write  *sqlx.DB // SQLite: for migrations, and what lite's connection comes from
	read   *sqlx.DB // PostgreSQL: the same pool as write
	lite   *liteWriter
	reader *liteReader
	lock   *os.File
}

// Open opens or creates the database. Faults name the setting "database".
func Open(ctx context.Context, cfg Config) (*DB, error) {
	if cfg.URL != "" {
		return openPostgres(ctx, cfg)
	}
	return openSQLite(ctx, cfg)
}

// Engine tells which database this is.
func (d *DB) Engine() Engine { return d.engine }

// Close ends all connections.
func (d *DB) Close() error {
	var err error
	if d.lite != nil {
		err = d.lite.close()
	}
	err = errors.Join(err, d.write.Close())
	if d.read != d.write {
		err = errors.Join(err, d.read.Close()) // with the statements that are prepared on it
	}
	if d.lock != nil {
		// Unlocked before it is closed: a program that another goroutine starts at this moment has the
		// file, too, until it runs.
		err = errors.Join(err, syscall.Flock(int(d.lock.Fd()), syscall.LOCK_UN), d.lock.Close())
	}
	return err
}

// Ping reports whether the database answers.
func (d *DB) Ping(ctx context.Context) error {
	if err := d.read.PingContext(ctx); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the database does not answer")
	}
	return nil
}

func openSQLite(ctx context.Context, cfg Config) (*DB, error) {
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
		"&_pragma=case_sensitive_like(1)" // as PostgreSQL has it
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
		return nil, errors.Join(fault.Wrap(fault.Unavailable, err, "database: cannot open %s", cfg.Path), lock.Close())
	}
	read, err := sqlx.Open(
		"sqlite", fmt.Sprintf("%s?_pragma=query_only(1)&_pragma=cache_size(-%d)&%s", file, max(cache/8, 64), pragmas),
	)
	if err != nil {
		return nil, errors.Join(
			fault.Wrap(fault.Unavailable, err, "database: cannot open %s", cfg.Path), lite.close(), write.Close(),
			lock.Close(),
		)
	}
	readers := cmp.Or(cfg.MaxConns, 4)
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	return &DB{engine: SQLite, write: write, read: read, lite: lite, reader: newLiteReader(read), lock: lock}, nil
}

// CheckFree refuses a SQLite file that another process uses. It makes nothing.
func CheckFree(path string) error {
	if _, err := os.Stat(path + ".lock"); err != nil {
		return nil // nobody has ever opened it
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return err
	}
	return errors.Join(syscall.Flock(int(lock.Fd()), syscall.LOCK_UN), lock.Close())
}

// private makes a file that is missing, and takes others' rights to one that is there.
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

// lockFile keeps a second process out for as long as the returned file is open;
// the kernel gives the lock back when the process dies, however it dies.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "database: cannot open %s", path)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
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
		// pgx's text can hold the URL with its password, so it stays private.
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
		// Two replicas may start at once; the lock keeps CREATE SCHEMA from racing itself.
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
