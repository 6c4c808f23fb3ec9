package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// Note writes an audit entry that belongs to no change of a row. The action follows after it and is
// recorded even if its response is lost.
func (s *Store) Note(ctx context.Context, e audit.Entry) error {
	return s.db.Update(ctx, func(tx *db.Tx) error { return s.note(ctx, tx, e) })
}

// NoteNode returns a function that writes the audit entry of a change to a node, in the transaction
// of the change.
func (s *Store) NoteNode(ctx context.Context, action, name string) func(tx *db.Tx) error {
	return func(tx *db.Tx) error { return s.note(ctx, tx, audit.Entry{Action: action, Target: name}) }
}

// NoteDenied writes the audit entry of a denied attempt.
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
	return s.db.Update(ctx, func(tx *db.Tx) error {
		return s.audit.Acknowledge(ctx, tx, through, caller.From(ctx).Entry(audit.Entry{Message: note}))
	})
}

// WithFiles appends the paths of host files to an audit message, each after its field's name. named
// alternates between names and paths; empty paths are left out.
func WithFiles(message string, named ...string) string {
	for i := 0; i+1 < len(named); i += 2 {
		if path := named[i+1]; path != "" {
			message += "; " + named[i] + " " + path
		}
	}
	return message
}
