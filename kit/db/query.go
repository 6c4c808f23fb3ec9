package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Querier reads. A *DB and a *Tx are Queriers, so that a function which only
// reads can be used inside and outside a transaction.
type Querier interface {
	// Get scans one row into dest, a pointer to a scalar or to a struct with db
	// tags. No row is ErrNoRows.
	Get(ctx context.Context, dest any, query string, args ...any) error
	// Select scans all rows into dest, a pointer to a slice.
	Select(ctx context.Context, dest any, query string, args ...any) error
}

// ErrNoRows is what Get returns when nothing matches.
var ErrNoRows = sql.ErrNoRows

// Get reads committed data.
func (d *DB) Get(ctx context.Context, dest any, query string, args ...any) error {
	return readFault(d.read.GetContext(ctx, dest, d.read.Rebind(query), args...))
}

// Select reads committed data.
func (d *DB) Select(ctx context.Context, dest any, query string, args ...any) error {
	return readFault(d.read.SelectContext(ctx, dest, d.read.Rebind(query), args...))
}

// Tx is a running write transaction. It must not be used by two goroutines.
type Tx struct {
	tx       *sqlx.Tx
	engine   Engine
	onCommit []func()
}

// Update runs fn in one transaction, and commits it if fn returns nil. After a
// nil return the changes are durable. fn may run again when PostgreSQL asks for
// a retry, so it must have no effects but those on tx; effects outside belong in
// tx.OnCommit.
func (d *DB) Update(ctx context.Context, fn func(tx *Tx) error) error {
	const attempts = 5
	for try := 1; ; try++ {
		err := d.updateOnce(ctx, fn)
		if err == nil || try == attempts || !isRetryable(err) {
			return err
		}
	}
}

func (d *DB) updateOnce(ctx context.Context, fn func(tx *Tx) error) (err error) {
	sqlTx, err := d.write.BeginTxx(ctx, nil)
	if err != nil {
		return writeFault(err)
	}
	tx := &Tx{tx: sqlTx, engine: d.engine}
	committed := false
	defer func() {
		if !committed { // also when fn panics
			if rbErr := sqlTx.Rollback(); rbErr != nil && !errors.Is(rbErr, sql.ErrTxDone) && err == nil {
				err = writeFault(rbErr)
			}
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := sqlTx.Commit(); err != nil {
		return writeFault(err)
	}
	committed = true
	for _, f := range tx.onCommit {
		f()
	}
	return nil
}

// Get reads inside the transaction.
func (tx *Tx) Get(ctx context.Context, dest any, query string, args ...any) error {
	return readFault(tx.tx.GetContext(ctx, dest, tx.tx.Rebind(query), args...))
}

// Select reads inside the transaction.
func (tx *Tx) Select(ctx context.Context, dest any, query string, args ...any) error {
	return readFault(tx.tx.SelectContext(ctx, dest, tx.tx.Rebind(query), args...))
}

// Exec runs a statement and returns the number of rows it changed.
func (tx *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := tx.tx.ExecContext(ctx, tx.tx.Rebind(query), args...)
	if err != nil {
		return 0, writeFault(err)
	}
	n, err := res.RowsAffected()
	return n, writeFault(err)
}

// Insert adds a row to table from a struct with db tags.
func (tx *Tx) Insert(ctx context.Context, table string, row any) error {
	fields := tx.tx.Mapper.TypeMap(reflectType(row)).Index
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		if f.Parent != nil && f.Parent.Path == "" && f.Name != "" {
			names = append(names, f.Name)
		}
	}
	query := fmt.Sprintf("INSERT INTO %s (%s) VALUES (:%s)", table, strings.Join(names, ", "), strings.Join(names, ", :"))
	_, err := tx.tx.NamedExecContext(ctx, query, row)
	return writeFault(err)
}

// OnCommit has f run after the transaction was committed, and not otherwise.
func (tx *Tx) OnCommit(f func()) { tx.onCommit = append(tx.onCommit, f) }

// ForUpdate is the clause that locks the rows a SELECT reads until the end of
// the transaction. SQLite needs none: it has one writer.
func (tx *Tx) ForUpdate() string {
	if tx.engine == Postgres {
		return " FOR UPDATE"
	}
	return ""
}

// ForUpdateSkipLocked locks like ForUpdate and passes over rows that another
// transaction has locked.
func (tx *Tx) ForUpdateSkipLocked() string {
	if tx.engine == Postgres {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// In expands each slice in args to as many placeholders.
func In(query string, args ...any) (string, []any, error) { return sqlx.In(query, args...) }

// NotFound turns ErrNoRows into the given fault and leaves other errors alone.
func NotFound(err error, format string, args ...any) error {
	if errors.Is(err, ErrNoRows) {
		return fault.New(fault.NotFound, format, args...)
	}
	return err
}

// storeTimeout bounds the transactions that run on behalf of many callers.
const storeTimeout = 30 * time.Second
