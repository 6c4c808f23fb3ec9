package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/jmoiron/sqlx"
)

// maxStatements limits the prepared statements that a liteWriter keeps. Texts with a varying number
// of placeholders would otherwise accumulate without limit.
const maxStatements = 256

// liteWriter is SQLite's single write connection. It runs transactions itself instead of through
// sql.Tx, because statements that database/sql prepares cannot be used inside an sql.Tx on the same
// connection, and parsing a statement costs SQLite about as much as running it.
type liteWriter struct {
	slot       chan struct{} // holds a token while a transaction runs; waiters are served in turn
	pool       *sqlx.DB
	conn       *sqlx.Conn
	statements map[string]*sqlx.Stmt
}

func newLiteWriter(ctx context.Context, pool *sqlx.DB) (*liteWriter, error) {
	w := &liteWriter{slot: make(chan struct{}, 1), pool: pool}
	return w, w.connect(ctx)
}

func (w *liteWriter) connect(ctx context.Context) (err error) {
	w.statements = map[string]*sqlx.Stmt{}
	w.conn, err = w.pool.Connx(ctx)
	return err
}

// begin waits for its turn and starts a write transaction.
func (w *liteWriter) begin(ctx context.Context) error {
	select {
	case w.slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	// If the caller's context ended during BEGIN, it would not learn that BEGIN succeeded, and the
	// transaction would stay open forever. A canceled caller gets its error from the first
	// statement.
	ctx = context.WithoutCancel(ctx)
	err := w.run(ctx, "BEGIN IMMEDIATE")
	if errors.Is(err, sql.ErrConnDone) || errors.Is(err, driver.ErrBadConn) {
		// database/sql discarded the connection; replace it.
		if err = w.connect(ctx); err == nil {
			err = w.run(ctx, "BEGIN IMMEDIATE")
		}
	}
	if err != nil {
		<-w.slot
	}
	return err
}

// end commits or rolls back, even if the caller's context has ended.
func (w *liteWriter) end(ctx context.Context, commit bool) error {
	defer func() { <-w.slot }()
	ctx = context.WithoutCancel(ctx)
	if !commit {
		return w.run(ctx, "ROLLBACK")
	}
	if err := w.run(ctx, "COMMIT"); err != nil {
		// A failed commit (disk full) leaves the transaction open.
		return errors.Join(err, w.run(ctx, "ROLLBACK"))
	}
	return nil
}

func (w *liteWriter) run(ctx context.Context, query string) error {
	stmt, err := w.prepare(ctx, query)
	if err != nil {
		return err
	}
	_, err = stmt.ExecContext(ctx)
	return err
}

// prepare returns the statement for a text, prepared on first use.
func (w *liteWriter) prepare(ctx context.Context, query string) (*sqlx.Stmt, error) {
	if stmt := w.statements[query]; stmt != nil {
		return stmt, nil
	}
	if len(w.statements) >= maxStatements {
		for text, stmt := range w.statements {
			if err := stmt.Close(); err != nil {
				return nil, err
			}
			delete(w.statements, text)
		}
	}
	stmt, err := w.conn.PreparexContext(ctx, query)
	if err != nil {
		return nil, err
	}
	w.statements[query] = stmt
	return stmt, nil
}

func (w *liteWriter) close() error {
	var errs []error
	for _, stmt := range w.statements {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}
