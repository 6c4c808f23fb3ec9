package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
)

// pullEvery is the time between two pulls of the desired state if it has not changed.
const pullEvery = 10 * time.Minute

// syncDevices sends registrations and patches and pulls the desired state until ctx ends. It is one
// loop, so that a device that has just been registered is not mistaken for one that was removed.
func (a *Agent) syncDevices(ctx context.Context) {
	retry := a.newBackoff()
	var pulled struct {
		session  *session
		revision int64
		again    time.Time
	}
	for {
		s, err := a.link.wait(ctx, a.random)
		if err != nil {
			return
		}
		// The pulled state is at least as new as the revision that was known before.
		revision := a.link.wantedRevision()
		var registered bool
		registered, err = a.sendDevices(ctx, s)
		if err == nil || isDevices(err) {
			if registered || pulled.session != s || pulled.revision != revision || !a.now().Before(pulled.again) {
				pullErr := a.pull(ctx, s)
				if pullErr == nil {
					pulled.session, pulled.revision = s, revision
					pulled.again = a.now().Add(time.Duration(float64(pullEvery) * (0.9 + 0.2*a.random())))
				} else {
					err = fmt.Errorf("pull the desired state: %w", pullErr)
				}
			}
		}
		if err == nil || isDevices(err) {
			err = cmp.Or(a.tellDropped(ctx, s), err)
		}
		note(&a.syncError, err)
		if err != nil {
			var early <-chan struct{}
			if isDevices(err) {
				early = a.twins.Changed() // other devices need not wait
			}
			if !a.mishap(ctx, err, &retry, early) {
				return
			}
			continue
		}
		retry.Reset()
		timer := time.NewTimer(max(0, pulled.again.Sub(a.now())))
		select {
		case <-a.twins.Changed():
		case <-a.link.advanced:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// deviceError is the failure of a request about one device. Other devices may have better luck.
type deviceError struct {
	device, purpose string
	err             error
}

func (e *deviceError) Error() string {
	return e.purpose + " of device " + e.device + ": " + e.err.Error()
}
func (e *deviceError) Unwrap() error { return e.err }

// maxFailing is how many devices may fail in one pass before the failure counts as general.
const maxFailing = 32

// ofDevice names the device and the purpose in the error of a request about it. It returns a
// deviceError if only that device may be affected: the control plane failed, or its answer is not
// believed.
func ofDevice(device, purpose string, err error) error {
	var refused *answer.Refusal
	var invalid *answer.Invalid
	if errors.As(err, &invalid) || errors.As(err, &refused) && refused.Status == http.StatusInternalServerError {
		return &deviceError{device, purpose, err}
	}
	return fmt.Errorf("%s of device %s: %w", purpose, device, err)
}

func isDevices(err error) bool {
	var one *deviceError
	return errors.As(err, &one)
}

// note keeps the text of an error for the status, or "" for nil.
func note(at *atomic.Pointer[string], err error) {
	text := ""
	if err != nil {
		text = explain(err)
	}
	at.Store(&text)
}

// sendDevices sends the registrations and patches of local programs. A deviceError means that the
// other devices were sent.
func (a *Agent) sendDevices(ctx context.Context, s *session) (registered bool, err error) {
	var first error
	failing := 0
	skip := func(err error) bool {
		first = cmp.Or(first, err)
		failing++
		return isDevices(err) && failing < maxFailing
	}
	for after := ""; ; {
		p, err := a.twins.NextRegistration(ctx, after)
		if err != nil {
			return registered, err
		}
		if p == nil {
			break
		}
		after = p.DeviceID
		site := s.site()
		body := edgeapi.DeviceInput{
			DeviceId:        p.DeviceID,
			SiteId:          &site,
			Name:            &p.Name,
			Model:           &p.Model,
			FirmwareVersion: &p.FirmwareVersion,
		}
		if p.Labels != nil {
			labels := edgeapi.Labels(p.Labels)
			body.Labels = &labels
		}
		refused, err := a.tell(ctx, func(ctx context.Context) error {
			d, err := answer.Decode[edgeapi.Device](answer.Read(s.api.RegisterDevice(ctx, body)))
			if err == nil && d.DeviceId != p.DeviceID {
				err = answer.NewInvalid("it is about device %.128q, not %s", d.DeviceId, p.DeviceID)
			}
			return err
		})
		if err != nil {
			if err = ofDevice(p.DeviceID, "registration", err); skip(err) {
				continue
			}
			return registered, err
		}
		if refused != "" {
			a.log.Warn("the control plane refused a device", "device", p.DeviceID, "reason", refused)
		}
		if err := a.twins.Registered(ctx, p, refused); err != nil {
			return registered, err
		}
		registered = true
	}
	for after := ""; ; {
		p, err := a.twins.NextPatch(ctx, after)
		if err != nil || p == nil {
			return registered, cmp.Or(err, first)
		}
		after = p.DeviceID
		var twin edgeapi.Twin
		site := s.site()
		refused, err := a.tell(ctx, func(ctx context.Context) (err error) {
			twin, err = answer.Decode[edgeapi.Twin](
				answer.Read(
					s.api.ReportTwin(
						ctx, p.DeviceID, edgeapi.ReportedInput{SiteId: &site, Reported: json.RawMessage(p.Patch)},
					),
				),
			)
			if err == nil && twin.DeviceId != p.DeviceID {
				err = answer.NewInvalid("it is about device %.128q, not %s", twin.DeviceId, p.DeviceID)
			}
			if err == nil {
				err = checkTwin(twin)
			}
			return err
		})
		if err != nil {
			if err = ofDevice(p.DeviceID, "reported state", err); skip(err) {
				continue
			}
			return registered, err
		}
		if refused == "" {
			err = a.twins.Patched(ctx, p, twin.Reported, twin.ReportedVersion)
		} else {
			a.log.Warn("the control plane refused a reported state", "device", p.DeviceID, "reason", refused)
			err = a.twins.Refused(ctx, p, refused)
		}
		if err != nil {
			return registered, err
		}
	}
}

// tell makes one request. If the refusal is final, tell returns its text instead of an error.
func (a *Agent) tell(ctx context.Context, request func(context.Context) error) (refused string, err error) {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = request(limited)
	var r *answer.Refusal
	if errors.As(err, &r) && r.Final() {
		return r.Error(), nil
	}
	return "", err
}

// tellDropped adds an entry to the fleet's activity log if events were dropped.
func (a *Agent) tellDropped(ctx context.Context, s *session) error {
	n, err := a.outbox.Untold(ctx)
	if err != nil || n == 0 {
		return err
	}
	site, level, source, action := s.site(), edgeapi.ActivityLevelWarn, "agent", "outbox.dropped"
	line := edgeapi.ActivityLine{
		SiteId: &site,
		Level:  &level,
		Source: &source,
		Action: &action,
		Message: fmt.Sprintf(
			"the agent of %s (version %s) dropped %d events, the oldest, because its outbox was full", a.cfg.Name,
			telemetry.BuildInfo().Version, n,
		),
	}
	_, err = a.tell(ctx, func(ctx context.Context) error {
		stored, err := answer.Decode[[]edgeapi.ActivityEntry](
			answer.Read(s.api.AddActivity(ctx, edgeapi.ActivityInput{Entries: []edgeapi.ActivityLine{line}})),
		)
		if err == nil && len(stored) != 1 {
			err = answer.NewInvalid("it has %d lines of activity, not 1", len(stored))
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.outbox.Told(ctx, n)
}
