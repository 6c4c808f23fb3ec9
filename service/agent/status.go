package agent

import (
	"context"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// shownUpdates bounds the updates in the status.
const shownUpdates = 100

// status gathers how everything is.
func (a *Agent) status(ctx context.Context) (agentapi.Status, error) {
	s := agentapi.Status{Version: telemetry.BuildInfo().Version, Name: a.cfg.Name, Server: a.cfg.Server,
		Updates: []agentapi.Update{}, Deployments: []agentapi.Deployment{}}
	if id := a.identity.get(); id != nil {
		s.SiteId, s.CertificateNotAfter = id.SiteID, timePtr(id.notAfter())
	}
	a.link.mu.Lock()
	s.Link = agentapi.Link{State: agentapi.LinkState(a.link.state), Since: a.link.since.UTC(), LastHeartbeatAt: timePtr(a.link.lastBeat), LastError: a.link.lastErr}
	if skew := a.link.skew; skew != nil {
		seconds := skew.Round(time.Millisecond).Seconds()
		s.ClockSkewSeconds = &seconds
	}
	a.link.mu.Unlock()

	stats, err := a.outbox.Stats(ctx)
	if err != nil {
		return s, err
	}
	s.Outbox = agentapi.Outbox{Events: stats.Events, Bytes: stats.Bytes, MaxBytes: stats.MaxBytes, WhenFull: agentapi.OutboxWhenFull(a.cfg.OutboxFull),
		OldestAt: timePtr(stats.Oldest), Accepted: stats.Accepted, Forwarded: stats.Forwarded, Dropped: stats.Dropped, Refused: stats.Refused,
		LastRefused: make([]agentapi.RefusedEvent, len(stats.LastRefused)), LastError: *a.forwardError.Load()}
	for i, r := range stats.LastRefused {
		s.Outbox.LastRefused[i] = agentapi.RefusedEvent{EventId: r.EventID, Topic: r.Topic, Reason: r.Reason, At: r.RefusedAt.Time}
	}
	if s.Twins.Devices, s.Twins.Pending, err = a.twins.Counts(ctx); err != nil {
		return s, err
	}
	updates, err := a.updates.List(ctx, "", shownUpdates)
	for _, u := range updates {
		s.Updates = append(s.Updates, agentapi.Update{DeviceId: u.DeviceID, RequestId: u.RequestID, Version: u.Version, State: string(u.Phase),
			Progress: u.Progress, Message: u.Message, UpdatedAt: u.UpdatedAt.Time})
	}
	if err != nil {
		return s, err
	}
	deployments, err := a.workloads.Status(ctx)
	for _, d := range deployments {
		s.Deployments = append(s.Deployments, agentapi.Deployment{Id: d.ID, Name: d.Name, Status: d.Status, Message: d.Message})
	}
	return s, err
}

func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
