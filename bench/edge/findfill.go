package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
)

// historySpan is how long a time the minutes of the history are filled for, those of historyRoutes
// routes.
const (
	historySpan   = 48 * time.Hour
	historyRoutes = 20
)

// fleetSizes are how many rows a database is filled with.
type fleetSizes struct {
	orgs, sites, devices, routes, deployments, campaigns, events, topics, letters, audit int
}

// org is a tenant with the token of its viewer.
type org struct{ id, viewer string }

// fillFleet writes the rows of an installation of a size, by SQL that both engines have. Half of all
// belongs to no org, and the rest to the orgs in equal parts. It leaves out the audit entries'
// hashes, and the topic map, which the service makes by itself as after an upgrade.
func fillFleet(ctx context.Context, d *db.DB, n fleetSizes) ([]org, error) {
	var orgs []org
	now := time.Now()
	err := d.Update(ctx, func(tx *db.Tx) error {
		for i := range n.orgs {
			o := org{fmt.Sprintf("org-%03d", i), auth.NewToken("mov_")}
			orgs = append(orgs, o)
			if _, err := tx.Exec(
				ctx, "INSERT INTO orgs (id, name, created_at) VALUES (?, ?, ?)", o.id, o.id, now.UnixMicro(),
			); err != nil {
				return err
			}
			if _, err := tx.Exec(
				ctx, `INSERT INTO tokens (hash, kind, role, subject, org_id, site_id, revoked, created_at)
				VALUES (?, 'org', 'viewer', ?, ?, '', FALSE, ?)`, auth.HashToken(o.viewer), o.id, o.id, now.UnixMicro(),
			); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// The org and the site of row i. Rows of one site are of one org.
	site := fmt.Sprintf("i %% %d", n.sites)
	owner := fmt.Sprintf(
		"CASE WHEN (%[1]s) %% 2 = 0 THEN '' ELSE 'org-' || SUBSTR(CAST(1000 + (%[1]s) / 2 %% %[2]d AS TEXT), 2) END",
		site, max(n.orgs, 1),
	)
	siteID := "'0199d3b0-7e8a-7abc-9def-' || SUBSTR(CAST(1000000000000 + " + site + " AS TEXT), 2)"
	// Some topics come all the time, one comes twice in a hundred thousand events, and one three times
	// in all.
	topic := fmt.Sprintf(
		`CASE WHEN i %% 50021 = 7 THEN 'alarm/seldom' WHEN i %% %d = 11 THEN 'alarm/once'
		ELSE 'line/' || CAST((i * 7919) %% %d AS TEXT) || '/temperature' END`, max(n.events/3, 12), n.topics,
	)
	start := now.Add(-6 * 24 * time.Hour).UnixMicro()
	step := (6 * 24 * time.Hour).Microseconds() / int64(max(n.events, 1))
	at := fmt.Sprintf("CAST(%d AS BIGINT) + i * %d", start, step)
	payload := "'{\"value\":' || CAST(i AS TEXT) || ',\"text\":\"" + strings.Repeat("x", 160) + "\"}'"
	for _, t := range []struct {
		table, into, from string
		rows              int
	}{
		{"sites", "id, org_id, name, status, version, labels, last_seen_at, enrolled_at, cert_serial, search", siteID + ", " + owner +
			`, 'Plant ' || CAST((i * 7919) % 10007 AS TEXT) || ' in city ' || CAST(i % 97 AS TEXT),
			CASE i % 20 WHEN 0 THEN 'offline' WHEN 1 THEN 'revoked' ELSE 'online' END, '1.0.0',
			'{"zone":"north","line":"' || CAST(i % 9 AS TEXT) || '"}', ` + at + ", " + at + ", '', " + siteID + ` || '
plant ' || CAST((i * 7919) % 10007 AS TEXT) || ' in city ' || CAST(i % 97 AS TEXT) || '
line=' || CAST(i % 9 AS TEXT) || '
zone=north'`, n.sites},
		{"devices", `device_id, site_id, org_id, name, model, firmware_version, labels, registered_at, last_seen_at,
			desired, reported, desired_version, reported_version, twin_updated_at, ota_request, ota_request_id,
			ota_campaign_id, ota_state, ota_progress, ota_message, search`,
			"'device-' || SUBSTR(CAST(1000000 + i AS TEXT), 2), " + siteID + ", " + owner +
				`, 'Pump ' || CAST((i * 7919) % 100003 AS TEXT) || ' in hall ' || CAST(i % 7 AS TEXT), 'M-200', '1.0.0',
			'{"line":"a","hall":"' || CAST(i % 7 AS TEXT) || '"}', ` + at + ", " + at +
				", " + payload + ", " + payload + ", 1, 1, " + at + `, '', '', '', CASE i % 1000 WHEN 1 THEN 'failed' WHEN 2 THEN 'timed_out' WHEN 3 THEN 'pending'
			WHEN 4 THEN '' ELSE 'succeeded' END, 0, '', 'device-' || SUBSTR(CAST(1000000 + i AS TEXT), 2) || '
pump ' || CAST((i * 7919) % 100003 AS TEXT) || ' in hall ' || CAST(i % 7 AS TEXT) || '
m-200
hall=' || CAST(i % 7 AS TEXT) || '
line=a'`, n.devices},
		{"routes", `id, org_id, name, site_id, topic, target_url, method, enabled, disabled_reason, retry_max, timeout_seconds,
			secret, created_at, updated_at, blocked_reason, search`,
			"'route-' || SUBSTR(CAST(1000000 + i AS TEXT), 2), " + owner + ", 'Hook ' || CAST((i * 7919) % 10007 AS TEXT), " + siteID +
				`, 'none/' || CAST(i AS TEXT), 'https://hooks.example.com/' || CAST(i AS TEXT), 'POST', i % 20 <> 1, '', 5, 10, '', ` +
				at + ", " + at + `, CASE i % 100 WHEN 7 THEN 'its alert fires' ELSE '' END, 'route-' || SUBSTR(CAST(1000000 + i AS TEXT), 2) || '
hook ' || CAST((i * 7919) % 10007 AS TEXT) || '
none/' || CAST(i AS TEXT) || '
https://hooks.example.com/' || CAST(i AS TEXT)`, n.routes},
		{"route_stats", "route_id, delivered, failed_attempts, dead_lettered, last_status, last_error, last_success_at, last_failure_at",
			"'route-' || SUBSTR(CAST(1000000 + i AS TEXT), 2), 10, 0, 0, 200, '', " + at + ", " + at, n.routes},
		{"route_minutes", "route_id, minute, org_id, delivered, failed_attempts, dead_lettered", fmt.Sprintf(
			"'route-' || SUBSTR(CAST(1000001 + i %% %d AS TEXT), 2), CAST(%d AS BIGINT) - i / %d * 60000000, "+
				"CASE WHEN i %% 2 = 1 THEN '' ELSE 'org-' || SUBSTR(CAST(1000 + i %% %d / 2 %% %d AS TEXT), 2) END, 100, 1, 1",
			historyRoutes, now.Truncate(time.Minute).UnixMicro(), historyRoutes, historyRoutes, max(n.orgs, 1),
		), historyRoutes * int(historySpan.Minutes())},
		{"deployments", `id, site_id, org_id, name, image, version, desired_state, env, ports, revision, observed_revision,
			previous_image, previous_version, status, message, violates, created_at, updated_at, search`,
			"'deployment-' || SUBSTR(CAST(1000000 + i AS TEXT), 2), " + siteID + ", " + owner + `, 'camera-' || CAST(i AS TEXT),
				'ghcr.io/acme/camera:' || CAST(i % 9 AS TEXT), CAST(i % 9 AS TEXT), 'running', '{"LOG":"debug"}', '[]', 1, 1, '', '',
				CASE i % 50 WHEN 1 THEN 'failed' WHEN 2 THEN 'denied' WHEN 3 THEN 'pending' WHEN 4 THEN 'stopped' ELSE 'running' END,
				'', FALSE, ` + at + ", " + at + `, 'deployment-' || SUBSTR(CAST(1000000 + i AS TEXT), 2) || '
camera-' || CAST(i AS TEXT) || '
ghcr.io/acme/camera:' || CAST(i % 9 AS TEXT) || '
' || CAST(i % 9 AS TEXT)`, n.deployments},
		{"campaigns", `id, org_id, name, version, url, sha256, size, targets, stages, success_threshold, failure_threshold,
			min_devices, soak_seconds, device_timeout_seconds, auto_promote, auto_abort, status, current_stage, paused_reason,
			phase, phase_done, phase_total, created_at, search`,
			"'campaign-' || SUBSTR(CAST(1000000 + i AS TEXT), 2), " + owner + `, 'Release ' || CAST(i AS TEXT), '2.' || CAST(i AS TEXT),
				'https://firmware.example.com/x', 'ab', 0, '{"labels":{"a":"b"}}', '[100]', 0.9, 0.1, 1, 0, 60, FALSE, FALSE,
				CASE i % 100 WHEN 1 THEN 'draft' ELSE 'completed' END, 0, '', 'idle', 0, 0, ` + at + `,
				'campaign-' || SUBSTR(CAST(1000000 + i AS TEXT), 2) || '
release ' || CAST(i AS TEXT) || '
2.' || CAST(i AS TEXT) || '
ab
https://firmware.example.com/x'`, n.campaigns},
		{"events", "seq, org_id, event_id, site_id, topic, payload, headers, event_time, received_at",
			"i, " + owner + ", '0199d3b0-7e8a-7abc-8000-' || CAST(1000000000000 + i AS TEXT), " + siteID + ", " + topic + ", " + payload +
				", '{}', " + at + ", " + at, n.events},
		{"deadletters", `id, org_id, route_id, event_seq, event_org_id, event_id, site_id, topic, payload, headers,
			event_time, received_at, attempts, last_status, last_error, reason, status, created_at, replay_count`,
			"'letter-' || SUBSTR(CAST(1000000000 + i AS TEXT), 2), " + owner + ", 'route-' || CAST(i % 20 AS TEXT), i, " + owner +
				", 'event-' || CAST(i AS TEXT), " + siteID + ", " + topic + ", " + payload + ", '{}', " + at + ", " + at +
				", 8, 503, 'the target answered 503 Service Unavailable', 'exhausted', 'dead', " + at + ", 0", n.letters},
		{"audit_entries", `seq, id, time, actor, actor_type, action, target, tenant, site, result, message, detail, hash`,
			"i, 'entry-' || CAST(i AS TEXT), " + at + `, 'operator', 'admin', CASE i % 10 WHEN 0 THEN 'site.enroll'
			ELSE 'device.register' END, 'device-' || CAST(i AS TEXT), ` + owner + ", " + siteID +
				", 'ok', 'device ' || CAST(i AS TEXT) || ' registered', '{\"name\":\"' || CAST(i AS TEXT) || '\"}', ''", n.audit},
	} {
		if err := insert(ctx, d, t.table, t.into, t.from, t.rows); err != nil {
			return nil, fmt.Errorf("%s: %w", t.table, err)
		}
		progress("find: %d rows of %s", t.rows, t.table)
	}
	perMinute := max(60_000_000/max(step, 1), 1)
	err = d.Update(ctx, func(tx *db.Tx) error {
		for _, statement := range []string{
			fmt.Sprintf("UPDATE counters SET value = %d WHERE name = 'event'", n.events),
			fmt.Sprintf("UPDATE counters SET value = %d WHERE name = 'topics'", n.events/8192+1),
			fmt.Sprintf(`INSERT INTO event_minutes (minute, org_id, events, first_seq, bytes)
				SELECT received_at - received_at %% 60000000, org_id, count(*), MIN(seq), 600 * count(*)
				FROM events WHERE seq %% %d < 3 OR seq > %d GROUP BY 1, 2`, perMinute, max(n.events-100_000, 0)),
			`INSERT INTO delivery_minutes (minute, org_id, delivered, failed_attempts, dead_lettered)
				SELECT minute, org_id, SUM(delivered), SUM(failed_attempts), SUM(dead_lettered)
				FROM route_minutes GROUP BY minute, org_id`,
			"UPDATE counters SET value = 1 WHERE name = 'history'",
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || d.Engine() != db.Postgres {
		return orgs, err
	}
	// As autovacuum does in time.
	return orgs, d.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "ANALYZE")
		return err
	})
}

// insert adds the rows 1 to n to a table, without its indexes at first, which is faster.
func insert(ctx context.Context, d *db.DB, table, into, from string, n int) error {
	catalog := "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
	if d.Engine() == db.Postgres {
		catalog = "SELECT indexdef FROM pg_indexes WHERE tablename = ? AND schemaname = 'edge' AND indexname NOT LIKE '%_pkey'"
	}
	var indexes []string
	if err := d.Select(ctx, &indexes, catalog, table); err != nil {
		return err
	}
	exec := func(statement string, args ...any) error {
		return d.Update(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, statement, args...)
			return err
		})
	}
	for _, index := range indexes {
		words := strings.Fields(index)
		if err := exec("DROP INDEX " + words[slices.Index(words, "INDEX")+1]); err != nil {
			return err
		}
	}
	const page = 250_000
	for first := 1; first <= n; first += page {
		last := min(first+page-1, n)
		if err := exec(fmt.Sprintf(
			`WITH RECURSIVE numbers (i) AS (SELECT CAST(%d AS BIGINT) UNION ALL SELECT i + 1 FROM numbers WHERE i < %d)
			INSERT INTO %s (%s) SELECT %s FROM numbers`, first, last, table, into, from,
		)); err != nil {
			return err
		}
	}
	for _, index := range indexes {
		if err := exec(index); err != nil {
			return err
		}
	}
	return nil
}
