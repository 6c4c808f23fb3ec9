package simulator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

const (
	// maxBuffered limits the events that a site buffers while its link is down.
	maxBuffered = 50
	maxBackoff  = 5 * time.Minute
)

// retries defines the delays between attempts of a site without a link.
var retries = backoff.Schedule{Base: time.Second, Max: maxBackoff}

// site is one simulated site. It is used by one worker at a time.
type site struct {
	fleet   *Fleet
	name    string
	labels  edgeapi.Labels
	devices []device
	rnd     *mathrand.Rand

	id, token string // empty until enrolled
	due       time.Time

	heartbeat time.Duration
	beatAt    time.Time
	eventAt   time.Time
	awayUntil time.Time // the link is down until then
	online    bool      // the last request got a response
	failures  int       // consecutive

	revision int64 // last desired_revision that was pulled; -1: none
	made     int   // events so far, for their ids
	buffer   []edgeapi.EventInput
}

func (s *site) chaos() chaos { return chaos(s.fleet.cfg.Chaos) }

// act executes the due actions, and sets when the site is due again. It returns false if the site
// no longer exists.
func (s *site) act(ctx context.Context, now time.Time) bool {
	err := s.step(ctx, now)
	now = s.fleet.cfg.Now()
	s.setOnline(err == nil && s.token != "" && !s.awayUntil.After(now))
	var away *unanswered
	switch {
	case err == nil:
		s.failures = 0
		s.due = s.nextDue()
	case ctx.Err() != nil:
		return false
	case errors.Is(err, errRevoked):
		s.fleet.count.revoked.Add(1)
		return false
	case errors.As(err, &away):
		if !errors.Is(err, errChaos) {
			s.fleet.warn(s, "no answer; trying again", err)
		}
		s.failures++
		s.due = now.Add(max(retries.Delay(s.failures, s.rnd.Float64), away.after))
	default:
		s.fleet.failed(s, err)
		s.failures++
		s.due = now.Add(retries.Delay(s.failures, s.rnd.Float64))
	}
	return true
}

func (s *site) setOnline(online bool) {
	switch {
	case online && !s.online:
		s.fleet.count.online.Add(1)
	case !online && s.online:
		s.fleet.count.online.Add(-1)
	}
	s.online = online
}

func (s *site) step(ctx context.Context, now time.Time) error {
	if s.token == "" {
		if err := s.enroll(ctx); err != nil {
			return err
		}
		// The heartbeats of sites that enrolled together must not stay synchronized.
		now = s.fleet.cfg.Now()
		s.beatAt, s.eventAt = now.Add(s.spread(s.heartbeat)), now.Add(s.spread(s.fleet.cfg.EventInterval))
	}
	for i := range s.devices {
		if !s.devices[i].known {
			if err := s.register(ctx, &s.devices[i]); err != nil {
				return err
			}
		}
	}
	s.makeEvents(now)
	if s.awayUntil.After(now) {
		return nil
	}
	if !s.beatAt.After(now) {
		if cut := s.chaos().outage(s.rnd, s.heartbeat); cut > 0 {
			s.fleet.count.outages.Add(1)
			s.awayUntil, s.beatAt = now.Add(cut), now.Add(cut)
			return nil
		}
		if err := s.beat(ctx, now); err != nil {
			return err
		}
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	for i := range s.devices {
		if err := s.devices[i].act(ctx, s, now); err != nil {
			return err
		}
	}
	return nil
}

// nextDue returns the earliest time at which the site or one of its devices is due.
func (s *site) nextDue() time.Time {
	next := s.beatAt
	if s.fleet.cfg.EventInterval > 0 && s.eventAt.Before(next) {
		next = s.eventAt
	}
	if s.awayUntil.After(s.fleet.cfg.Now()) {
		return next // the devices' reports wait for the link
	}
	for i := range s.devices {
		if d := s.devices[i].due(); !d.IsZero() && d.Before(next) {
			next = d
		}
	}
	return next
}

// spread returns a random part of a period.
func (s *site) spread(d time.Duration) time.Duration {
	return time.Duration(s.rnd.Float64() * float64(d))
}

// enroll creates a key and a certificate request, like an agent. The key is not kept: the simulator
// authenticates by token.
func (s *site) enroll(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(
		rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: s.name}}, key,
	)
	if err != nil {
		return err
	}
	csr := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	version := s.fleet.cfg.Version
	body := edgeapi.EnrollRequest{
		Name:            s.name,
		EnrollmentToken: s.fleet.cfg.EnrollmentToken,
		Version:         &version,
		Labels:          &s.labels,
		CsrPem:          &csr,
	}
	if s.fleet.noPKI.Load() {
		body.CsrPem = nil
	}
	e, _, err := do[edgeapi.Enrollment](
		s.fleet, kindEnroll, func() (*http.Response, error) { return s.fleet.cfg.Client.Enroll(ctx, body) },
	)
	if err != nil {
		return err
	}
	s.id, s.token = e.SiteId, e.AgentToken
	s.heartbeat = time.Duration(e.HeartbeatIntervalSeconds) * time.Second
	s.fleet.count.enrolled.Add(1)
	return nil
}

func (s *site) register(ctx context.Context, d *device) error {
	labels := edgeapi.Labels{"line": string(rune('a' + s.rnd.IntN(4))), "simulated": "true"}
	body := edgeapi.DeviceInput{DeviceId: d.id, Model: &d.model, FirmwareVersion: &d.firmware, Labels: &labels}
	_, _, err := do[edgeapi.Device](s.fleet, kindRegister, func() (*http.Response, error) {
		return s.fleet.cfg.Client.RegisterDevice(ctx, body, as(s.token))
	})
	if err != nil {
		return err
	}
	if err := d.report(ctx, s, []byte(`{"firmware":"`+d.firmware+`"}`)); err != nil {
		return err
	}
	d.known = true
	s.fleet.count.registered.Add(1)
	return nil
}

// beat sends a heartbeat, and pulls if the response reports changes.
func (s *site) beat(ctx context.Context, now time.Time) error {
	reply, _, err := do[edgeapi.HeartbeatReply](s.fleet, kindHeartbeat, func() (*http.Response, error) {
		return s.fleet.cfg.Client.Heartbeat(ctx, edgeapi.HeartbeatInput{}, as(s.token))
	})
	if err != nil {
		return err
	}
	s.heartbeat = time.Duration(reply.HeartbeatIntervalSeconds) * time.Second
	if s.fleet.cfg.Heartbeat > 0 {
		s.heartbeat = s.fleet.cfg.Heartbeat
	}
	s.beatAt = now.Add(time.Duration(float64(s.heartbeat) * (0.9 + 0.2*s.rnd.Float64())))
	if reply.DesiredRevision == s.revision {
		return nil
	}
	if err := s.pull(ctx, now); err != nil {
		return err
	}
	s.revision = reply.DesiredRevision
	return nil
}

// pull reads the desired state of the devices and of the deployments.
func (s *site) pull(ctx context.Context, now time.Time) error {
	byID := make(map[string]*device, len(s.devices))
	for i := range s.devices {
		byID[s.devices[i].id] = &s.devices[i]
	}
	limit := 1000
	params := &edgeapi.ListAgentTwinsParams{Limit: &limit}
	for {
		page, header, err := do[[]edgeapi.Twin](s.fleet, kindPull, func() (*http.Response, error) {
			return s.fleet.cfg.Client.ListAgentTwins(ctx, params, as(s.token))
		})
		if err != nil {
			return err
		}
		for _, twin := range page {
			if d := byID[twin.DeviceId]; d != nil {
				if err := d.pulled(s, twin, now); err != nil {
					return err
				}
			}
		}
		cursor := rest.NextCursor(header)
		if cursor == "" {
			break
		}
		params.Cursor = &cursor
	}
	return s.deploy(ctx)
}

// deploy reports every deployment as running, except those that must not run or that fail.
func (s *site) deploy(ctx context.Context) error {
	deployments, _, err := do[[]edgeapi.AgentDeployment](s.fleet, kindPull, func() (*http.Response, error) {
		return s.fleet.cfg.Client.ListAgentDeployments(ctx, &edgeapi.ListAgentDeploymentsParams{}, as(s.token))
	})
	if err != nil {
		return err
	}
	for _, d := range deployments {
		if d.ObservedRevision == d.Revision && (d.Status == "denied") != d.Allowed {
			continue
		}
		report := edgeapi.DeploymentReport{SiteId: s.id, Status: "running", ObservedRevision: &d.Revision}
		message := ""
		switch {
		case !d.Allowed:
			report.Status, message = "denied", "no policy pack allows the image"
		case d.DesiredState == "stopped":
			report.Status = "stopped"
		case s.rnd.Float64() < s.fleet.cfg.FailRate:
			report.Status, message = "failed", "the container exited with status 1"
		}
		report.Message = &message
		_, _, err := do[edgeapi.Deployment](s.fleet, kindDeployment, func() (*http.Response, error) {
			return s.fleet.cfg.Client.ReportDeploymentStatus(ctx, d.Id, report, as(s.token))
		})
		if gone := (*refused)(nil); err != nil && !errors.As(err, &gone) {
			return err
		}
	}
	return nil
}

// makeEvents creates events at the configured interval. A site without a link buffers them, up to a
// limit.
func (s *site) makeEvents(now time.Time) {
	interval := s.fleet.cfg.EventInterval
	if interval <= 0 || len(s.devices) == 0 {
		return
	}
	for !s.eventAt.After(now) {
		s.eventAt = s.eventAt.Add(interval)
		if s.eventAt.Before(now) { // more than one interval late: skip the missed events
			s.eventAt = now.Add(interval)
		}
		s.fleet.count.eventsMade.Add(1)
		if len(s.buffer) == maxBuffered {
			s.fleet.count.eventsLost.Add(1)
			continue
		}
		s.buffer = append(s.buffer, s.measure(now))
	}
}

// measure returns an event of one device: a value that follows the time of day, with some noise,
// and an occasional alarm.
func (s *site) measure(now time.Time) edgeapi.EventInput {
	d := &s.devices[s.rnd.IntN(len(s.devices))]
	s.made++
	id := fmt.Sprintf("%s-%d", s.id, s.made)
	day := float64(now.Unix()%86400) / 86400 * 2 * math.Pi
	celsius := 60 + 15*math.Sin(day) + 3*s.rnd.NormFloat64()
	topic := "telemetry.temperature"
	if celsius > 80 {
		topic = "alarm.overheat"
	}
	payload, err := json.Marshal(map[string]any{"device": d.id, "celsius": math.Round(celsius*10) / 10, "seq": s.made})
	if err != nil {
		panic(err) // a map of strings and numbers
	}
	at := now.UTC()
	return edgeapi.EventInput{EventId: &id, SiteId: s.id, Topic: topic, Payload: payload, EventTime: &at}
}

// flush sends the buffered events, in order.
func (s *site) flush(ctx context.Context) error {
	if len(s.buffer) == 0 {
		return nil
	}
	send := func() ([]edgeapi.EventReceipt, error) {
		receipts, _, err := do[[]edgeapi.EventReceipt](s.fleet, kindEvents, func() (*http.Response, error) {
			return s.fleet.cfg.Client.IngestEvents(ctx, edgeapi.EventBatch{Events: s.buffer}, as(s.token))
		})
		for _, r := range receipts {
			if r.Duplicate {
				s.fleet.count.repeated.Add(1)
			}
		}
		return receipts, err
	}
	receipts, err := send()
	if err != nil {
		return err
	}
	if s.chaos().happens(s.rnd, lostRate) {
		return &unanswered{cause: errChaos}
	}
	if s.chaos().happens(s.rnd, repeatRate) {
		if _, err := send(); err != nil {
			return err
		}
	}
	s.fleet.count.eventsSent.Add(int64(len(receipts)))
	s.buffer = s.buffer[:0]
	return nil
}
