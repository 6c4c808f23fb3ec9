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

// Tx is a running write transaction. It must not be used by two goroutines.
type Tx struct {
	pg       *sqlx.Tx    // on PostgreSQL, where the driver keeps prepared statements
	lite     *liteWriter // on SQLite
	values   map[any]any
	before   []func(ctx context.Context) error
	onCommit []func()
}

// Update runs fn in one transaction, and commits it if fn returns nil. After a
// nil return the changes are durable. fn may run again when PostgreSQL asks for
// a retry, so it must have no effects but those on tx; effects outside belong in
// tx.OnCommit.
func (d *DB) Update(ctx context.Context, fn func(tx *Tx) error) error {
	const attempts = 8
	for try := 1; ; try++ {
		err := d.updateOnce(ctx, fn)
		if err == nil || !isRetryable(err) {
			return err
		}
		if try == attempts {
			return fault.Wrap(
				fault.Unavailable, err, "the database is busy with other changes; try again",
			).WithRetryAfter(time.Second)
		}
		// Those who were in each other's way must not meet again at once.
		wait := time.Duration((0.5 + rand.Float64()/2) * float64(firstRetry<<(try-1)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// firstRetry is the longest wait before the second attempt at a transaction; it doubles.
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
		return writeFault(err)
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

// Insert adds a row to table from a struct with db tags, and those of the structs that it embeds.
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

// columns finds the columns of structs by their db tags.
var columns = reflectx.NewMapperFunc("db", strings.ToLower)

// BeforeCommit has f run as the last part of the transaction. Its error rolls the transaction
// back. What many transactions change is changed here and in a fixed order, so that they hold its
// locks for a short time and cannot deadlock over them.
func (tx *Tx) BeforeCommit(f func(ctx context.Context) error) { tx.before = append(tx.before, f) }

// Value is what SetValue kept under key, or nil.
func (tx *Tx) Value(key any) any { return tx.values[key] }

// SetValue keeps a value until the transaction ends. The key's type is the caller's own, as for
// context.WithValue.
func (tx *Tx) SetValue(key, value any) {
	if tx.values == nil {
		tx.values = map[any]any{}
	}
	tx.values[key] = value
}

// OnCommit has f run after the transaction was committed, and not otherwise.
func (tx *Tx) OnCommit(f func()) { tx.onCommit = append(tx.onCommit, f) }

// ForUpdate is the clause that locks the rows a SELECT reads until the end of
// the transaction. SQLite needs none: it has one writer.
func (tx *Tx) ForUpdate() string {
	if tx.pg != nil {
		return " FOR UPDATE"
	}
	return ""
}

// ForShare is the clause that keeps others from changing the rows a SELECT reads until the end of
// the transaction. Others may read them, and share them in their turn.
func (tx *Tx) ForShare() string {
	if tx.pg != nil {
		return " FOR SHARE"
	}
	return ""
}

// Now is the time by the database's own clock, which replicas share: their own clocks may differ.
// SQLite has one process, so its clock is that of the process.
func (tx *Tx) Now(ctx context.Context) (time.Time, error) {
	if tx.pg == nil {
		return time.Now().UTC(), nil
	}
	var micros int64
	err := tx.Get(ctx, &micros, "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)")
	return time.UnixMicro(micros).UTC(), err
}

// ForUpdateSkipLocked locks like ForUpdate and passes over rows that another
// transaction has locked.
func (tx *Tx) ForUpdateSkipLocked() string {
	if tx.pg != nil {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// In expands the placeholder of each slice in args, which stands in an IN list and must not be
// empty, to as many placeholders as the slice has elements, and some more that repeat the last one.
// With powers of two there are few distinct statements, which stay prepared.
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

// maxPadded bounds the lists that are padded: databases take some ten thousand arguments at most.
const maxPadded = 4096

func padIn(v reflect.Value) any {
	if _, isValue := v.Interface().(driver.Valuer); isValue || v.Type().Elem().Kind() == reflect.Uint8 {
		return v.Interface() // one value to a database
	}
	size := 1 << bits.Len(uint(v.Len()-1))
	list := reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, size), v)
	for list.Len() < size {
		list = reflect.Append(list, v.Index(v.Len()-1))
	}
	return list.Interface()
}

// NotFound turns ErrNoRows into the given fault and leaves other errors alone.
func NotFound(err error, format string, args ...any) error {
	if errors.Is(err, ErrNoRows) {
		return fault.New(fault.NotFound, format, args...)
	}
	return err
}

// storeTimeout bounds the transactions that run on behalf of many callers.
const storeTimeout = 30 * time.Second
