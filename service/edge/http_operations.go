package edge

import (
	"context"
	"net/http"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/feed"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// GetOverview returns counts and rates of the caller's fleet.
func (a api) GetOverview(
	ctx context.Context, _ edgeapi.GetOverviewRequestObject,
) (edgeapi.GetOverviewResponseObject, error) {
	o, err := a.s.Overview(ctx)
	if err != nil {
		return nil, err
	}
	n := o.Counts
	return edgeapi.GetOverview200JSONResponse{
		GeneratedAt:       o.GeneratedAt,
		Orgs:              n[tally.Org]["active"],
		Sites:             n[tally.Site],
		Devices:           n[tally.Device]["registered"],
		Ota:               n[tally.OTA],
		Campaigns:         n[tally.Campaign],
		Deployments:       n[tally.Deployment],
		Routes:            n[tally.Route],
		RoutesFailing:     o.Failing,
		Deadletters:       n[tally.DeadLetter]["dead"],
		Alerts:            n[tally.Alert],
		PolicyPacks:       n[tally.PolicyPack],
		DeliveriesPending: n[tally.Delivery]["pending"],
		Rates: list.Each(o.Rates, func(m HistoryStep) edgeapi.RateMinute {
			return edgeapi.RateMinute{
				Minute:         m.At.Time,
				Events:         m.Events,
				Delivered:      m.Delivered,
				FailedAttempts: m.FailedAttempts,
				DeadLettered:   m.DeadLettered,
			}
		}),
	}, nil
}

// The defaults of GetHistory.
const (
	usualHistory       = time.Hour
	usualHistoryPoints = 120
)

// GetHistory returns the counts of the caller's fleet or of one route over time.
func (a api) GetHistory(
	ctx context.Context, req edgeapi.GetHistoryRequestObject,
) (edgeapi.GetHistoryResponseObject, error) {
	q, now := req.Params, a.s.now()
	since, points := now.Add(-usualHistory), usualHistoryPoints
	set(&since, q.Since)
	set(&points, q.Points)
	w, err := series.NewWindow(since, now, points)
	if err != nil {
		return nil, err
	}
	var steps []HistoryStep
	if q.RouteId == nil {
		steps, err = a.s.History(ctx, w)
	} else {
		steps, err = a.s.RouteHistory(ctx, *q.RouteId, w)
	}
	if err != nil {
		return nil, err
	}
	return edgeapi.GetHistory200JSONResponse{
		Now:         now.UTC(),
		From:        w.From,
		To:          w.To,
		StepSeconds: int(w.Step.Seconds()),
		Points: list.Each(steps, func(step HistoryStep) edgeapi.HistoryPoint {
			p := edgeapi.HistoryPoint{
				At: step.At.Time, Delivered: step.Delivered, FailedAttempts: step.FailedAttempts, DeadLettered: step.DeadLettered,
			}
			if q.RouteId == nil {
				p.Events = &step.Events
			}
			return p
		}),
	}, nil
}

// ListAlerts lists alerts, newest first.
func (a api) ListAlerts(
	ctx context.Context, req edgeapi.ListAlertsRequestObject,
) (edgeapi.ListAlertsResponseObject, error) {
	q := req.Params
	status := edgeapi.ListAlertsParamsStatusFiring
	set(&status, q.Status)
	f := alert.Filter{
		SiteID:       value(q.SiteId),
		Subject:      value(q.Subject),
		Status:       alertStatus(string(status)),
		Kind:         string(value(q.Kind)),
		Severity:     string(value(q.Severity)),
		Silenced:     q.Silenced,
		Acknowledged: q.Acknowledged,
	}
	out, next, err := list.Rows(ctx, q.Limit, q.Cursor, 100, func(after string, limit int) ([]alert.Alert, error) {
		f.After, f.Limit = after, limit
		return a.s.Alerts(ctx, f)
	}, alert.Alert.Cursor, apiAlert)
	return edgeapi.ListAlerts200JSONResponse{Body: out, Headers: edgeapi.ListAlerts200ResponseHeaders{Link: next}}, err
}

// alertStatus returns the status to filter by, or "" for all.
func alertStatus(asked string) string {
	if asked == "all" {
		return ""
	}
	return asked
}

// ListAlertGroups counts alerts by kind, severity or site.
func (a api) ListAlertGroups(
	ctx context.Context, req edgeapi.ListAlertGroupsRequestObject,
) (edgeapi.ListAlertGroupsResponseObject, error) {
	q := req.Params
	by, status := edgeapi.ListAlertGroupsParamsByKind, edgeapi.ListAlertGroupsParamsStatusFiring
	set(&by, q.By)
	set(&status, q.Status)
	groups, err := a.s.AlertGroups(ctx, string(by), alert.Filter{
		SiteID: value(q.SiteId), Status: alertStatus(string(status)), Limit: list.MaxRows,
	})
	if err != nil {
		return nil, err
	}
	return edgeapi.ListAlertGroups200JSONResponse(list.Each(groups, func(g alert.Group) edgeapi.AlertGroup {
		return edgeapi.AlertGroup{
			Key:          g.Key,
			Count:        g.Count,
			Acknowledged: g.Acknowledged,
			Silenced:     g.Silenced,
			NewestAt:     g.NewestAt.Time,
		}
	})), nil
}

// AcknowledgeAlert records that the caller is handling an alert.
func (a api) AcknowledgeAlert(
	ctx context.Context, req edgeapi.AcknowledgeAlertRequestObject,
) (edgeapi.AcknowledgeAlertResponseObject, error) {
	al, err := a.s.AcknowledgeAlert(ctx, req.Id, value(req.Body.Note))
	return edgeapi.AcknowledgeAlert200JSONResponse(apiAlert(al)), err
}

// SilenceAlert suppresses notifications of an alert until the given time.
func (a api) SilenceAlert(
	ctx context.Context, req edgeapi.SilenceAlertRequestObject,
) (edgeapi.SilenceAlertResponseObject, error) {
	al, err := a.s.SilenceAlert(ctx, req.Id, req.Body.Reason, req.Body.Until)
	return edgeapi.SilenceAlert200JSONResponse(apiAlert(al)), err
}

// UnsilenceAlert ends the silence of an alert.
func (a api) UnsilenceAlert(
	ctx context.Context, req edgeapi.UnsilenceAlertRequestObject,
) (edgeapi.UnsilenceAlertResponseObject, error) {
	al, err := a.s.UnsilenceAlert(ctx, req.Id)
	return edgeapi.UnsilenceAlert200JSONResponse(apiAlert(al)), err
}

func apiAlert(al alert.Alert) edgeapi.Alert {
	return edgeapi.Alert{
		Id:              al.ID,
		Kind:            edgeapi.AlertKind(al.Kind),
		Severity:        edgeapi.AlertSeverity(al.Severity),
		Status:          edgeapi.AlertStatus(al.Status),
		OrgId:           al.OrgID,
		SiteId:          al.SiteID,
		Subject:         al.Subject,
		Message:         al.Message,
		FirstSeenAt:     al.FirstSeenAt.Time,
		LastSeenAt:      al.LastSeenAt.Time,
		ResolvedAt:      al.ResolvedAt.Ptr(),
		AcknowledgedAt:  al.AcknowledgedAt.Ptr(),
		AcknowledgedBy:  al.AcknowledgedBy,
		AcknowledgeNote: al.AcknowledgeNote,
		SilencedUntil:   al.SilencedUntil.Ptr(),
		SilencedBy:      al.SilencedBy,
		SilenceReason:   al.SilenceReason,
	}
}

func apiActivity(l Activity) edgeapi.ActivityEntry {
	return edgeapi.ActivityEntry{
		Id:      l.ID(),
		Time:    l.Time.Time,
		Level:   edgeapi.ActivityLevel(l.Level),
		Source:  l.Source,
		Chapter: l.Chapter,
		SiteId:  l.SiteID,
		Site:    l.Site,
		Action:  l.Action,
		Message: l.Message,
		Detail:  object(l.Detail),
	}
}

// ListActivity lists activity lines, newest first.
func (a api) ListActivity(
	ctx context.Context, req edgeapi.ListActivityRequestObject,
) (edgeapi.ListActivityResponseObject, error) {
	q := req.Params
	out, next, err := list.Down(ctx, q.Limit, q.Cursor, 250, func(before int64, limit int) ([]Activity, error) {
		return a.s.ListActivity(ctx, value(q.SiteId), before, limit)
	}, func(l Activity) int64 { return l.Seq }, apiActivity)
	return edgeapi.ListActivity200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListActivity200ResponseHeaders{Link: next},
	}, err
}

// AddActivity stores activity lines.
func (a api) AddActivity(
	ctx context.Context, req edgeapi.AddActivityRequestObject,
) (edgeapi.AddActivityResponseObject, error) {
	lines, err := a.s.AddActivity(ctx, list.Each(req.Body.Entries, func(l edgeapi.ActivityLine) Activity {
		return Activity{
			Time:    db.At(value(l.Time)),
			Level:   string(value(l.Level)),
			Source:  value(l.Source),
			Chapter: value(l.Chapter),
			SiteID:  value(l.SiteId),
			Site:    value(l.Site),
			Action:  value(l.Action),
			Message: l.Message,
			Detail:  string(value(l.Detail)),
		}
	}))
	if err != nil {
		return nil, err
	}
	return edgeapi.AddActivity200JSONResponse(list.Each(lines, apiActivity)), nil
}

// streamActivity streams activity lines to the client.
func (a api) streamActivity(w http.ResponseWriter, r *http.Request, caller Caller) error {
	f := feed.Feed{Newest: a.s.newestActivity, Bell: &a.s.activityBell, Poll: streamPoll}
	return f.Serve(w, r, func(ctx context.Context, after int64) ([]httpserve.Event, error) {
		lines, err := a.s.activityAfter(ctx, caller, after)
		return list.Each(lines, func(l Activity) httpserve.Event {
			return httpserve.Event{ID: l.Seq, Name: "activity", Data: apiActivity(l)}
		}), err
	})
}

// streamPoll is how often a stream polls for lines that another replica added. Lines of this
// replica wake it at once.
const streamPoll = time.Second
