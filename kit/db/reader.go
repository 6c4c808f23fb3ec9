package db

import (
	"context"
	"sync"

	"github.com/jmoiron/sqlx"
)

// liteReader runs queries on SQLite's readers. Parsing a statement costs SQLite about as much as
// running it, so frequent statements stay prepared. (On PostgreSQL, the driver does this.)
type liteReader struct {
	pool *sqlx.DB

	mu       sync.Mutex
	asked    map[string]int // number of uses of each text that is not prepared
	prepared map[string]*sqlx.Stmt
}

const (
	askedOften  = 8
	maxAsked    = 1024 // texts that are counted at the same time
	maxPrepared = 128  // statements; each reader connection has its own copies
)

func newLiteReader(pool *sqlx.DB) *liteReader {
	return &liteReader{pool: pool, asked: map[string]int{}, prepared: map[string]*sqlx.Stmt{}}
}

func (r *liteReader) get(ctx context.Context, dest any, query string, args ...any) error {
	if stmt := r.statement(ctx, query); stmt != nil {
		return stmt.GetContext(ctx, dest, args...)
	}
	return r.pool.GetContext(ctx, dest, query, args...)
}

func (r *liteReader) selectAll(ctx context.Context, dest any, query string, args ...any) error {
	if stmt := r.statement(ctx, query); stmt != nil {
		return stmt.SelectContext(ctx, dest, args...)
	}
	return r.pool.SelectContext(ctx, dest, query, args...)
}

// statement returns the prepared statement for a text, or nil if there is none (yet).
func (r *liteReader) statement(ctx context.Context, query string) *sqlx.Stmt {
	stmt, often := r.find(query)
	if !often {
		return stmt
	}
	// Do not hold the lock: this may have to wait for a connection.
	stmt, err := r.pool.PreparexContext(ctx, query)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, query)
	if err != nil {
		return nil // the query itself will return the error
	}
	r.prepared[query] = stmt
	return stmt
}

// find looks for a prepared statement. often is true for exactly one caller, which must prepare the
// text because it is used often.
func (r *liteReader) find(query string) (stmt *sqlx.Stmt, often bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stmt = r.prepared[query]; stmt != nil || len(r.prepared) >= maxPrepared {
		return stmt, false
	}
	if len(r.asked) >= maxAsked {
		clear(r.asked)
	}
	r.asked[query]++
	return nil, r.asked[query] == askedOften
}
