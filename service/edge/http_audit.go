package edge

import (
	"context"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/text"
)

// ListAudit lists audit entries, newest first.
func (a api) ListAudit(
	ctx context.Context, req edgeapi.ListAuditRequestObject,
) (edgeapi.ListAuditResponseObject, error) {
	q := req.Params
	f := audit.Filter{
		Site:    value(q.SiteId),
		Actor:   value(q.Actor),
		Action:  value(q.Action),
		Target:  value(q.Target),
		Result:  audit.Result(value(q.Result)),
		Without: value(q.WithoutAction),
		Text:    value(q.Q),
		From:    value(q.From),
		To:      value(q.To),
	}
	if caller := callerFrom(ctx); !caller.Global() {
		f.Tenant = &caller.OrgID
	}
	for field, given := range map[string]string{"actor": f.Actor, "action": f.Action, "target": f.Target, "q": f.Text} {
		if err := text.Check(field, given); err != nil {
			return nil, err
		}
	}
	find := func(before int64, limit int) ([]audit.Entry, int64, error) {
		f.Before, f.Limit = before, limit
		return a.s.audit.Find(ctx, a.s.db, f)
	}
	out, next, err := list.DownExamined(
		ctx, q.Limit, q.Cursor, 100, find, func(e audit.Entry) int64 { return e.Seq }, apiAuditEntry,
	)
	return edgeapi.ListAudit200JSONResponse{Body: out, Headers: edgeapi.ListAudit200ResponseHeaders{Link: next}}, err
}

func apiAuditEntry(e audit.Entry) edgeapi.AuditEntry {
	return edgeapi.AuditEntry{
		Id:        e.ID,
		Seq:       e.Seq,
		Time:      e.Time.Time,
		Actor:     e.Actor,
		ActorType: edgeapi.AuditEntryActorType(e.ActorType),
		Action:    e.Action,
		Target:    e.Target,
		SiteId:    e.Site,
		OrgId:     e.Tenant,
		Result:    edgeapi.AuditResult(e.Result),
		Message:   e.Message,
		Detail:    object(e.Detail),
		Hash:      e.Hash,
	}
}

// VerifyAudit verifies the hash chain of the audit log.
func (a api) VerifyAudit(
	ctx context.Context, _ edgeapi.VerifyAuditRequestObject,
) (edgeapi.VerifyAuditResponseObject, error) {
	v, err := a.s.audit.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	if !v.OK {
		a.s.nudgeAlerts()
	}
	points := v.Checkpoints
	return edgeapi.VerifyAudit200JSONResponse{
		Ok:       v.OK,
		Entries:  v.Entries,
		Verified: v.Verified,
		Reason:   v.Reason,
		Genesis:  v.Genesis,
		HeadSeq:  v.HeadSeq,
		HeadHash: v.HeadHash,
		Segments: list.Each(v.Segments, func(s audit.SegmentState) edgeapi.AuditSegment {
			return edgeapi.AuditSegment{
				Number:   s.Number,
				BegunAt:  s.Time,
				First:    s.First,
				Last:     s.Last,
				Verified: s.Verified,
			}
		}),
		Breaks: list.Each(v.Breaks, func(b audit.Break) edgeapi.AuditBreak {
			return edgeapi.AuditBreak{
				Segment:        b.Segment,
				Seq:            b.Seq,
				Reason:         b.Reason,
				Recorded:       b.Recorded,
				FoundAt:        b.FoundAt,
				AcknowledgedAt: timePtr(b.AcknowledgedAt),
				AcknowledgedBy: b.AcknowledgedBy,
				Note:           b.Note,
			}
		}),
		Checkpoints: edgeapi.AuditCheckpoints{
			Count:     points.Count,
			Since:     timePtr(points.First.Time),
			NewestAt:  timePtr(points.Newest.Time),
			NewestSeq: points.Newest.Seq,
			Cut:       points.Cut,
		},
	}, nil
}

// AcknowledgeAudit acknowledges known breaks, which ends their alarm.
func (a api) AcknowledgeAudit(
	ctx context.Context, req edgeapi.AcknowledgeAuditRequestObject,
) (edgeapi.AcknowledgeAuditResponseObject, error) {
	return edgeapi.AcknowledgeAudit204Response{}, a.s.AcknowledgeAudit(ctx, req.Body.Through, req.Body.Note)
}
