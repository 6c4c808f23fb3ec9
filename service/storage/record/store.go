package record

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// Store stores the rows of the service. It is safe for concurrent use.
type Store struct {
	db    *db.DB
	audit *audit.Log
	now   func() time.Time
}

// New returns a Store on a database that has its tables.
func New(d *db.DB, log *audit.Log, now func() time.Time) *Store {
	return &Store{db: d, audit: log, now: now}
}

// NewID returns an id that sorts by creation time (UUID version 7).
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// note writes an audit entry in the transaction of the change that it records.
func (s *Store) note(ctx context.Context, tx *db.Tx, e audit.Entry) error {
	return s.audit.Append(ctx, tx, caller.From(ctx).Entry(e), nil)
}
