package alert

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the tables of this package, for db.DB.Migrate.
func Migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }

// The states of an alert.
const (
	Firing   = "firing"
	Resolved = "resolved"
)

// Alert is a condition that needs attention. Times of events that have not happened are zero; unset
// names and texts are empty.
type Alert struct {
	ID          string  `db:"id"`
	Kind        string  `db:"kind"`
	Severity    string  `db:"severity"`
	Status      string  `db:"status"`
	OrgID       string  `db:"org_id"`  // the tenant; empty if it concerns all
	SiteID      string  `db:"site_id"` // empty if it concerns no site
	Subject     string  `db:"subject"` // the id of what it is about
	Message     string  `db:"message"`
	Evidence    string  `db:"evidence"` // a JSON object with the numbers that it was found by; empty: none
	FirstSeenAt db.Time `db:"first_seen_at"`
	LastSeenAt  db.Time `db:"last_seen_at"`
	ResolvedAt  db.Time `db:"resolved_at"`
	ResolvedBy  string  `db:"resolved_by"` // empty: resolved automatically

	AcknowledgedAt  db.Time `db:"acknowledged_at"`
	AcknowledgedBy  string  `db:"acknowledged_by"`
	AcknowledgeNote string  `db:"acknowledge_note"`

	// The active silence, only for a firing alert.
	SilencedUntil db.Time `db:"silenced_until"`
	SilencedBy    string  `db:"silenced_by"`
	SilenceReason string  `db:"silence_reason"`
}

// Silenced reports whether notifications for the alert are suppressed.
func (a Alert) Silenced() bool { return !a.SilencedUntil.IsZero() }

// Rule defines a kind of alert.
type Rule struct {
	Kind, Severity string
	// Query returns what to alert about: the columns subject, org_id, site_id and message, one row
	// per subject. A subject must mean the same for all tenants, since a tenant's silence must not
	// apply to another's alert. It must be a constant of the program.
	Query string
	Args  []any
	// Evidence says that Query also returns the column evidence: the text of a JSON object.
	Evidence bool
}

// Config holds the dependencies of Alerts.
type Config struct {
	DB  *db.DB
	Now func() time.Time
	// Changed receives the alerts of one kind that just fired, or just resolved, in the transaction
	// of that change; their Status tells which. It must have no effects other than those on tx.
	Changed func(ctx context.Context, tx *db.Tx, changed []Alert) error
}

// Alerts manages the alerts of a service. It is safe for concurrent use.
type Alerts struct{ cfg Config }

// New returns the Alerts of a service, whose tables must exist.
func New(cfg Config) *Alerts { return &Alerts{cfg} }

// page limits the changes of one transaction of a sweep.
const page = 500

// Sweep fires and resolves alerts until they match the results of the rules. If a rule fails, the
// others still run.
func (a *Alerts) Sweep(ctx context.Context, rules []Rule) error {
	var errs []error
	for _, r := range rules {
		errs = append(errs, a.inPages(ctx, r, a.resolve), a.inPages(ctx, r, a.fire))
	}
	return errors.Join(errs...)
}

func (a *Alerts) fire(ctx context.Context, tx *db.Tx, r Rule, now db.Time) (fired []Alert, err error) {
	args := append([]any{r.Kind, now.UnixMicro(), r.Kind, r.Severity, now, now}, r.Args...)
	evidence := "''"
	if r.Evidence {
		evidence = "c.evidence"
	}
	err = tx.Select(
		ctx, &fired,
		`INSERT INTO alerts (id, kind, severity, status, org_id, site_id, subject, message, evidence, first_seen_at,
			last_seen_at, resolved_by, acknowledged_by, acknowledge_note)
		SELECT CAST(? AS TEXT) || '-' || c.subject || '-' || CAST(CAST(? AS BIGINT) AS TEXT), CAST(? AS TEXT),
			CAST(? AS TEXT), 'firing', c.org_id, c.site_id, c.subject, c.message, `+evidence+`, CAST(? AS BIGINT),
			CAST(? AS BIGINT), '', '', ''
		FROM (`+r.Query+`) AS c WHERE NOT EXISTS
			(SELECT 1 FROM alerts a WHERE a.kind = ? AND a.subject = c.subject AND a.status = 'firing') LIMIT ?
		ON CONFLICT DO NOTHING RETURNING *`,
		append(args, r.Kind, page)...)
	return fired, err
}

func (a *Alerts) resolve(ctx context.Context, tx *db.Tx, r Rule, now db.Time) (resolved []Alert, err error) {
	args := append([]any{now, now, r.Kind}, r.Args...)
	err = tx.Select(
		ctx, &resolved,
		`UPDATE alerts SET status = 'resolved', resolved_at = ?, last_seen_at = ? WHERE id IN
			(SELECT a.id FROM alerts a WHERE a.kind = ? AND a.status = 'firing'
			AND a.subject NOT IN (SELECT c.subject FROM (`+r.Query+`) AS c) LIMIT ?)
		RETURNING *`,
		append(args, page)...)
	return resolved, err
}

// inPages applies a change to a rule's alerts page by page, and passes each page to the service.
func (a *Alerts) inPages(
	ctx context.Context, r Rule, change func(context.Context, *db.Tx, Rule, db.Time) ([]Alert, error),
) error {
	for {
		var changed []Alert
		err := a.cfg.DB.Update(ctx, func(tx *db.Tx) (err error) {
			now := db.At(a.cfg.Now())
			if changed, err = change(ctx, tx, r, now); err != nil {
				return err
			}
			return a.tell(ctx, tx, changed, now)
		})
		if err != nil || len(changed) < page {
			return err
		}
	}
}

// tell passes alerts of one kind to the service. They include their silence even if they have just
// resolved: users who were not notified of the start are not notified of the end.
func (a *Alerts) tell(ctx context.Context, tx *db.Tx, changed []Alert, now db.Time) error {
	if len(changed) == 0 {
		return nil
	}
	var silences []Alert
	if err := tx.Select(
		ctx, &silences, "SELECT * FROM alert_silences WHERE kind = ? AND silenced_until > ?", changed[0].Kind, now,
	); err != nil {
		return err
	}
	by := make(map[string]Alert, len(silences))
	for _, s := range silences {
		by[s.Subject] = s
	}
	for i := range changed {
		c, s := &changed[i], by[changed[i].Subject]
		c.SilencedUntil, c.SilencedBy, c.SilenceReason = s.SilencedUntil, s.SilencedBy, s.SilenceReason
	}
	return a.cfg.Changed(ctx, tx, changed)
}

// Expire deletes the alerts that resolved before a time, and the expired silences.
func (a *Alerts) Expire(ctx context.Context, resolvedBefore time.Time) error {
	_, err := a.cfg.DB.DeletePages(
		ctx, page,
		"DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE status = 'resolved' AND resolved_at < ? LIMIT ?)",
		db.At(resolvedBefore),
	)
	_, silencesErr := a.cfg.DB.DeletePages(
		ctx, page,
		"DELETE FROM alert_silences WHERE (kind, subject) IN "+
			"(SELECT kind, subject FROM alert_silences WHERE silenced_until <= ? LIMIT ?)",
		db.At(a.cfg.Now()),
	)
	return errors.Join(err, silencesErr)
}
