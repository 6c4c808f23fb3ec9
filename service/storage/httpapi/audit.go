package httpapi

import (
	"context"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
)

// ListAudit lists the audit log.
func (a *API) ListAudit(
	ctx context.Context, req storageapi.ListAuditRequestObject,
) (storageapi.ListAuditResponseObject, error) {
	q := req.Params
	f := audit.Filter{
		Tenant: q.Tenant, Actor: value(q.Actor), Action: value(q.Action), Target: value(q.Target),
		Result: audit.Result(value(q.Result)), Text: value(q.Q), From: value(q.From), To: value(q.To),
	}
	if c := caller.From(ctx); !c.SeesAll() {
		f.Tenant = &c.Tenant
	}
	for field, given := range map[string]string{"actor": f.Actor, "action": f.Action, "target": f.Target, "q": f.Text} {
		if err := text.Check(field, given); err != nil {
			return nil, err
		}
	}
	find := func(before int64, limit int) ([]audit.Entry, int64, error) {
		f.Before, f.Limit = before, limit
		return a.store.AuditEntries(ctx, f)
	}
	out, link, err := list.DownExamined(
		ctx, q.Limit, q.Cursor, 100, find, func(e audit.Entry) int64 { return e.Seq }, apiEntry,
	)
	return storageapi.ListAudit200JSONResponse{
		Body: out, Headers: storageapi.ListAudit200ResponseHeaders{Link: link},
	}, err
}

func apiEntry(e audit.Entry) storageapi.AuditEntry {
	return storageapi.AuditEntry{
		Seq: e.Seq, Time: e.Time.Time, Actor: e.Actor, Action: e.Action, Target: e.Target, Tenant: e.Tenant,
		Result: string(e.Result), Message: e.Message,
	}
}

// VerifyAudit recomputes the audit log's chain.
func (a *API) VerifyAudit(
	ctx context.Context, _ storageapi.VerifyAuditRequestObject,
) (storageapi.VerifyAuditResponseObject, error) {
	v, err := a.store.InspectAudit(ctx)
	if err != nil {
		return nil, err
	}
	points := v.Checkpoints
	out := storageapi.VerifyAudit200JSONResponse{
		Ok: v.OK, Entries: v.Entries, Verified: v.Verified, Reason: v.Reason, Genesis: v.Genesis,
		HeadSeq: v.HeadSeq, HeadHash: v.HeadHash,
		Segments: []storageapi.AuditSegment{}, Breaks: []storageapi.AuditBreak{},
		Checkpoints: storageapi.AuditCheckpoints{
			Count: points.Count, Since: timeOrNil(points.First.Time), NewestAt: timeOrNil(points.Newest.Time),
			NewestSeq: points.Newest.Seq, Cut: points.Cut,
		},
	}
	for _, s := range v.Segments {
		out.Segments = append(out.Segments, storageapi.AuditSegment{
			Number: s.Number, BegunAt: s.Time, First: s.First, Last: s.Last, Verified: s.Verified,
		})
	}
	for _, b := range v.Breaks {
		out.Breaks = append(out.Breaks, storageapi.AuditBreak{
			Segment: b.Segment, Seq: b.Seq, Reason: b.Reason, Recorded: b.Recorded, FoundAt: b.FoundAt,
			AcknowledgedAt: timeOrNil(b.AcknowledgedAt), AcknowledgedBy: b.AcknowledgedBy, Note: b.Note,
		})
	}
	return out, nil
}

// AcknowledgeAudit silences the alarm for known breaks.
func (a *API) AcknowledgeAudit(
	ctx context.Context, req storageapi.AcknowledgeAuditRequestObject,
) (storageapi.AcknowledgeAuditResponseObject, error) {
	return storageapi.AcknowledgeAudit204Response{}, a.store.AcknowledgeAudit(ctx, req.Body.Through, req.Body.Note)
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
