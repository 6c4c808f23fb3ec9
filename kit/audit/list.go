package audit

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
)

// Filter selects entries; zero fields select all.
type Filter struct {
	Tenant  *string // nil means every tenant
	Site    string
	Actor   string
	Action  string
	Target  string
	Result  Result
	Without string // excludes the successful entries of this action
	// Text must be contained in the action, target, message, actor or detail, ignoring case. Only
	// the last Searched entries before To and Before are searched.
	Text     string
	From, To time.Time // From inclusive, To exclusive
	Before   int64     // only entries with a smaller seq; 0 means from the newest
	Limit    int
}

// Searched limits how many entries a text search examines, since the log is kept forever.
const Searched = 100_000

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
	if f.Text != "" {
		newest, err := newestSeq(ctx, q, f)
		if err != nil {
			return nil, err
		}
		add("seq > ?", newest-Searched)
		contains, texts := list.Search(f.Text, "action", "target", "message", "actor", "detail")
		where, args = append(where, contains), append(args, texts...)
	}
	err := q.Select(
		ctx, &entries,
		"SELECT * FROM audit_entries WHERE "+strings.Join(where, " AND ")+" ORDER BY seq DESC LIMIT ?",
		append(args, f.Limit)...)
	return entries, err
}

// newestSeq returns the number of the newest entry before To and Before, 0 if there is none.
func newestSeq(ctx context.Context, q db.Querier, f Filter) (seq int64, err error) {
	where, args := "1 = 1", []any{}
	if !f.To.IsZero() {
		where, args = where+" AND time < ?", append(args, db.At(f.To))
	}
	if f.Before > 0 {
		where, args = where+" AND seq < ?", append(args, f.Before)
	}
	err = q.Get(ctx, &seq, "SELECT seq FROM audit_entries WHERE "+where+" ORDER BY seq DESC LIMIT 1", args...)
	if errors.Is(err, db.ErrNoRows) {
		return 0, nil
	}
	return seq, err
}
