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

// Migrations are the tables of this package, for db.DB.Migrate.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return sub
}

// The states of an alert.
const (
	Firing   = "firing"
	Resolved = "resolved"
)

// Alert says that something needs attention. The times of what did not happen are zero, and its
// names and texts are empty.
type Alert struct {
	ID          string  `db:"id"`
	Kind        string  `db:"kind"`
	Severity    string  `db:"severity"`
	Status      string  `db:"status"`
	OrgID       string  `db:"org_id"`  // the tenant; empty where it concerns all
	SiteID      string  `db:"site_id"` // empty where it concerns no site
	Subject     string  `db:"subject"` // the id of what it is about
	Message     string  `db:"message"`
	FirstSeenAt db.Time `db:"first_seen_at"`
	LastSeenAt  db.Time `db:"last_seen_at"`
	ResolvedAt  db.Time `db:"resolved_at"`
	ResolvedBy  string  `db:"resolved_by"` // empty: it resolved by itself

	AcknowledgedAt  db.Time `db:"acknowledged_at"`
	AcknowledgedBy  string  `db:"acknowledged_by"`
	AcknowledgeNote string  `db:"acknowledge_note"`

	// The silence that lasts; of an alert that fires only.
	SilencedUntil db.Time `db:"silenced_until"`
	SilencedBy    string  `db:"silenced_by"`
	SilenceReason string  `db:"silence_reason"`
}

// Silenced reports whether nobody should be notified of the alert.
func (a Alert) Silenced() bool { return !a.SilencedUntil.IsZero() }

// Rule is a kind of alert.
type Rule struct {
	Kind, Severity string
	// Query finds what the alert is about: the columns subject, org_id, site_id and message, one row
	// for a subject. A subject means the same for all tenants: a silence of one tenant's must not be
	// that of another's. Its text must be the program's own.
	Query string
	Args  []any
}

// Config is what alerts need of their service.
type Config struct {
	DB  *db.DB
	Now func() time.Time
	// Changed gets the alerts of one kind that just fired, or just resolved, in the transaction of
	// that change; their Status says which. It must have no effects but those on tx.
	Changed func(ctx context.Context, tx *db.Tx, changed []Alert) error
}

// Alerts are the alerts of a service. They are safe for concurrent use.
type Alerts struct{ cfg Config }

// New opens the alerts of a service, whose tables must be there.
func New(cfg Config) *Alerts { return &Alerts{cfg} }

// page bounds what one transaction of a sweep changes.
const page = 500

// Sweep fires and resolves alerts until they say what the rules find. A rule that fails does not
// keep the others from running.
func (a *Alerts) Sweep(ctx context.Context, rules []Rule) error {
	var errs []error
	for _, r := range rules {
		errs = append(errs, a.inPages(ctx, r, a.resolve), a.inPages(ctx, r, a.fire))
	}
	return errors.Join(errs...)
}

func (a *Alerts) fire(ctx context.Context, tx *db.Tx, r Rule, now db.Time) (fired []Alert, err error) {
	args := append([]any{r.Kind, now.UnixMicro(), r.Kind, r.Severity, now, now}, r.Args...)
	err = tx.Select(
		ctx, &fired,
		`INSERT INTO alerts (id, kind, severity, status, org_id, site_id, subject, message, first_seen_at, last_seen_at,
			resolved_by, acknowledged_by, acknowledge_note)
		SELECT CAST(? AS TEXT) || '-' || c.subject || '-' || CAST(CAST(? AS BIGINT) AS TEXT), CAST(? AS TEXT),
			CAST(? AS TEXT), 'firing', c.org_id, c.site_id, c.subject, c.message, CAST(? AS BIGINT), CAST(? AS BIGINT),
			'', '', ''
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

// inPages applies a change of a rule's alerts page by page, and hands each page to the service.
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

// tell hands alerts of one kind to the service. They say who silenced them, also when they have
// just resolved: who was not told of their beginning is not told of their end.
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

// Expire deletes the alerts that resolved before a time, and the silences that are over.
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
