package agent

import (
	"context"
	"fmt"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

// shownUpdates is the maximum number of updates in the status.
const shownUpdates = 100

// status collects the status of all parts.
func (a *Agent) status(ctx context.Context) (agentapi.Status, error) {
	s := agentapi.Status{Version: telemetry.BuildInfo().Version, Name: a.cfg.Name, Server: a.cfg.Server,
		Updates: []agentapi.Update{}, Deployments: []agentapi.Deployment{}, Alerts: []agentapi.Alert{}}
	if id := a.identity.get(); id != nil {
		s.SiteId, s.CertificateNotAfter = id.SiteID, timePtr(id.notAfter())
	}
	a.link.mu.Lock()
	s.Link = agentapi.Link{
		State:           agentapi.LinkState(a.link.state),
		Since:           a.link.since.UTC(),
		LastHeartbeatAt: timePtr(a.link.lastBeat),
		LastError:       a.link.lastErr,
	}
	if skew := a.link.skew; skew != nil {
		seconds := skew.Round(time.Millisecond).Seconds()
		s.ClockSkewSeconds = &seconds
	}
	a.link.mu.Unlock()

	stats, err := a.outbox.Stats(ctx)
	if err != nil {
		return s, err
	}
	s.Outbox = agentapi.Outbox{
		Events:   stats.Events,
		Bytes:    stats.Bytes,
		MaxBytes: stats.MaxBytes,
		WhenFull: agentapi.OutboxWhenFull(a.cfg.OutboxFull),
		OldestAt: timePtr(
			stats.Oldest,
		),
		Accepted:    stats.Accepted,
		Forwarded:   stats.Forwarded,
		Dropped:     stats.Dropped,
		Refused:     stats.Refused,
		SetAside:    stats.SetAside,
		Discarded:   stats.Discarded,
		LastRefused: make([]agentapi.RefusedEvent, len(stats.LastRefused)),
		LastError:   *a.forwardError.Load(),
	}
	for i, r := range stats.LastRefused {
		s.Outbox.LastRefused[i] = apiRefused(r)
	}
	if s.Twins.Devices, s.Twins.Pending, err = a.twins.Counts(ctx); err != nil {
		return s, err
	}
	updates, err := a.updates.List(ctx, "", shownUpdates)
	for _, u := range updates {
		s.Updates = append(
			s.Updates,
			agentapi.Update{DeviceId: u.DeviceID, RequestId: u.RequestID, Version: u.Version, State: string(u.Phase),
				Progress: u.Progress, Message: u.Message, UpdatedAt: u.UpdatedAt.Time},
		)
	}
	if err != nil {
		return s, err
	}
	deployments, err := a.workloads.Status(ctx)
	for _, d := range deployments {
		s.Deployments = append(
			s.Deployments,
			agentapi.Deployment{Id: d.ID, Name: d.Name, Status: d.Status, Message: d.Message},
		)
	}
	s.Alerts = a.alerts(s)
	return s, err
}

// alerts returns the problems that a person should look at.
func (a *Agent) alerts(s agentapi.Status) []agentapi.Alert {
	all := []agentapi.Alert{}
	add := func(code, format string, args ...any) {
		all = append(all, agentapi.Alert{Code: code, Message: fmt.Sprintf(format, args...)})
	}
	for _, path := range store.SetAside(a.cfg.Data) {
		add(
			"database_damaged",
			"A damaged database was set aside as %s, with events and states that were not sent yet. "+
				"Rescue what it holds, or remove it; see the runbook.",
			path,
		)
	}
	for _, path := range store.Missing(a.cfg.Data) {
		add(
			"database_missing",
			"The database was missing or empty at a start, and the agent made a new one. Events and states that were not "+
				"sent are lost. Remove %s when you have seen this.",
			path,
		)
	}
	if a.db.Tight() {
		add(
			"disk_full",
			"The disk of %s is full, so events are refused. What is stored is still sent. Make room: at least 10 MiB.",
			a.cfg.Data,
		)
	}
	if s.Link.State == agentapi.LinkStateRefused {
		add(
			"site_revoked",
			"The control plane has revoked this site: %s. To enroll a new one, start the agent with --enroll-again and an enrollment token.",
			s.Link.LastError,
		)
	}
	if s.Outbox.LastError != "" && s.Outbox.Events > 0 {
		add("not_forwarding", "Events are not passed on: %s", s.Outbox.LastError)
	}
	// Without a link, that is the reason, and nothing is late unless something waits.
	online := s.Link.State == agentapi.LinkStateOnline
	if why := *a.syncError.Load(); why != "" && (online || s.Twins.Pending > 0) {
		add("devices_not_synced", "Devices are not synchronized with the control plane: %s", why)
	}
	if why := *a.reportError.Load(); why != "" && online {
		add("devices_not_synced", "Updates are not reported to the control plane: %s", why)
	}
	if n := s.Outbox.SetAside; n > 0 {
		add(
			"events_refused",
			"%d events were refused by the control plane and are set aside. See `mainstay agent refused`.",
			n,
		)
	}
	return all
}

func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
