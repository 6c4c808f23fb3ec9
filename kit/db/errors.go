package db

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// IsUnique reports whether err is a violation of a unique or primary key.
func IsUnique(err error) bool {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code == "23505" // unique_violation
	}
	if lite := (*sqlite.Error)(nil); errors.As(err, &lite) {
		return lite.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || lite.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
	}
	return false
}

// badText reports whether PostgreSQL rejected a text parameter that holds NUL or invalid UTF-8.
// SQLite accepts both. Services validate their input first; this catches what they miss. Codes:
// character_not_in_repertoire, untranslatable_character.
func badText(err error) bool {
	pg := (*pgconn.PgError)(nil)
	return errors.As(err, &pg) && (pg.Code == "22021" || pg.Code == "22P05")
}

func badTextFault(err error) error {
	return fault.Wrap(fault.Invalid, err, "a value holds NUL or is not valid UTF-8")
}

// isRetryable reports whether the whole transaction should be run again.
// Codes: PostgreSQL appendix A, class 40 (transaction rollback).
func isRetryable(err error) bool {
	pg := (*pgconn.PgError)(nil)
	return errors.As(err, &pg) && strings.HasPrefix(pg.Code, "40")
}

// writeFault converts the error of a failed write to a fault. Constraint violations are returned
// unchanged, since they are about the data and not the storage.
func writeFault(err error) error {
	if badText(err) {
		return badTextFault(err)
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || IsUnique(err) ||
		isRetryable(err) {
		return err
	}
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		switch pg.Code[:2] {
		case "53", "25", "57", "58": // resources, read-only, operator intervention, system error
			return fault.Wrap(fault.StorageFailed, err, "the database refused the write; nothing was stored")
		}
		return err
	}
	if lite := (*sqlite.Error)(nil); errors.As(err, &lite) {
		switch lite.Code() & 0xff {
		case sqlite3.SQLITE_FULL:
			return fault.Wrap(
				fault.StorageFailed, err, "the disk is full; nothing was stored. Make room and try again",
			).WithCode("storage_full")
		case sqlite3.SQLITE_IOERR,
			sqlite3.SQLITE_READONLY,
			sqlite3.SQLITE_CANTOPEN,
			sqlite3.SQLITE_CORRUPT,
			sqlite3.SQLITE_NOTADB,
			sqlite3.SQLITE_BUSY:
			return fault.Wrap(fault.StorageFailed, err, "the database refused the write; nothing was stored")
		}
		return err
	}
	if errors.Is(err, sql.ErrTxDone) {
		return err
	}
	// Anything else is a broken connection.
	return fault.Wrap(fault.StorageFailed, err, "the database cannot be reached; nothing was stored")
}

func readFault(err error) error {
	if badText(err) {
		return badTextFault(err)
	}
	var pg *pgconn.PgError
	var lite *sqlite.Error
	if err == nil || errors.Is(err, sql.ErrNoRows) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &pg) || errors.As(err, &lite) ||
		errors.Is(err, sql.ErrTxDone) {
		return err
	}
	if connect := (*pgconn.ConnectError)(nil); errors.As(err, &connect) {
		return fault.Wrap(fault.Unavailable, err, "the database cannot be reached")
	}
	return err
}
