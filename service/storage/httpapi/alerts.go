package httpapi

import (
	"context"
	"encoding/json"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/monitor"
)

func apiAlert(a alert.Alert) storageapi.Alert {
	state := storageapi.AlertStateOpen
	if a.Status == alert.Resolved {
		state = storageapi.AlertStateResolved
	}
	kind := monitor.Kinds[a.Kind]
	evidence := map[string]any{}
	_ = json.Unmarshal([]byte(monitor.Evidence(&a)), &evidence) // none rather than no alert
	return storageapi.Alert{
		Id: a.ID, Severity: storageapi.Severity(a.Severity), Source: a.Kind, ResourceType: kind.Resource,
		ResourceId: a.Subject, Title: kind.Title, Description: a.Message, Evidence: evidence, State: state,
		TenantId: a.OrgID, CreatedAt: a.FirstSeenAt.Time, ResolvedAt: a.ResolvedAt.Ptr(),
		AcknowledgedAt: a.AcknowledgedAt.Ptr(), AcknowledgedBy: a.AcknowledgedBy, SilencedUntil: a.SilencedUntil.Ptr(),
	}
}

// ListAlerts lists what needs attention.
func (a *API) ListAlerts(
	ctx context.Context, req storageapi.ListAlertsRequestObject,
) (storageapi.ListAlertsResponseObject, error) {
	f := alert.Filter{Severity: string(value(req.Params.Severity))}
	switch value(req.Params.State) {
	case storageapi.AlertStateOpen:
		f.Status = alert.Firing
	case storageapi.AlertStateResolved:
		f.Status = alert.Resolved
	}
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]alert.Alert, error) {
			f.After, f.Limit = after, limit
			return a.monitor.Alerts(ctx, f)
		},
		alert.Alert.Cursor, apiAlert)
	return storageapi.ListAlerts200JSONResponse{
		Body: out, Headers: storageapi.ListAlerts200ResponseHeaders{Link: link},
	}, err
}

// EvaluateAlerts checks all conditions.
func (a *API) EvaluateAlerts(
	ctx context.Context, _ storageapi.EvaluateAlertsRequestObject,
) (storageapi.EvaluateAlertsResponseObject, error) {
	e, err := a.monitor.Evaluate(ctx)
	return storageapi.EvaluateAlerts200JSONResponse{Evaluated: e.Conditions, OpenAlerts: e.Open}, err
}

// AcknowledgeAlert stores that the caller takes care of an alert.
func (a *API) AcknowledgeAlert(
	ctx context.Context, req storageapi.AcknowledgeAlertRequestObject,
) (storageapi.AcknowledgeAlertResponseObject, error) {
	found, err := a.monitor.Acknowledge(ctx, req.Id)
	return storageapi.AcknowledgeAlert200JSONResponse(apiAlert(found)), err
}

// usualSilence is how long an alert is silenced if nothing is said.
const usualSilence = 3600

// SilenceAlert has nobody told about an alert for a time.
func (a *API) SilenceAlert(
	ctx context.Context, req storageapi.SilenceAlertRequestObject,
) (storageapi.SilenceAlertResponseObject, error) {
	body := value(req.Body)
	length := time.Duration(orElse(body.Secs, usualSilence)) * time.Second
	found, err := a.monitor.Silence(ctx, req.Id, value(body.Reason), length)
	return storageapi.SilenceAlert200JSONResponse(apiAlert(found)), err
}

// ResolveAlert ends an alert.
func (a *API) ResolveAlert(
	ctx context.Context, req storageapi.ResolveAlertRequestObject,
) (storageapi.ResolveAlertResponseObject, error) {
	found, err := a.monitor.Resolve(ctx, req.Id)
	return storageapi.ResolveAlert200JSONResponse(apiAlert(found)), err
}
