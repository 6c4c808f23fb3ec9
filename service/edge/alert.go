package edge

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/image"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Alert says that something needs attention. There is one at a time for a kind
// and a subject; it fires while its condition holds and resolves by itself.
type Alert struct {
	ID          string  `db:"id"`
	Kind        string  `db:"kind"`
	Severity    string  `db:"severity"`
	Status      string  `db:"status"` // firing, resolved
	OrgID       string  `db:"org_id"`
	SiteID      string  `db:"site_id"`
	Subject     string  `db:"subject"`
	Message     string  `db:"message"`
	FirstSeenAt db.Time `db:"first_seen_at"`
	LastSeenAt  db.Time `db:"last_seen_at"`
	ResolvedAt  db.Time `db:"resolved_at"`
}

const (
	// certExpiringSoon is when a certificate's end is an alert: agents renew at
	// two thirds of its life, so one this close has failed to for two weeks.
	certExpiringSoon = 14 * 24 * time.Hour
	// A route is failing when its last attempt failed and it had this many failed
	// attempts within the window.
	routeFailingAttempts = 3
	routeFailingWindow   = 15 * time.Minute
)

// alertRule is a kind of alert with the query that finds what it is about: the
// columns subject, org_id, site_id and message.
type alertRule struct {
	kind, severity string
	query          string
	args           []any
}

// auditAlarm is audit.Log.Alarm.
func (s *Service) alertRules(auditAlarm string) []alertRule {
	now := s.now()
	return []alertRule{
		{
			"site_offline",
			"critical",
			"SELECT id AS subject, org_id, id AS site_id, 'site ' || name || ' is offline' AS message FROM sites WHERE status = 'offline'",
			nil,
		},
		{
			"cert_expiring",
			"warning",
			"SELECT id AS subject, org_id, id AS site_id, 'the certificate of site ' || name || ' ends within 14 days' AS message FROM sites WHERE status <> 'revoked' AND cert_not_after < ?",
			[]any{db.At(now.Add(certExpiringSoon))},
		},
		{
			"route_failing",
			"critical",
			`SELECT r.id AS subject, r.org_id, r.site_id, CASE WHEN r.enabled THEN 'route ' || r.name || ' fails: ' || st.last_error ELSE 'route ' || r.name || ' was disabled: ' || r.disabled_reason END AS message
			FROM routes r JOIN route_stats st ON st.route_id = r.id
			WHERE (NOT r.enabled AND r.disabled_reason NOT IN ('', ?)) OR 
				(r.enabled AND st.last_failure_at > COALESCE(st.last_success_at, 0)
				AND (SELECT COALESCE(SUM(m.failed_attempts), 0) FROM route_minutes m WHERE m.route_id = r.id AND m.minute >= ?) >= ?)`,
			[]any{reasonOrgDeleted, db.At(now.Add(-routeFailingWindow)), routeFailingAttempts},
		},
		{
			"delivery_blocked",
			"critical",
			`SELECT id AS subject, org_id, site_id, 'nothing is sent over route ' || name || ': ' || blocked_reason AS message FROM routes WHERE enabled AND blocked_reason <> ''`,
			nil,
		},
		{
			"deadletter_backlog",
			"warning",
			`SELECT route_id AS subject, org_id, '' AS site_id, CAST(count(*) AS TEXT) || ' or more dead letters of route ' || route_id AS message FROM deadletters GROUP BY route_id, org_id HAVING count(*) >= ?`,
			[]any{s.cfg.AlertDeadLetters},
		},
		{
			"ota_failed",
			"warning",
			"SELECT device_id AS subject, org_id, site_id, 'the update of device ' || device_id || ' ended as ' || ota_state AS message FROM devices WHERE ota_state IN ('failed', 'timed_out', 'rolled_back', 'rejected')",
			nil,
		},
		{
			"campaign_paused",
			"warning",
			"SELECT id AS subject, org_id, '' AS site_id, 'campaign ' || name || ' waits for a decision: ' || paused_reason AS message FROM campaigns WHERE status = 'running' AND paused_reason <> ''",
			nil,
		},
		{
			"deployment_failed",
			"critical",
			"SELECT id AS subject, org_id, site_id, 'deployment ' || name || ' failed: ' || message AS message FROM deployments WHERE status = 'failed'",
			nil,
		},
		{
			"audit_broken",
			"critical",
			"SELECT 'audit log' AS subject, '' AS org_id, '' AS site_id, CAST(? AS TEXT) AS message WHERE CAST(? AS TEXT) <> ''",
			[]any{auditAlarm, auditAlarm},
		},
		{
			"policy_violation",
			"critical",
			`SELECT id AS subject, org_id, site_id, 'deployment ' || name || ' runs ' || image || ', which no policy pack allows' AS message FROM deployments WHERE status = 'denied'
			UNION SELECT id, org_id, site_id, 'deployment ' || name || ' runs ' || image || ', which no policy pack allows' FROM deployments WHERE violates`,
			nil,
		},
	}
}

// sweepAlerts fires and resolves alerts until they say what is. It can run
// anywhere, any time, on every replica.
func (s *Service) sweepAlerts(ctx context.Context) error {
	if err := s.findViolations(ctx); err != nil {
		return err
	}
	alarm, err := s.audit.Alarm(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, rule := range s.alertRules(alarm) {
		errs = append(errs, s.resolveAlerts(ctx, rule), s.fireAlerts(ctx, rule))
	}
	return errors.Join(errs...)
}

// alertPage bounds what one transaction of a sweep changes.
const alertPage = 500

type alertChange struct {
	OrgID   string `db:"org_id"`
	SiteID  string `db:"site_id"`
	Message string `db:"message"`
}

func (s *Service) fireAlerts(ctx context.Context, rule alertRule) error {
	return s.changeAlerts(
		ctx,
		rule,
		1,
		levelError,
		"alert.fire",
		"alert: ",
		func(tx *db.Tx) (fired []alertChange, err error) {
			now := db.At(s.now())
			args := append([]any{rule.kind, now.UnixMicro(), rule.kind, rule.severity}, now, now)
			args = append(append(args, rule.args...), rule.kind, alertPage)
			err = tx.Select(
				ctx,
				&fired,
				`INSERT INTO alerts (id, kind, severity, status, org_id, site_id, subject, message, first_seen_at, last_seen_at)
			SELECT CAST(? AS TEXT) || '-' || c.subject || '-' || CAST(CAST(? AS BIGINT) AS TEXT), CAST(? AS TEXT),
				CAST(? AS TEXT), 'firing', c.org_id, c.site_id, c.subject, c.message, CAST(? AS BIGINT),
				CAST(? AS BIGINT)
			FROM (`+rule.query+`) AS c WHERE NOT EXISTS (SELECT 1 FROM alerts a WHERE a.kind = ? AND a.subject = c.subject AND a.status = 'firing') LIMIT ?
			ON CONFLICT DO NOTHING RETURNING org_id, site_id, message`,
				args...)
			return fired, err
		},
	)
}

func (s *Service) resolveAlerts(ctx context.Context, rule alertRule) error {
	return s.changeAlerts(
		ctx,
		rule,
		-1,
		levelOK,
		"alert.resolve",
		"resolved: ",
		func(tx *db.Tx) (resolved []alertChange, err error) {
			now := db.At(s.now())
			args := append([]any{now, now, rule.kind}, rule.args...)
			err = tx.Select(
				ctx,
				&resolved,
				`UPDATE alerts SET status = 'resolved', resolved_at = ?, last_seen_at = ? WHERE id IN
			(SELECT a.id FROM alerts a WHERE a.kind = ? AND a.status = 'firing' AND a.subject NOT IN (SELECT c.subject FROM (`+rule.query+`) AS c) LIMIT ?)
			RETURNING org_id, site_id, message`,
				append(args, alertPage)...)
			return resolved, err
		},
	)
}

// changeAlerts applies change page by page, counts what it changed and reports
// it.
func (s *Service) changeAlerts(
	ctx context.Context, rule alertRule, delta int64, level, action, prefix string,
	change func(*db.Tx) ([]alertChange, error),
) error {
	for {
		var changed []alertChange
		err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
			if changed, err = change(tx); err != nil {
				return err
			}
			byOrg := map[string]int64{}
			var lines []Activity
			for _, c := range changed {
				byOrg[c.OrgID] += delta
				lines = append(lines, Activity{
					Level:   level,
					OrgID:   c.OrgID,
					SiteID:  c.SiteID,
					Chapter: "alerts",
					Action:  action,
					Message: prefix + c.Message,
				})
			}
			for org, n := range byOrg {
				tally.Add(tx, org, tally.Alert, rule.kind, n)
			}
			_, err = s.tell(ctx, tx, lines...)
			return err
		})
		if err != nil || len(changed) < alertPage {
			return err
		}
	}
}

// findViolations judges deployments by the policy packs of today.
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

// AlertFilter selects alerts; zero fields select all.
type AlertFilter struct {
	SiteID   string
	Status   string // firing, resolved; empty or all for both
	Kind     string
	Severity string
	After    string // the cursor of the last one seen
	Limit    int
}

func alertCursor(a Alert) string {
	return strconv.FormatInt(a.FirstSeenAt.UnixMicro(), 10) + " " + a.ID
}

// Alerts lists alerts newest first. What fires was last seen now.
func (s *Service) Alerts(ctx context.Context, f AlertFilter) ([]Alert, error) {
	where, args := callerFrom(ctx).scope()
	if f.Status == "all" {
		f.Status = ""
	}
	for _, is := range []struct{ column, value string }{
		{"site_id", f.SiteID}, {"status", f.Status}, {"kind", f.Kind}, {"severity", f.Severity},
	} {
		if is.value != "" {
			where, args = where+" AND "+is.column+" = ?", append(args, is.value)
		}
	}
	if f.After != "" {
		micros, id, _ := strings.Cut(f.After, " ")
		at, err := strconv.ParseInt(micros, 10, 64)
		if err != nil {
			return nil, fault.InvalidField("cursor", "is not from this list")
		}
		where, args = where+" AND (first_seen_at < ? OR first_seen_at = ? AND id < ?)", append(args, at, at, id)
	}
	alerts := []Alert{}
	err := s.db.Select(
		ctx, &alerts, "SELECT * FROM alerts WHERE "+where+" ORDER BY first_seen_at DESC, id DESC LIMIT ?",
		append(args, f.Limit)...)
	for i := range alerts {
		if alerts[i].Status == "firing" {
			alerts[i].LastSeenAt = db.At(s.now())
		}
	}
	return alerts, err
}
