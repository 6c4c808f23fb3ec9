package alert

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Filter selects alerts in a scope; zero fields select all. A scope may use the columns org_id and
// site_id.
type Filter struct {
	SiteID       string
	Subject      string
	Status       string
	Kind         string
	Severity     string
	Silenced     *bool
	Acknowledged *bool
	After        string // the Cursor of the last alert of the previous page
	Limit        int
}

// Cursor returns the alert's position in a list.
func (a Alert) Cursor() string { return strconv.FormatInt(a.FirstSeenAt.UnixMicro(), 10) + " " + a.ID }

// withSilences joins firing alerts with their active silences. Its argument is the current time.
const withSilences = ` FROM alerts a LEFT JOIN alert_silences s
	ON s.kind = a.kind AND s.subject = a.subject AND a.status = 'firing' AND s.silenced_until > ?`

const columns = `a.*, s.silenced_until, COALESCE(s.silenced_by, '') AS silenced_by,
	COALESCE(s.silence_reason, '') AS silence_reason`

// where returns the scope of a filter, without its page.
func (f Filter) where(scope db.Scope) db.Scope {
	for _, is := range []struct{ column, value string }{
		{"a.site_id", f.SiteID}, {"a.subject", f.Subject},
		{"a.status", f.Status}, {"a.kind", f.Kind}, {"a.severity", f.Severity},
	} {
		if is.value != "" {
			scope = scope.And(is.column+" = ?", is.value)
		}
	}
	for _, is := range []struct {
		column string
		wanted *bool
	}{{"s.silenced_until", f.Silenced}, {"a.acknowledged_at", f.Acknowledged}} {
		if is.wanted != nil {
			scope = scope.And("(" + is.column + " IS NOT NULL) = " + strings.ToUpper(strconv.FormatBool(*is.wanted)))
		}
	}
	return scope
}

// List returns alerts newest first. A firing alert was last seen now.
func (a *Alerts) List(ctx context.Context, scope db.Scope, f Filter) ([]Alert, error) {
	now := db.At(a.cfg.Now())
	scope = f.where(scope)
	if f.After != "" {
		micros, id, _ := strings.Cut(f.After, " ")
		at, err := strconv.ParseInt(micros, 10, 64)
		if err != nil {
			return nil, fault.InvalidField("cursor", "is not from this list")
		}
		scope = scope.And("a.first_seen_at < ? OR a.first_seen_at = ? AND a.id < ?", at, at, id)
	}
	condition, args := scope.SQL()
	alerts := []Alert{}
	err := a.cfg.DB.Select(
		ctx, &alerts,
		"SELECT "+columns+withSilences+" WHERE "+condition+" ORDER BY a.first_seen_at DESC, a.id DESC LIMIT ?",
		append(append([]any{now}, args...), f.Limit)...)
	for i := range alerts {
		alerts[i].seen(now)
	}
	return alerts, err
}

func (a *Alert) seen(now db.Time) {
	if a.Status == Firing {
		a.LastSeenAt = now
	}
}

// Get returns one alert. If it is outside the scope, Get returns a NotFound fault.
func (a *Alerts) Get(ctx context.Context, q db.Querier, scope db.Scope, id string) (Alert, error) {
	now := db.At(a.cfg.Now())
	condition, args := scope.And("a.id = ?", id).SQL()
	var found Alert
	err := q.Get(ctx, &found, "SELECT "+columns+withSilences+" WHERE "+condition, append([]any{now}, args...)...)
	found.seen(now)
	return found, db.NotFound(err, "no alert %s", id)
}

// Group counts alerts with a common property.
type Group struct {
	Key          string  `db:"group_key"` // the kind, the site or the severity
	Count        int64   `db:"n"`
	Acknowledged int64   `db:"acknowledged"`
	Silenced     int64   `db:"silenced"`
	NewestAt     db.Time `db:"newest_at"`
}

// groupColumns are the columns that alerts may be grouped by.
var groupColumns = map[string]string{"kind": "a.kind", "site": "a.site_id", "severity": "a.severity"}

// Groups counts alerts by kind, site or severity, the largest group first. Of the filter's page it
// uses only the limit.
func (a *Alerts) Groups(ctx context.Context, scope db.Scope, by string, f Filter) ([]Group, error) {
	column, known := groupColumns[by]
	if !known {
		return nil, fault.InvalidField("by", "must be kind, severity or site")
	}
	condition, args := f.where(scope).SQL()
	groups := []Group{}
	err := a.cfg.DB.Select(
		ctx, &groups,
		fmt.Sprintf(
			`SELECT %s AS group_key, count(*) AS n, count(a.acknowledged_at) AS acknowledged, count(s.silenced_until) AS silenced,
			MAX(a.first_seen_at) AS newest_at %s WHERE %s GROUP BY %s ORDER BY n DESC, group_key LIMIT ?`,
			column, withSilences, condition, column,
		),
		append(append([]any{db.At(a.cfg.Now())}, args...), f.Limit)...)
	return groups, err
}
