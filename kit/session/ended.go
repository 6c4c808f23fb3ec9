package session

import (
	"context"
	"embed"
	"io/fs"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Ended remembers the sessions that were signed out before they expired.
type Ended interface {
	// End ends a session. It may be forgotten after it has expired.
	End(ctx context.Context, id string, expires time.Time) error
	// Has reports whether a session was ended.
	Has(ctx context.Context, id string) (bool, error)
}

// maxInMemory is how many ended sessions are kept in memory, about 100 bytes each.
const maxInMemory = 100_000

// inMemory is an Ended for services without a database. Their sessions end with the process, since
// their keys do.
type inMemory struct {
	now func() time.Time

	mu    sync.Mutex
	ended map[string]time.Time // when it would have expired, by id
}

// InMemory returns an Ended that lasts as long as the process. The Sealer of the sessions must not
// last longer.
func InMemory(now func() time.Time) Ended { return &inMemory{now: now, ended: map[string]time.Time{}} }

func (e *inMemory) End(_ context.Context, id string, expires time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.ended) >= maxInMemory {
		now := e.now()
		for old, expired := range e.ended {
			if !now.Before(expired) {
				delete(e.ended, old)
			}
		}
	}
	if len(e.ended) >= maxInMemory {
		return errFull
	}
	e.ended[id] = expires
	return nil
}

func (e *inMemory) Has(_ context.Context, id string) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.ended[id]
	return ended, nil
}

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the table of InDatabase, for db.DB.Migrate.
func Migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }

type inDatabase struct {
	db  *db.DB
	now func() time.Time
}

// InDatabase returns an Ended in a table, which replicas share.
func InDatabase(d *db.DB, now func() time.Time) Ended { return &inDatabase{d, now} }

func (e *inDatabase) End(ctx context.Context, id string, expires time.Time) error {
	return e.db.Update(ctx, func(tx *db.Tx) error {
		// Those that have expired go whenever one is added, so there are never more than a day's.
		if _, err := tx.Exec(ctx, "DELETE FROM ended_sessions WHERE expires_at < ?", db.At(e.now())); err != nil {
			return err
		}
		_, err := tx.Exec(ctx,
			"INSERT INTO ended_sessions (id, expires_at) VALUES (?, ?) ON CONFLICT (id) DO NOTHING", id, db.At(expires))
		return err
	})
}

func (e *inDatabase) Has(ctx context.Context, id string) (bool, error) {
	var n int
	err := e.db.Get(ctx, &n, "SELECT COUNT(*) FROM ended_sessions WHERE id = ?", id)
	return n > 0, err
}
