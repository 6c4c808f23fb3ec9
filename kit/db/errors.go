package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"time"

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
		switch {
		case pg.Code == "53100": // disk_full
			return diskFull(err)
		case pg.Code[:2] == "53", pg.Code[:2] == "57": // insufficient resources, operator intervention
			return unavailable(err)
		case pg.Code[:2] == "25", pg.Code[:2] == "58": // read-only, system error
			return fault.Wrap(fault.StorageFailed, err, "the database refused the write; nothing was stored")
		}
		return err
	}
	if lite := (*sqlite.Error)(nil); errors.As(err, &lite) {
		switch lite.Code() & 0xff {
		case sqlite3.SQLITE_FULL:
			return diskFull(err)
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
	return unavailable(err)
}

func diskFull(err error) error {
	return fault.Wrap(
		fault.StorageFailed, err, "the disk is full; nothing was stored. Make room and try again",
	).WithCode("storage_full")
}

// CodeUnavailable is the code of the faults of kind Unavailable that say that a database cannot be reached.
const CodeUnavailable = "database_unavailable"

func unavailable(err error) error {
	return fault.Wrap(fault.Unavailable, err, "the database cannot be reached; nothing was stored. Try again").
		WithCode(CodeUnavailable).WithRetryAfter(time.Second)
}

// commitFault is writeFault for the error of a commit. If the connection broke, PostgreSQL may have done it.
func commitFault(err error) error {
	err = writeFault(err)
	if f := (*fault.Error)(nil); errors.As(err, &f) && f.Code == CodeUnavailable {
		return fault.Wrap(fault.Unavailable, err,
			"the database went away during the commit; check whether the change was stored before you try again").
			WithCode(CodeUnavailable).WithRetryAfter(time.Second)
	}
	return err
}

// isFull reports whether a write has failed because the disk is full.
func isFull(err error) bool { return err != nil && fault.From(err).Code == "storage_full" }

func readFault(err error) error {
	if badText(err) {
		return badTextFault(err)
	}
	if err == nil || errors.Is(err, sql.ErrNoRows) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) || !isAway(err) {
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "the database cannot be reached; try again").
		WithCode(CodeUnavailable).WithRetryAfter(time.Second)
}

// isAway reports whether PostgreSQL could not be asked, or did not finish its answer.
func isAway(err error) bool {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code[:2] == "53" || pg.Code[:2] == "57"
	}
	connect, network := (*pgconn.ConnectError)(nil), net.Error(nil)
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
