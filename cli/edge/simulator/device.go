package simulator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/api/edge"
)

// device is one device of a site.
type device struct {
	id, model string
	firmware  string
	known     bool // registered with the server

	desired []byte    // last applied desired state, without the update; nil: none
	wanted  []byte    // to be applied at applyAt; nil: none
	applyAt time.Time // when wanted is applied
	request string    // the last update that it received
	version string    // of that update
	plan    []step    // its remaining steps
	planDue time.Time
}

// due returns when the device has to act next; zero: never.
func (d *device) due() time.Time {
	next := time.Time{}
	if len(d.plan) > 0 {
		next = d.planDue
	}
	if d.wanted != nil && (next.IsZero() || d.applyAt.Before(next)) {
		next = d.applyAt
	}
	return next
}

// pulled accepts a device's desired state from the control plane.
func (d *device) pulled(s *site, twin edgeapi.Twin, now time.Time) error {
	var desired, reported map[string]json.RawMessage
	if err := json.Unmarshal(twin.Desired, &desired); err != nil {
		return err
	}
	if err := json.Unmarshal(twin.Reported, &reported); err != nil {
		return err
	}
	if raw, ok := desired["ota"]; ok {
		var request edgeapi.OTARequest
		if err := json.Unmarshal(raw, &request); err != nil {
			return err
		}
		if request.RequestId != d.request {
			d.request, d.version = request.RequestId, request.Version
			d.plan = planUpdate(s.rnd, s.fleet.cfg.FailRate, s.fleet.cfg.OTADuration)
			if s.chaos().happens(s.rnd, hangRate) {
				d.plan = d.plan[:1] // it hangs after the first report
			}
			d.planDue = now.Add(d.plan[0].after)
			s.fleet.count.otaStarted.Add(1)
		}
	}
	delete(desired, "ota")
	settings, err := json.Marshal(desired) // the keys of a map are encoded in sorted order
	if err != nil {
		return err
	}
	if len(desired) > 0 && !bytes.Equal(settings, d.desired) && !bytes.Equal(settings, d.wanted) {
		d.wanted, d.applyAt = settings, now.Add(time.Duration((1+4*s.rnd.Float64())*float64(time.Second)))
	}
	return nil
}

// act executes the device's due actions.
func (d *device) act(ctx context.Context, s *site, now time.Time) error {
	if d.wanted != nil && !d.applyAt.After(now) {
		if err := d.report(ctx, s, d.wanted); err != nil {
			return err
		}
		d.desired, d.wanted = d.wanted, nil
	}
	for len(d.plan) > 0 && !d.planDue.After(now) {
		rest := d.plan[1:]
		if err := d.update(ctx, s, d.plan[0]); err != nil {
			return err
		}
		if d.plan == nil {
			return nil // the update was given up
		}
		if d.plan = rest; len(rest) > 0 {
			d.planDue = now.Add(rest[0].after)
		}
	}
	return nil
}

// update reports one step of the update.
func (d *device) update(ctx context.Context, s *site, next step) error {
	report := edgeapi.OTAReport{SiteId: s.id}
	report.Status.State, report.Status.Progress, report.Status.RequestId = next.state, &next.progress, &d.request
	if next.message != "" {
		report.Status.Message = &next.message
	}
	_, _, err := do[edgeapi.OTA](s.fleet, kindOTA, func() (*http.Response, error) {
		return s.fleet.cfg.Client.ReportOTAStatus(ctx, d.id, report, as(s.token))
	})
	if gone := (*refused)(nil); errors.As(err, &gone) {
		d.plan = nil // superseded, timed out or deleted: the rest is obsolete
		return nil
	}
	if err != nil {
		return err
	}
	switch next.state {
	case "succeeded":
		s.fleet.count.otaSucceeded.Add(1)
		d.firmware = d.version
		patch, err := json.Marshal(map[string]string{"firmware": d.firmware})
		if err != nil {
			return err
		}
		return d.report(ctx, s, patch)
	case "failed", "rejected", "rolled_back":
		s.fleet.count.otaFailed.Add(1)
	}
	return nil
}

// report merges a patch into the reported state. The server refuses it for a deleted device; that
// is not retried.
func (d *device) report(ctx context.Context, s *site, patch []byte) error {
	_, _, err := do[edgeapi.Twin](s.fleet, kindTwin, func() (*http.Response, error) {
		return s.fleet.cfg.Client.ReportTwin(ctx, d.id, edgeapi.ReportedInput{Reported: patch}, as(s.token))
	})
	if gone := (*refused)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}
