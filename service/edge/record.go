package edge

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
)

// entry is an audit entry without the caller, which comes from the context.
type entry struct {
	Action, Target, SiteID, OrgID, Message string
	Result                                 audit.Result
	Detail                                 any
}

// record writes an audit entry in the transaction of the change that it describes.
func (s *Service) record(ctx context.Context, tx *db.Tx, e entry) error {
	return s.audit.Append(ctx, tx, e.of(callerFrom(ctx)), e.Detail)
}

// recordAlone writes an audit entry of something that changes nothing in the database.
func (s *Service) recordAlone(ctx context.Context, e entry) error {
	return s.db.Update(ctx, func(tx *db.Tx) error { return s.record(ctx, tx, e) })
}

// deny records a denied attempt in the audit log, unless there are too many of them.
func (s *Service) deny(ctx context.Context, address string, e entry) error {
	return s.audit.Deny(ctx, address, e.of(callerFrom(ctx)), e.Detail)
}

// AcknowledgeAudit records that the caller acknowledges the breaks of the audit log up to an entry.
func (s *Service) AcknowledgeAudit(ctx context.Context, through int64, note string) error {
	if err := checkLine("note", note); err != nil {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		tx.OnCommit(s.nudgeAlerts)
		return s.audit.Acknowledge(ctx, tx, through, entry{Message: note}.of(callerFrom(ctx)))
	})
}

// of converts e to an audit entry by the caller c. Org and site default to the caller's.
func (e entry) of(c Caller) audit.Entry {
	if e.OrgID == "" {
		e.OrgID = c.OrgID
	}
	if e.SiteID == "" {
		e.SiteID = c.SiteID
	}
	return audit.Entry{
		Actor: c.actor(), ActorType: c.actorType(), Action: e.Action, Target: e.Target,
		Tenant: e.OrgID, Site: e.SiteID, Result: e.Result, Message: e.Message,
	}
}

// take reserves n numbers of a counter and returns the last one. Nobody else can take any until the
// transaction ends, so numbers become visible in order.
func take(ctx context.Context, tx *db.Tx, counter string, n int) (int64, error) {
	var last int64
	err := tx.Get(ctx, &last, "UPDATE counters SET value = value + ? WHERE name = ? RETURNING value", n, counter)
	return last, err
}

// newID returns a new ID that sorts by creation time (UUID version 7).
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// timePtr returns a pointer to t, or nil for the zero time.
func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// mustJSON encodes values that always can be encoded, such as maps and structs of plain values.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
