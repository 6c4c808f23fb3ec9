package monitor

import (
	"time"

	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// Severities of alerts.
const (
	Warning  = "warning"
	Critical = "critical"
)

const (
	// failedWithin is how long a job that has failed is alerted about.
	failedWithin = 15 * time.Minute
	// soonFull is how long before its end the room of a cluster is alerted about.
	soonFull = 30 * 24 * time.Hour
)

// Kind is what alerts are about, for people.
type Kind struct {
	Title    string
	Resource string // the type of the subject
}

// Kinds are the kinds of alerts.
var Kinds = map[string]Kind{
	"cluster_unhealthy":   {"A cluster warns of its condition", "cluster"},
	"cluster_failing":     {"A cluster is in error", "cluster"},
	"backend_unreachable": {"A storage system does not answer", "backend"},
	"pool_near_full":      {"A pool is filling up", "pool"},
	"pool_almost_full":    {"A pool is almost full", "pool"},
	"osd_down":            {"An OSD is down", "osd"},
	"capacity_forecast":   {"A cluster will be full within 30 days", "cluster"},
	"jobs_failed":         {"Jobs have failed", "job"},
	"copy_too_old":        {"The copy of a volume is older than it may be", "mirror"},
	"mirror_failing":      {"A mirror is in error", "mirror"},
	"peer_unreachable":    {"The cluster at another site does not answer", "peer"},
	"quota_near":          {"A tenant is close to a limit", "tenant"},
	"quota_almost_used":   {"A tenant has almost reached a limit", "tenant"},
	"audit_broken":        {"The audit log does not verify", "audit"},
}

// health finds the clusters of one health.
const health = `SELECT c.id AS subject, '' AS org_id, '' AS site_id, 'the cluster of the backend ' || b.name || ' reports: ' || c.summary
	AS message, '{"health": "' || c.health || '", "degraded_objects": ' || CAST(c.degraded_objects AS TEXT) || '}' AS evidence
	FROM clusters c JOIN backends b ON b.id = c.backend_id WHERE c.health = ?`

// filled finds the pools that are full by so many percent, but not by so many.
const filled = `SELECT id AS subject, '' AS org_id, '' AS site_id, 'the pool ' || name || ' of the backend ' || backend || ' is full by '
	|| CAST(percent AS TEXT) || ' %' AS message, '{"used_percent": ' || CAST(percent AS TEXT) || ', "used_bytes": ' ||
	CAST(used_bytes AS TEXT) || ', "max_bytes": ' || CAST(max_bytes AS TEXT) || '}' AS evidence FROM
	(SELECT p.id, p.name, p.used_bytes, p.max_bytes, b.name AS backend, p.used_bytes / (p.max_bytes / 100) AS percent
	FROM pools p JOIN clusters c ON c.id = p.cluster_id JOIN backends b ON b.id = c.backend_id
	WHERE NOT p.missing AND p.max_bytes >= 100) AS f WHERE percent >= ? AND percent < ?`

// limited finds the limits of tenants that are used by so many percent, but not by so many.
const limited = `SELECT tenant || ':' || name AS subject, tenant AS org_id, '' AS site_id, 'tenant ' || tenant || ' has used ' ||
	CAST(used AS TEXT) || ' of its limit of ' || CAST(most AS TEXT) || ' ' || name AS message, '{"limit": "' || name ||
	'", "used": ' || CAST(used AS TEXT) || ', "max": ' || CAST(most AS TEXT) || '}' AS evidence FROM
	(SELECT t.name AS tenant, 'volumes' AS name, t.max_volumes AS most, (SELECT COUNT(*) FROM volumes v
		WHERE v.tenant = t.name AND (v.deleted_at IS NULL OR v.purge_at IS NOT NULL) AND NOT v.foreign_made) AS used
		FROM tenants t
	UNION ALL SELECT t.name, 'bytes', t.max_bytes, (SELECT CAST(COALESCE(SUM(v.size_bytes), 0) AS BIGINT) FROM volumes v
		WHERE v.tenant = t.name AND (v.deleted_at IS NULL OR v.purge_at IS NOT NULL) AND NOT v.foreign_made) FROM tenants t
	UNION ALL SELECT t.name, 'snapshots', t.max_snapshots, (SELECT COUNT(*) FROM snapshots s
		WHERE s.tenant = t.name AND s.deleted_at IS NULL) + (SELECT CAST(COALESCE(SUM(gs.members), 0) AS BIGINT)
		FROM group_snapshots gs WHERE gs.tenant = t.name) FROM tenants t) AS l
	WHERE most > 0 AND used >= ? * (CAST(most AS DOUBLE PRECISION) / 100) AND used < ? * (CAST(most AS DOUBLE PRECISION) / 100)`

// beyond is a percentage that nothing reaches.
const beyond = 1 << 30

// rules returns what is alerted about. auditAlarm is the result of the audit log's Alarm.
func rules(now time.Time, auditAlarm string) []alert.Rule {
	return []alert.Rule{
		{Kind: "cluster_unhealthy", Severity: Warning, Query: health, Args: []any{driver.Warning}, Evidence: true},
		{Kind: "cluster_failing", Severity: Critical, Query: health, Args: []any{driver.Critical}, Evidence: true},
		{
			Kind: "backend_unreachable", Severity: Critical,
			Query: `SELECT id AS subject, '' AS org_id, '' AS site_id, last_error AS message FROM backends WHERE last_error <> ''`,
		},
		{Kind: "pool_near_full", Severity: Warning, Query: filled, Args: []any{75, 85}, Evidence: true},
		{Kind: "pool_almost_full", Severity: Critical, Query: filled, Args: []any{85, beyond}, Evidence: true},
		{
			Kind: "osd_down", Severity: Warning, Evidence: true,
			Query: `SELECT o.cluster_id || ':' || CAST(o.number AS TEXT) AS subject, '' AS org_id, '' AS site_id,
				'osd.' || CAST(o.number AS TEXT) || ' on ' || o.host || ', of the backend ' || b.name || ', is down' AS message,
				'{"osd": ' || CAST(o.number AS TEXT) || '}' AS evidence
				FROM osds o JOIN clusters c ON c.id = o.cluster_id JOIN backends b ON b.id = c.backend_id WHERE NOT o.up`,
		},
		{
			Kind: "capacity_forecast", Severity: Warning, Evidence: true,
			Query: `SELECT f.cluster_id AS subject, '' AS org_id, '' AS site_id, 'the cluster of the backend ' || b.name ||
				' will be full within 30 days if it grows as it did' AS message,
				'{"growth_bytes_per_day": ' || CAST(CAST(f.growth AS BIGINT) AS TEXT) || '}' AS evidence
				FROM forecasts f JOIN clusters c ON c.id = f.cluster_id JOIN backends b ON b.id = c.backend_id
				WHERE f.full_at < ?`,
			Args: []any{db.At(now.Add(soonFull))},
		},
		{
			Kind: "jobs_failed", Severity: Warning, Evidence: true,
			Query: `SELECT 'jobs:' || o.tenant AS subject, o.tenant AS org_id, '' AS site_id,
				CAST(COUNT(*) AS TEXT) || ' jobs have failed within 15 minutes, such as ' || MAX(o.kind) AS message,
				'{"failed": ' || CAST(COUNT(*) AS TEXT) || '}' AS evidence
				FROM jobs j JOIN operations o ON o.id = j.id WHERE j.state = ? AND j.finished_at >= ? GROUP BY o.tenant`,
			Args: []any{jobs.Failed, db.At(now.Add(-failedWithin))},
		},
		{
			Kind: "copy_too_old", Severity: Critical, Evidence: true,
			// A message must not change with time: it would be another alert.
			Query: `SELECT m.id AS subject, m.tenant AS org_id, '' AS site_id, 'the copy of the volume ' || v.name ||
				' at the other site is older than ' || CAST(m.rpo_secs AS TEXT) || ' s' AS message,
				'{"rpo_seconds": ' || CAST(m.rpo_secs AS TEXT) || '}' AS evidence
				FROM (SELECT * FROM mirrors WHERE ` + record.LateMirrors + `) m JOIN volumes v ON v.id = m.volume_id
				WHERE m.role = 'primary' OR NOT EXISTS (SELECT 1 FROM mirrors t WHERE t.global_id = m.global_id AND t.id <> m.id)`,
			Args: []any{db.At(now), db.At(now)},
		},
		{
			Kind: "mirror_failing", Severity: Critical,
			Query: `SELECT m.id AS subject, m.tenant AS org_id, '' AS site_id, 'the mirror of the volume ' || v.name ||
				' is in error: see its status' AS message
				FROM mirrors m JOIN volumes v ON v.id = m.volume_id WHERE m.health = 'error' OR m.state = 'error'`,
		},
		{
			Kind: "peer_unreachable", Severity: Critical,
			Query: `SELECT id AS subject, '' AS org_id, '' AS site_id, 'the peer ' || name || ': ' || last_error AS message
				FROM peers WHERE state = 'unreachable'`,
		},
		{Kind: "quota_near", Severity: Warning, Query: limited, Args: []any{80, 95}, Evidence: true},
		{Kind: "quota_almost_used", Severity: Critical, Query: limited, Args: []any{95, beyond}, Evidence: true},
		{
			Kind: "audit_broken", Severity: Critical,
			Query: "SELECT 'audit' AS subject, '' AS org_id, '' AS site_id, CAST(? AS TEXT) AS message WHERE CAST(? AS TEXT) <> ''",
			Args:  []any{auditAlarm, auditAlarm},
		},
	}
}
