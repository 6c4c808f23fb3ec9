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

// update runs fn in a transaction, as db.Update does. What fn has found to be free may be taken a moment later by
// another replica, so that a unique index refuses it: then fn looks again.
func (s *Store) update(ctx context.Context, fn func(tx *db.Tx) error) error {
	err := s.db.Update(ctx, fn)
	if db.IsUnique(err) {
		err = s.db.Update(ctx, fn)
	}
	return err
}

// NewID returns an id that sorts by creation time (UUID version 7).
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// Note writes an audit entry that belongs to no change of a row.
func (s *Store) Note(ctx context.Context, e audit.Entry) error {
	return s.update(ctx, func(tx *db.Tx) error { return s.note(ctx, tx, e) })
}

// NoteDenied writes the audit entry of a denied attempt. address is the client's.
func (s *Store) NoteDenied(ctx context.Context, address string, c caller.Caller, e audit.Entry) error {
	return s.audit.Deny(ctx, address, c.Entry(e), nil)
}

// AuditEntries lists the audit log, newest first, as audit.Log.Find does.
func (s *Store) AuditEntries(ctx context.Context, f audit.Filter) (entries []audit.Entry, examined int64, err error) {
	return s.audit.Find(ctx, s.db, f)
}

// InspectAudit recomputes and verifies the audit log's hash chain.
func (s *Store) InspectAudit(ctx context.Context) (audit.Verification, error) {
	return s.audit.Inspect(ctx)
}

// AcknowledgeAudit silences the alarm for the audit log's breaks up to entry through.
func (s *Store) AcknowledgeAudit(ctx context.Context, through int64, note string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		return s.audit.Acknowledge(ctx, tx, through, caller.From(ctx).Entry(audit.Entry{Message: note}))
	})
}

// note writes an audit entry in the transaction of the change that it records.
func (s *Store) note(ctx context.Context, tx *db.Tx, e audit.Entry) error {
	return s.audit.Append(ctx, tx, caller.From(ctx).Entry(e), nil)
}
