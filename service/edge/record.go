package edge

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
)

// entry is what a change tells the audit log; the caller comes from the context.
type entry struct {
	Action, Target, SiteID, OrgID, Message string
	Result                                 audit.Result
	Detail                                 any
}

// record writes an audit entry in the transaction of the change it reports.
func (s *Service) record(ctx context.Context, tx *db.Tx, e entry) error {
	return s.audit.Append(ctx, tx, e.of(callerFrom(ctx)), e.Detail)
}

// deny writes an audit entry of an attempt that was denied, unless there were very many.
func (s *Service) deny(ctx context.Context, address string, e entry) error {
	return s.audit.Deny(ctx, address, e.of(callerFrom(ctx)), e.Detail)
}

// AcknowledgeAudit records that the caller knows of the audit log's breaks up to an entry.
func (s *Service) AcknowledgeAudit(ctx context.Context, through int64, note string) error {
	if err := checkLine("note", note); err != nil {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		tx.OnCommit(s.nudgeAlerts)
		return s.audit.Acknowledge(ctx, tx, through, entry{Message: note}.of(callerFrom(ctx)))
	})
}

// of completes what the caller says of itself.
func (e entry) of(c Caller) audit.Entry {
	actor := c.Subject
	if c.Kind == KindNone {
		actor = "anonymous"
	}
	if e.OrgID == "" {
		e.OrgID = c.OrgID
	}
	if e.SiteID == "" {
		e.SiteID = c.SiteID
	}
	return audit.Entry{
		Actor: actor, ActorType: c.actorType(), Action: e.Action, Target: e.Target,
		Tenant: e.OrgID, Site: e.SiteID, Result: e.Result, Message: e.Message,
	}
}

// take hands out n numbers of a counter and returns the last. Until the
// transaction ends nobody else gets any, so numbers become visible in order.
func take(ctx context.Context, tx *db.Tx, counter string, n int) (int64, error) {
	var last int64
	err := tx.Get(ctx, &last, "UPDATE counters SET value = value + ? WHERE name = ? RETURNING value", n, counter)
	return last, err
}

// newID makes an id that sorts by the time it was made (UUID version 7).
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// timePtr is nil for the zero time.
func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// mustJSON encodes what always encodes: maps and structs of plain values.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
