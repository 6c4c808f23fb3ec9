package agent

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
	"github.com/mainstay-infra/mainstay/service/agent/ota"
)

// reportUpdates sends reports of updates, in order, until ctx ends.
func (a *Agent) reportUpdates(ctx context.Context) {
	retry := a.newBackoff()
	var failing []string // devices whose reports failed in this pass
	var failed error
	for {
		s, err := a.link.wait(ctx, a.random)
		if err != nil {
			return
		}
		report, err := a.updates.NextReport(ctx, failing...)
		if err == nil && report == nil && failed == nil {
			note(&a.reportError, nil)
			select {
			case <-a.updates.Reported():
				continue
			case <-ctx.Done():
				return
			}
		}
		if err == nil && report != nil {
			if err = a.reportUpdate(ctx, s, report); err == nil {
				if failed == nil {
					retry.Reset()
				}
				continue
			}
			err = ofDevice(report.DeviceID, "update report", err)
			failed, failing = cmp.Or(failed, err), append(failing, report.DeviceID)
			if isDevices(err) && len(failing) < maxFailing {
				continue // with the reports of other devices
			}
		}
		err = cmp.Or(err, failed)
		failed, failing = nil, nil
		note(&a.reportError, err)
		var early <-chan struct{}
		if isDevices(err) {
			early = a.updates.Reported() // other devices need not wait
		}
		if !a.mishap(ctx, err, &retry, early) {
			return
		}
	}
}

func (a *Agent) reportUpdate(ctx context.Context, s *session, r *ota.Report) error {
	body := edgeapi.OTAReport{SiteId: s.site()}
	body.Status.RequestId, body.Status.State, body.Status.Progress = &r.RequestID, edgeapi.OTAState(
		r.State,
	), &r.Progress
	if r.Message != "" {
		body.Status.Message = &r.Message
	}
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	told, err := answer.Decode[edgeapi.OTA](answer.Read(s.api.ReportOTAStatus(limited, r.DeviceID, body)))
	if err == nil && (told.DeviceId != r.DeviceID || told.Status.RequestId != r.RequestID) {
		err = answer.NewInvalid(
			"it is about request %.128q of device %.128q, not %s of %s", told.Status.RequestId, told.DeviceId,
			r.RequestID, r.DeviceID,
		)
	}
	var refused *answer.Refusal
	if errors.As(err, &refused) && refused.Final() {
		// Another request has replaced it, it has ended there, or the device was removed.
		a.log.Warn(
			"an update is not wanted any more", "device", r.DeviceID, "request", r.RequestID, "state",
			string(r.State), "reason", refused.Error(),
		)
		unwanted := refused.Status == http.StatusConflict || refused.Status == http.StatusNotFound
		return a.settle(ctx, func() error { return a.updates.Told(ctx, r, unwanted) })
	}
	if err != nil {
		return err
	}
	return a.settle(ctx, func() error { return a.updates.Told(ctx, r, false) })
}
