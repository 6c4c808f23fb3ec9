package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Querier reads. *DB and *Tx implement it, so a function that only reads can be used inside and
// outside a transaction.
type Querier interface {
	// Get scans one row into dest, a pointer to a scalar or to a struct with db tags. It returns
	// ErrNoRows if no row matches.
	Get(ctx context.Context, dest any, query string, args ...any) error
	// Select scans all rows into dest, a pointer to a slice.
	Select(ctx context.Context, dest any, query string, args ...any) error
}

// ErrNoRows is returned by Get if no row matches.
var ErrNoRows = sql.ErrNoRows

// Get reads committed data.
func (d *DB) Get(ctx context.Context, dest any, query string, args ...any) error {
	if d.reader != nil {
		return readFault(d.reader.get(ctx, dest, query, args...))
	}
	return readFault(d.read.GetContext(ctx, dest, d.read.Rebind(query), args...))
}

// Select reads committed data.
func (d *DB) Select(ctx context.Context, dest any, query string, args ...any) error {
	if d.reader != nil {
		return readFault(d.reader.selectAll(ctx, dest, query, args...))
	}
	return readFault(d.read.SelectContext(ctx, dest, d.read.Rebind(query), args...))
}

// Tx is a running write transaction. It is not safe for concurrent use.
type Tx struct {
	pg       *sqlx.Tx    // on PostgreSQL, where the driver keeps prepared statements
	lite     *liteWriter // on SQLite
	values   map[any]any
	before   []func(ctx context.Context) error
	onCommit []func()
}

// Update runs fn in one transaction and commits it if fn returns nil. If Update returns nil, the
// changes are durable. fn may run again when PostgreSQL requires a retry, so it must have no
// effects other than those on tx; use tx.OnCommit for outside effects.
func (d *DB) Update(ctx context.Context, fn func(tx *Tx) error) error {
	const attempts = 8
	for try := 1; ; try++ {
		err := d.updateOnce(ctx, fn)
		for isFull(err) && d.reserve != nil && d.reserve.Give() {
			err = d.updateOnce(ctx, fn)
		}
		if err == nil || !isRetryable(err) {
			return err
		}
		if try == attempts {
			return fault.Wrap(
				fault.Unavailable, err, "the database is busy with other changes; try again",
			).WithRetryAfter(time.Second)
		}
		// Jitter keeps conflicting transactions from colliding again.
		wait := time.Duration((0.5 + rand.Float64()/2) * float64(firstRetry<<(try-1)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// firstRetry is the longest wait before the second attempt at a transaction. It doubles with each
// attempt.
const firstRetry = 4 * time.Millisecond

func (d *DB) updateOnce(ctx context.Context, fn func(tx *Tx) error) (err error) {
	tx, err := d.begin(ctx)
	if err != nil {
		return writeFault(err)
	}
	ended := false
	defer func() {
		if !ended { // also when fn panics
			if endErr := tx.end(ctx, false); err == nil {
				err = writeFault(endErr)
			}
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	for i := 0; i < len(tx.before); i++ { // one may add another
		if err := tx.before[i](ctx); err != nil {
			return err
		}
	}
	ended = true
	if err := tx.end(ctx, true); err != nil {
		return commitFault(err)
	}
	for _, f := range tx.onCommit {
		f()
	}
	return nil
}

func (d *DB) begin(ctx context.Context) (*Tx, error) {
	if d.lite != nil {
		return &Tx{lite: d.lite}, d.lite.begin(ctx)
	}
	pg, err := d.write.BeginTxx(ctx, nil)
	return &Tx{pg: pg}, err
}

func (tx *Tx) end(ctx context.Context, commit bool) error {
	switch {
	case tx.lite != nil:
		return tx.lite.end(ctx, commit)
	case commit:
		return tx.pg.Commit()
	}
	if err := tx.pg.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// Get reads inside the transaction.
func (tx *Tx) Get(ctx context.Context, dest any, query string, args ...any) error {
	if tx.lite == nil {
		return readFault(tx.pg.GetContext(ctx, dest, tx.pg.Rebind(query), args...))
	}
	stmt, err := tx.lite.prepare(ctx, query)
	if err != nil {
		return writeFault(err)
	}
	// With RETURNING this may be a write.
	if err := stmt.GetContext(ctx, dest, args...); !errors.Is(err, ErrNoRows) {
		return writeFault(err)
	}
	return ErrNoRows
}

// Select reads inside the transaction.
func (tx *Tx) Select(ctx context.Context, dest any, query string, args ...any) error {
	if tx.lite == nil {
		return readFault(tx.pg.SelectContext(ctx, dest, tx.pg.Rebind(query), args...))
	}
	stmt, err := tx.lite.prepare(ctx, query)
	if err != nil {
		return writeFault(err)
	}
	return writeFault(stmt.SelectContext(ctx, dest, args...))
}

// Exec runs a statement and returns the number of rows it changed.
func (tx *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	var res sql.Result
	var err error
	if tx.lite == nil {
		res, err = tx.pg.ExecContext(ctx, tx.pg.Rebind(query), args...)
	} else {
		var stmt *sqlx.Stmt
		if stmt, err = tx.lite.prepare(ctx, query); err == nil {
			res, err = stmt.ExecContext(ctx, args...)
		}
	}
	if err != nil {
		return 0, writeFault(err)
	}
	n, err := res.RowsAffected()
	return n, writeFault(err)
}

// Insert adds a row to table from a struct with db tags, including the fields of embedded structs.
func (tx *Tx) Insert(ctx context.Context, table string, row any) error {
	v := reflect.Indirect(reflect.ValueOf(row))
	var names []string
	var args []any
	for _, f := range columns.TypeMap(v.Type()).Index {
		if f.Path == f.Name && f.Name != "" && !f.Embedded {
			names = append(names, f.Name)
			args = append(args, reflectx.FieldByIndexesReadOnly(v, f.Index).Interface())
		}
	}
	query := fmt.Sprintf(
		"INSERT INTO %s (%s) VALUES (?%s)", table, strings.Join(names, ", "), strings.Repeat(", ?", len(names)-1),
	)
	_, err := tx.Exec(ctx, query, args...)
	return err
}

// columns maps structs to columns by their db tags.
var columns = reflectx.NewMapperFunc("db", strings.ToLower)

// BeforeCommit runs f as the last part of the transaction. If f fails, the transaction is rolled
// back. Rows that many transactions change should be changed here, in a fixed order, so that locks
// are held briefly and cannot deadlock.
func (tx *Tx) BeforeCommit(f func(ctx context.Context) error) { tx.before = append(tx.before, f) }

// Value returns the value that SetValue stored under key, or nil.
func (tx *Tx) Value(key any) any { return tx.values[key] }

// SetValue stores a value until the transaction ends. As for context.WithValue, the key should have
// a type of the caller's own.
func (tx *Tx) SetValue(key, value any) {
	if tx.values == nil {
		tx.values = map[any]any{}
	}
	tx.values[key] = value
}

// OnCommit runs f after the transaction was committed. f does not run if it is rolled back.
func (tx *Tx) OnCommit(f func()) { tx.onCommit = append(tx.onCommit, f) }

// ForUpdate returns the clause that locks the rows a SELECT reads until the end of the transaction.
// It is empty on SQLite, which has one writer.
func (tx *Tx) ForUpdate() string {
	if tx.pg != nil {
		return " FOR UPDATE"
	}
	return ""
}

// ForShare returns the clause that keeps others from changing the rows a SELECT reads until the end
// of the transaction. Others may still read them and lock them FOR SHARE.
func (tx *Tx) ForShare() string {
	if tx.pg != nil {
		return " FOR SHARE"
	}
	return ""
}

// Now returns the current time of the database's clock, which replicas share; their own clocks may
// differ. On SQLite, which has one process, it is the process's clock.
func (tx *Tx) Now(ctx context.Context) (time.Time, error) {
	if tx.pg == nil {
		return time.Now().UTC(), nil
	}
	var micros int64
	err := tx.Get(ctx, &micros, "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)")
	return time.UnixMicro(micros).UTC(), err
}

// ForUpdateSkipLocked returns the clause that locks like ForUpdate but skips rows that another
// transaction has locked.
func (tx *Tx) ForUpdateSkipLocked() string {
	if tx.pg != nil {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// In expands the placeholder of each slice in args to one placeholder per element. The placeholder
// must be in an IN list, and the slice must not be empty. In pads the list to a power of two by
// repeating the last element, so that there are few distinct statements, which stay prepared.
func In(query string, args ...any) (string, []any, error) {
	padded := make([]any, len(args))
	for i, arg := range args {
		padded[i] = arg
		if v := reflect.ValueOf(arg); v.IsValid() && v.Kind() == reflect.Slice && v.Len() > 0 && v.Len() <= maxPadded {
			padded[i] = padIn(v)
		}
	}
	return sqlx.In(query, padded...)
}

// maxPadded limits the lists that are padded: databases accept some ten thousand arguments at most.
const maxPadded = 4096

func padIn(v reflect.Value) any {
	if _, isValue := v.Interface().(driver.Valuer); isValue || v.Type().Elem().Kind() == reflect.Uint8 {
		return v.Interface() // a single value for the database
	}
	size := 1 << bits.Len(uint(v.Len()-1))
	list := reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, size), v)
	for list.Len() < size {
		list = reflect.Append(list, v.Index(v.Len()-1))
	}
	return list.Interface()
}

// NotFound converts ErrNoRows to a fault of kind NotFound with the given message. It returns other
// errors unchanged.
func NotFound(err error, format string, args ...any) error {
	if errors.Is(err, ErrNoRows) {
		return fault.New(fault.NotFound, format, args...)
	}
	return err
}

// storeTimeout limits transactions that run on behalf of many callers.
const storeTimeout = 30 * time.Second
