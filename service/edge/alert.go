package edge

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/image"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

const (
	// certExpiringSoon is how long before its end a certificate raises an alert. Agents renew at
	// two thirds of the lifetime, so one this close has failed to renew for two weeks.
	certExpiringSoon = 14 * 24 * time.Hour
	// A route is failing if its last attempt failed and it had this many failed attempts within the
	// window.
	routeFailingAttempts = 3
	routeFailingWindow   = 15 * time.Minute
)

// alertRules returns the alert rules. auditAlarm is the result of audit.Log.Alarm.
func (s *Service) alertRules(auditAlarm string) []alert.Rule {
	now := s.now()
	return []alert.Rule{
		{
			Kind:     "site_offline",
			Severity: "critical",
			Query:    "SELECT id AS subject, org_id, id AS site_id, 'site ' || name || ' is offline' AS message FROM sites WHERE status = 'offline'",
		},
		{
			Kind:     "cert_expiring",
			Severity: "warning",
			Query:    "SELECT id AS subject, org_id, id AS site_id, 'the certificate of site ' || name || ' ends within 14 days' AS message FROM sites WHERE status <> 'revoked' AND cert_not_after < ?",
			Args:     []any{db.At(now.Add(certExpiringSoon))},
		},
		{
			Kind:     "route_failing",
			Severity: "critical",
			Query: `SELECT r.id AS subject, r.org_id, r.site_id, CASE WHEN r.enabled THEN 'route ' || r.name || ' fails: ' || st.last_error ELSE 'route ' || r.name || ' was disabled: ' || r.disabled_reason END AS message
			FROM routes r JOIN route_stats st ON st.route_id = r.id
			WHERE (NOT r.enabled AND r.disabled_reason NOT IN ('', ?)) OR 
				(r.enabled AND st.last_failure_at > COALESCE(st.last_success_at, 0)
				AND (SELECT COALESCE(SUM(m.failed_attempts), 0) FROM route_minutes m WHERE m.route_id = r.id AND m.minute >= ?) >= ?)`,
			Args: []any{reasonOrgDeleted, db.At(now.Add(-routeFailingWindow)), routeFailingAttempts},
		},
		{
			Kind:     "delivery_blocked",
			Severity: "critical",
			Query:    `SELECT id AS subject, org_id, site_id, 'nothing is sent over route ' || name || ': ' || blocked_reason AS message FROM routes WHERE enabled AND blocked_reason <> ''`,
		},
		{
			Kind:     "deadletter_backlog",
			Severity: "warning",
			Query:    `SELECT route_id AS subject, org_id, '' AS site_id, CAST(count(*) AS TEXT) || ' or more dead letters of route ' || route_id AS message FROM deadletters GROUP BY route_id, org_id HAVING count(*) >= ?`,
			Args:     []any{s.cfg.AlertDeadLetters},
		},
		{
			Kind:     "ota_failed",
			Severity: "warning",
			Query:    "SELECT device_id AS subject, org_id, site_id, 'the update of device ' || device_id || ' ended as ' || ota_state AS message FROM devices WHERE ota_state IN ('failed', 'timed_out', 'rolled_back', 'rejected')",
		},
		{
			Kind:     "campaign_paused",
			Severity: "warning",
			Query:    "SELECT id AS subject, org_id, '' AS site_id, 'campaign ' || name || ' waits for a decision: ' || paused_reason AS message FROM campaigns WHERE status = 'running' AND paused_reason <> ''",
		},
		{
			Kind:     "deployment_failed",
			Severity: "critical",
			Query:    "SELECT id AS subject, org_id, site_id, 'deployment ' || name || ' failed: ' || message AS message FROM deployments WHERE status = 'failed'",
		},
		{
			Kind:     "audit_broken",
			Severity: "critical",
			Query:    "SELECT 'audit log' AS subject, '' AS org_id, '' AS site_id, CAST(? AS TEXT) AS message WHERE CAST(? AS TEXT) <> ''",
			Args:     []any{auditAlarm, auditAlarm},
		},
		{
			Kind:     "policy_violation",
			Severity: "critical",
			Query: `SELECT id AS subject, org_id, site_id, 'deployment ' || name || ' runs ' || image || ', which no policy pack allows' AS message FROM deployments WHERE status = 'denied'
			UNION SELECT id, org_id, site_id, 'deployment ' || name || ' runs ' || image || ', which no policy pack allows' FROM deployments WHERE violates`,
		},
	}
}

// sweepAlerts fires and resolves alerts so that they match the present state. It may run at any
// time and on every replica.
func (s *Service) sweepAlerts(ctx context.Context) error {
	if err := s.findViolations(ctx); err != nil {
		return err
	}
	alarm, err := s.audit.Alarm(ctx)
	if err != nil {
		return err
	}
	return s.alerts.Sweep(ctx, s.alertRules(alarm))
}

// alertsChanged updates the tallies for alerts that fired or resolved, and adds activity lines for
// those that are not silenced.
func (s *Service) alertsChanged(ctx context.Context, tx *db.Tx, changed []alert.Alert) error {
	var lines []Activity
	for _, a := range changed {
		line := Activity{
			Level:   levelError,
			OrgID:   a.OrgID,
			SiteID:  a.SiteID,
			Chapter: "alerts",
			Action:  "alert.fire",
			Message: "alert: " + a.Message,
		}
		delta := int64(1)
		if a.Status == alert.Resolved {
			line.Level, line.Action, line.Message = levelOK, "alert.resolve", "resolved: "+a.Message
			delta = -1
		}
		tally.Add(tx, a.OrgID, tally.Alert, a.Kind, delta)
		if !a.Silenced() {
			lines = append(lines, line)
		}
	}
	_, err := s.tell(ctx, tx, lines...)
	return err
}

// Alerts lists alerts newest first.
func (s *Service) Alerts(ctx context.Context, f alert.Filter) ([]alert.Alert, error) {
	return s.alerts.List(ctx, callerFrom(ctx).scope(), f)
}

// AlertGroups counts alerts by kind, severity or site.
func (s *Service) AlertGroups(ctx context.Context, by string, f alert.Filter) ([]alert.Group, error) {
	return s.alerts.Groups(ctx, callerFrom(ctx).scope(), by, f)
}

// AcknowledgeAlert records that the caller is handling an alert.
func (s *Service) AcknowledgeAlert(ctx context.Context, id, note string) (alert.Alert, error) {
	return s.handleAlert(ctx, "alert.acknowledge", "acknowledged", note, func(tx *db.Tx, c Caller) (alert.Alert, error) {
		return s.alerts.Acknowledge(ctx, tx, c.scope(), id, c.Subject, note)
	})
}

// SilenceAlert suppresses notifications of an alert until the given time.
func (s *Service) SilenceAlert(ctx context.Context, id, reason string, until time.Time) (alert.Alert, error) {
	return s.handleAlert(ctx, "alert.silence", "silenced", reason, func(tx *db.Tx, c Caller) (alert.Alert, error) {
		return s.alerts.Silence(ctx, tx, c.scope(), id, c.Subject, reason, until)
	})
}

// UnsilenceAlert ends the silence of an alert.
func (s *Service) UnsilenceAlert(ctx context.Context, id string) (alert.Alert, error) {
	return s.handleAlert(ctx, "alert.unsilence", "no longer silenced", "", func(tx *db.Tx, c Caller) (alert.Alert, error) {
		return s.alerts.Unsilence(ctx, tx, c.scope(), id)
	})
}

// handleAlert runs do and records the caller's action in the same transaction.
func (s *Service) handleAlert(
	ctx context.Context, action, done, note string, do func(tx *db.Tx, c Caller) (alert.Alert, error),
) (handled alert.Alert, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if handled, err = do(tx, callerFrom(ctx)); err != nil {
			return err
		}
		detail := map[string]any{"kind": handled.Kind, "subject": handled.Subject}
		if note != "" {
			detail["note"] = note
		}
		if handled.Silenced() {
			detail["until"] = handled.SilencedUntil.Time
		}
		return s.record(ctx, tx, entry{
			Action:  action,
			Target:  handled.ID,
			SiteID:  handled.SiteID,
			OrgID:   handled.OrgID,
			Message: "alert " + done + ": " + handled.Message,
			Detail:  detail,
		})
	})
	return handled, err
}

// findViolations checks all deployments against the present policy packs and updates their violates
// flag.
func (s *Service) findViolations(ctx context.Context) error {
	var packs []PolicyPack
	if err := s.db.Select(ctx, &packs, "SELECT * FROM policy_packs WHERE enabled ORDER BY id"); err != nil {
		return err
	}
	bySite := map[string][]PolicyPack{}
	for _, p := range packs {
		bySite[p.SiteID] = append(bySite[p.SiteID], p)
	}
	for after := ""; ; {
		var page []Deployment
		if err := s.db.Select(
			ctx, &page, "SELECT * FROM deployments WHERE id > ? ORDER BY id LIMIT 500", after,
		); err != nil ||
			len(page) == 0 {
			return err
		}
		after = page[len(page)-1].ID
		var changed []Deployment
		for _, d := range page {
			ref, err := image.Parse("image", d.Image)
			applying := append(append([]PolicyPack{}, bySite[""]...), bySite[d.SiteID]...)
			if violates := err != nil || !allowed(applying, ref); violates != d.Violates {
				d.Violates = violates
				changed = append(changed, d)
			}
		}
		if len(changed) == 0 {
			continue
		}
		if err := s.db.Update(ctx, func(tx *db.Tx) error {
			for _, d := range changed {
				if _, err := tx.Exec(
					ctx, "UPDATE deployments SET violates = ? WHERE id = ? AND revision = ?", d.Violates, d.ID,
					d.Revision,
				); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
}
