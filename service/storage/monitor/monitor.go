package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// Config holds the dependencies of a Monitor.
type Config struct {
	DB    *db.DB
	Store *record.Store
	Audit *audit.Log
	Log   *slog.Logger
	Now   func() time.Time
	// URL is told about alerts, as Standard Webhooks signed with Secret ("whsec_..."). Empty: nobody is told.
	URL, Secret string
}

// Monitor raises alerts. It is safe for concurrent use.
type Monitor struct {
	cfg    Config
	alerts *alert.Alerts
	hook   *hook // nil: nobody is told
}

// New returns a Monitor. A URL or a secret that is not one is a fault of kind Invalid that names the setting.
func New(c Config) (*Monitor, error) {
	m := &Monitor{cfg: c}
	var err error
	if m.hook, err = newHook(c); err != nil {
		return nil, err
	}
	m.alerts = alert.New(alert.Config{DB: c.DB, Now: c.Now, Changed: m.changed})
	return m, nil
}

// Evaluation is what a round has found.
type Evaluation struct {
	Conditions int // that were checked
	Open       int // alerts in the caller's scope
}

// Round keeps how full clusters are, and raises and resolves alerts.
func (m *Monitor) Round(ctx context.Context) error {
	own := caller.ByItself(ctx)
	err := errors.Join(m.cfg.Store.SampleCapacity(own), m.forecast(own))
	alarm, auditErr := m.cfg.Audit.Alarm(own)
	return errors.Join(err, auditErr, m.alerts.Sweep(own, rules(m.cfg.Now(), alarm)))
}

// Evaluate makes a round, and counts the alerts that are open then.
func (m *Monitor) Evaluate(ctx context.Context) (Evaluation, error) {
	if err := m.Round(ctx); err != nil {
		return Evaluation{}, err
	}
	if err := m.note(ctx, nil, audit.Entry{Action: "alert.evaluate", Message: "all conditions were checked"}); err != nil {
		return Evaluation{}, err
	}
	condition, args := scope(ctx).And("status = ?", alert.Firing).SQL()
	e := Evaluation{Conditions: len(Kinds)}
	return e, m.cfg.DB.Get(ctx, &e.Open, "SELECT COUNT(*) FROM alerts WHERE "+condition, args...)
}

// forecast says of each cluster when it is full.
func (m *Monitor) forecast(ctx context.Context) error {
	now := m.cfg.Now()
	all, err := m.cfg.Store.CapacityHistory(ctx, "", now.Add(-forecastDays*day), now.Add(day), day)
	if err != nil {
		return err
	}
	uses := map[string][]Use{}
	for _, c := range all {
		uses[c.ClusterID] = append(uses[c.ClusterID], Use{Day: c.At.Time, Used: c.Used, Raw: c.Raw})
	}
	var problems []error
	for cluster, of := range uses {
		g := forecast(of)
		f := record.Forecast{ClusterID: cluster, Days: int64(g.Days), Growth: g.PerDay, Error: g.Error}
		if !g.FullAt.IsZero() {
			f.FullAt = db.At(g.FullAt)
		}
		if !g.Earliest.IsZero() {
			f.Earliest = db.At(g.Earliest)
		}
		problems = append(problems, m.cfg.Store.PutForecast(ctx, f))
	}
	return errors.Join(problems...)
}

// keepResolved is how long alerts are kept that have resolved.
const keepResolved = 30 * day

// Expire deletes what is kept no longer.
func (m *Monitor) Expire(ctx context.Context) error {
	return errors.Join(m.alerts.Expire(ctx, m.cfg.Now().Add(-keepResolved)), m.cfg.Store.ExpireCapacity(ctx))
}

// scope returns the alerts that the caller sees.
func scope(ctx context.Context) db.Scope {
	switch c := caller.From(ctx); {
	case c.SeesAll():
		return db.All()
	case c.Role != "":
		return db.Where("org_id = ?", c.Tenant)
	}
	return db.Scope{}
}

// Alerts lists alerts, newest first.
func (m *Monitor) Alerts(ctx context.Context, f alert.Filter) ([]alert.Alert, error) {
	return m.alerts.List(ctx, scope(ctx), f)
}

// Acknowledge stores that the caller takes care of an alert.
func (m *Monitor) Acknowledge(ctx context.Context, id string) (alert.Alert, error) {
	return m.handle(ctx, "alert.ack", "", func(tx *db.Tx) (alert.Alert, error) {
		return m.alerts.Acknowledge(ctx, tx, scope(ctx), id, caller.From(ctx).Name, "")
	})
}

// Silence has nobody told about an alert, and about later ones of the same kind and subject, for a time.
func (m *Monitor) Silence(ctx context.Context, id, reason string, length time.Duration) (alert.Alert, error) {
	if reason == "" {
		reason = "no reason was given"
	}
	return m.handle(ctx, "alert.silence", reason, func(tx *db.Tx) (alert.Alert, error) {
		return m.alerts.Silence(ctx, tx, scope(ctx), id, caller.From(ctx).Name, reason, m.cfg.Now().Add(length))
	})
}

// Resolve ends an alert. It opens again with the next round if its cause is still there. One that has resolved stays
// as it is.
func (m *Monitor) Resolve(ctx context.Context, id string) (alert.Alert, error) {
	return m.handle(ctx, "alert.resolve", "", func(tx *db.Tx) (alert.Alert, error) {
		a, err := m.alerts.Resolve(ctx, tx, scope(ctx), id, caller.From(ctx).Name)
		if fault.Is(err, fault.Conflict) {
			return a, nil
		}
		return a, err
	})
}

// handle makes a change to an alert, with an audit entry.
func (m *Monitor) handle(
	ctx context.Context, action, message string, change func(tx *db.Tx) (alert.Alert, error),
) (a alert.Alert, err error) {
	err = m.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		if a, err = change(tx); err != nil {
			return err
		}
		return m.note(ctx, tx, audit.Entry{Action: action, Target: a.ID, Tenant: a.OrgID, Message: message})
	})
	return a, err
}

// note writes an audit entry, in a transaction if there is one.
func (m *Monitor) note(ctx context.Context, tx *db.Tx, e audit.Entry) error {
	e = caller.From(ctx).Entry(e)
	if tx != nil {
		return m.cfg.Audit.Append(ctx, tx, e, nil)
	}
	return m.cfg.DB.Update(ctx, func(tx *db.Tx) error { return m.cfg.Audit.Append(ctx, tx, e, nil) })
}

// changed stores what is to be told about alerts that have just begun or ended.
func (m *Monitor) changed(ctx context.Context, tx *db.Tx, changed []alert.Alert) error {
	if m.hook == nil {
		return nil
	}
	now := db.At(m.cfg.Now())
	for _, a := range changed {
		if a.Silenced() {
			continue
		}
		body, err := json.Marshal(message(&a, now.Time))
		if err != nil {
			return err
		}
		if err := tx.Insert(ctx, "alert_notices", &notice{
			ID: record.NewID(), Body: string(body), DueAt: now, CreatedAt: now,
		}); err != nil {
			return err
		}
	}
	return nil
}
