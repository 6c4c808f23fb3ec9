package edge

import (
	"context"
	"strconv"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// GetOverview shows the caller's fleet at a glance.
func (a api) GetOverview(ctx context.Context, _ edgeapi.GetOverviewRequestObject) (edgeapi.GetOverviewResponseObject, error) {
	o, err := a.s.Overview(ctx)
	if err != nil {
		return nil, err
	}
	n := o.Counts
	return edgeapi.GetOverview200JSONResponse{GeneratedAt: o.GeneratedAt, Orgs: n[tally.Org]["active"], Sites: n[tally.Site], Devices: n[tally.Device]["registered"],
		Ota: n[tally.OTA], Campaigns: n[tally.Campaign], Deployments: n[tally.Deployment], Routes: n[tally.Route], Deadletters: n[tally.DeadLetter]["dead"],
		Alerts: n[tally.Alert], PolicyPacks: n[tally.PolicyPack], DeliveriesPending: n[tally.Delivery]["pending"],
		Rates: each(o.Rates, func(m RateMinute) edgeapi.RateMinute {
			return edgeapi.RateMinute{Minute: m.Minute.Time, Events: m.Events, Delivered: m.Delivered, FailedAttempts: m.FailedAttempts, DeadLettered: m.DeadLettered}
		})}, nil
}

// ListAlerts lists alerts, newest first.
func (a api) ListAlerts(ctx context.Context, req edgeapi.ListAlertsRequestObject) (edgeapi.ListAlertsResponseObject, error) {
	p, err := page(req.Params.Limit, req.Params.Cursor)
	if err != nil {
		return nil, err
	}
	status := edgeapi.ListAlertsParamsStatusFiring
	set(&status, req.Params.Status)
	alerts, err := a.s.Alerts(ctx, AlertFilter{SiteID: value(req.Params.SiteId), Status: string(status), After: p.After, Limit: p.Limit + 1})
	if err != nil {
		return nil, err
	}
	return edgeapi.ListAlerts200JSONResponse(each(trim(ctx, alerts, p, alertCursor), func(al Alert) edgeapi.Alert {
		return edgeapi.Alert{Id: al.ID, Kind: edgeapi.AlertKind(al.Kind), Severity: edgeapi.AlertSeverity(al.Severity), Status: edgeapi.AlertStatus(al.Status), OrgId: al.OrgID, SiteId: al.SiteID,
			Subject: al.Subject, Message: al.Message, FirstSeenAt: al.FirstSeenAt.Time, LastSeenAt: al.LastSeenAt.Time, ResolvedAt: al.ResolvedAt.Ptr()}
	})), nil
}

func apiActivity(l Activity) edgeapi.ActivityEntry {
	return edgeapi.ActivityEntry{Id: l.ID(), Time: l.Time.Time, Level: edgeapi.ActivityLevel(l.Level), Source: l.Source, Chapter: l.Chapter, SiteId: l.SiteID, Site: l.Site,
		Action: l.Action, Message: l.Message, Detail: object(l.Detail)}
}

// ListActivity lists activity lines, newest first.
func (a api) ListActivity(ctx context.Context, req edgeapi.ListActivityRequestObject) (edgeapi.ListActivityResponseObject, error) {
	p, err := httpserve.ParsePage(req.Params.Limit, req.Params.Cursor, 250, 1000)
	if err != nil {
		return nil, err
	}
	before, err := beforeSeq(p)
	if err != nil {
		return nil, err
	}
	lines, err := a.s.ListActivity(ctx, value(req.Params.SiteId), before, p.Limit+1)
	if err != nil {
		return nil, err
	}
	return edgeapi.ListActivity200JSONResponse(each(trim(ctx, lines, p, Activity.ID), apiActivity)), nil
}

// AddActivity stores activity lines.
func (a api) AddActivity(ctx context.Context, req edgeapi.AddActivityRequestObject) (edgeapi.AddActivityResponseObject, error) {
	lines, err := a.s.AddActivity(ctx, each(req.Body.Entries, func(l edgeapi.ActivityLine) Activity {
		return Activity{Time: db.At(value(l.Time)), Level: string(value(l.Level)), Source: value(l.Source), Chapter: value(l.Chapter), SiteID: value(l.SiteId), Site: value(l.Site),
			Action: value(l.Action), Message: l.Message, Detail: string(value(l.Detail))}
	}))
	if err != nil {
		return nil, err
	}
	return edgeapi.AddActivity200JSONResponse(each(lines, apiActivity)), nil
}

// GetStream sends activity as it happens.
func (a api) GetStream(ctx context.Context, _ edgeapi.GetStreamRequestObject) (edgeapi.GetStreamResponseObject, error) {
	return written{}, a.s.Stream(ctx)
}

// ListAudit lists audit entries, newest first.
func (a api) ListAudit(ctx context.Context, req edgeapi.ListAuditRequestObject) (edgeapi.ListAuditResponseObject, error) {
	p, err := page(req.Params.Limit, req.Params.Cursor)
	if err != nil {
		return nil, err
	}
	before, err := beforeSeq(p)
	if err != nil {
		return nil, err
	}
	f := audit.Filter{Site: value(req.Params.SiteId), Actor: value(req.Params.Actor), Action: value(req.Params.Action), From: value(req.Params.From), To: value(req.Params.To), Before: before, Limit: p.Limit + 1}
	if caller := callerFrom(ctx); !caller.Global() {
		f.Tenant = &caller.OrgID
	}
	entries, err := a.s.audit.List(ctx, a.s.db, f)
	if err != nil {
		return nil, err
	}
	return edgeapi.ListAudit200JSONResponse(each(trim(ctx, entries, p, func(e audit.Entry) string { return strconv.FormatInt(e.Seq, 10) }), func(e audit.Entry) edgeapi.AuditEntry {
		return edgeapi.AuditEntry{Id: e.ID, Seq: e.Seq, Time: e.Time.Time, Actor: e.Actor, ActorType: edgeapi.AuditEntryActorType(e.ActorType), Action: e.Action, Target: e.Target,
			SiteId: e.Site, OrgId: e.Tenant, Result: edgeapi.AuditEntryResult(e.Result), Message: e.Message, Detail: object(e.Detail), Hash: e.Hash}
	})), nil
}

// VerifyAudit recomputes the audit log's chain.
func (a api) VerifyAudit(ctx context.Context, _ edgeapi.VerifyAuditRequestObject) (edgeapi.VerifyAuditResponseObject, error) {
	v, err := a.s.audit.Verify(ctx, a.s.db)
	if err != nil {
		return nil, err
	}
	return edgeapi.VerifyAudit200JSONResponse{Ok: v.OK, Entries: v.Entries, Verified: v.Verified, Reason: v.Reason, HeadSeq: v.HeadSeq, HeadHash: v.HeadHash}, nil
}
