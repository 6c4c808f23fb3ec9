package audit

import (
	"context"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Filter selects entries; zero fields select all.
type Filter struct {
	Tenant   *string // nil means every tenant
	Site     string
	Actor    string
	Action   string
	Target   string
	Result   Result
	Without  string    // leaves out what succeeded of this action
	From, To time.Time // From inclusive, To exclusive
	Before   int64     // only entries with a smaller seq; 0 means from the newest
	Limit    int
}

// List returns entries newest first.
func (l *Log) List(ctx context.Context, q db.Querier, f Filter) ([]Entry, error) {
	where, args := []string{"1 = 1"}, []any{}
	add := func(cond string, arg any) { where, args = append(where, cond), append(args, arg) }
	if f.Tenant != nil {
		add("tenant = ?", *f.Tenant)
	}
	if f.Site != "" {
		add("site = ?", f.Site)
	}
	if f.Actor != "" {
		add("actor = ?", f.Actor)
	}
	if f.Action != "" {
		add("action = ?", f.Action)
	}
	if f.Target != "" {
		add("target = ?", f.Target)
	}
	if f.Result != "" {
		add("result = ?", f.Result)
	}
	if f.Without != "" {
		add("NOT (action = ? AND result = 'ok')", f.Without)
	}
	if !f.From.IsZero() {
		add("time >= ?", db.At(f.From))
	}
	if !f.To.IsZero() {
		add("time < ?", db.At(f.To))
	}
	if f.Before > 0 {
		add("seq < ?", f.Before)
	}
	entries := []Entry{}
	err := q.Select(
		ctx, &entries,
		"SELECT * FROM audit_entries WHERE "+strings.Join(where, " AND ")+" ORDER BY seq DESC LIMIT ?",
		append(args, f.Limit)...)
	return entries, err
}
