package audit

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
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
	Without string    // excludes the successful entries of this action
	Text    string    // must be contained in the action, target, message, actor or detail; see list.Search
	From    time.Time // inclusive
	To      time.Time // exclusive
	Before  int64     // only entries with a smaller seq; 0 means from the newest
	Limit   int
}

// How many entries Find examines at once: comparing texts takes longer than reading.
const (
	filterPage = 5_000
	searchPage = 2_000
)

// clockSkew is how far apart the clocks of replicas may be without hiding entries from Find.
const clockSkew = 10 * time.Minute

// condition is a condition on entries.
type condition struct {
	sql  string
	args []any
}

// Find returns entries newest first. Each page takes a bounded time, also if little matches, and all
// pages together search the whole log. examined is the number of the oldest entry that was looked at,
// 0 if that is all; it is Before for the next page. A page may have fewer entries than the limit
// although more follow. A time From that is after To is a fault of kind Invalid.
func (l *Log) Find(ctx context.Context, q db.Querier, f Filter) (entries []Entry, examined int64, err error) {
	if !f.To.IsZero() && f.From.After(f.To) {
		return nil, 0, fault.InvalidField("from", "must not be after to, which is %s", f.To.UTC().Format(time.RFC3339))
	}
	before, from := int64(math.MaxInt64), int64(0)
	if f.Before > 0 {
		before = f.Before
	}
	if !f.To.IsZero() {
		first, err := firstSince(ctx, q, f.To.Add(clockSkew))
		if err != nil {
			return nil, 0, err
		}
		before = min(before, first)
	}
	if !f.From.IsZero() {
		if from, err = firstSince(ctx, q, f.From.Add(-clockSkew)); err != nil {
			return nil, 0, err
		}
	}
	index, others := f.conditions()
	if len(others) > 0 {
		page := filterPage
		if f.Text != "" {
			page = searchPage
		}
		err := q.Get(
			ctx, &examined,
			"SELECT seq FROM audit_entries WHERE "+index.sql+" AND seq < ? AND seq >= ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
			append(index.args[:len(index.args):len(index.args)], before, from, page-1)...)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return nil, 0, err
		}
	}
	// Of several bounds SQLite would read down to the first, and compare the others.
	where, args := index.sql+" AND seq < ? AND seq >= ?", append(index.args, before, max(from, examined))
	for _, c := range others {
		where, args = where+" AND "+c.sql, append(args, c.args...)
	}
	entries = []Entry{}
	err = q.Select(
		ctx, &entries, "SELECT * FROM audit_entries WHERE "+where+" ORDER BY seq DESC LIMIT ?", append(args, f.Limit)...)
	return entries, examined, err
}

// conditions returns the condition that an index answers in the order of the entries, and the others.
func (f Filter) conditions() (index condition, others []condition) {
	index = condition{sql: "1 = 1"}
	tenant := ""
	if f.Tenant != nil {
		tenant = *f.Tenant
	}
	for _, c := range []struct {
		column, value string
		given         bool
	}{ // the ones with the fewest entries first
		{"target", f.Target, f.Target != ""}, {"site", f.Site, f.Site != ""}, {"action", f.Action, f.Action != ""},
		{"actor", f.Actor, f.Actor != ""}, {"tenant", tenant, f.Tenant != nil},
		{"result", string(f.Result), f.Result != ""},
	} {
		switch {
		case !c.given:
		case index.args == nil:
			index = condition{c.column + " = ?", []any{c.value}}
		default:
			// An expression has no index, so the database does not choose another one, whose entries
			// between the same numbers may be many more.
			others = append(others, condition{c.column + " || '' = ?", []any{c.value}})
		}
	}
	if f.Without != "" {
		others = append(others, condition{"NOT (action || '' = ? AND result || '' = 'ok')", []any{f.Without}})
	}
	if !f.From.IsZero() {
		others = append(others, condition{"time >= ?", []any{db.At(f.From)}})
	}
	if !f.To.IsZero() {
		others = append(others, condition{"time < ?", []any{db.At(f.To)}})
	}
	if f.Text != "" {
		contains, args := list.Search(f.Text, "action", "target", "message", "actor", "detail")
		others = append(others, condition{contains, args})
	}
	return index, others
}

// firstSince returns the number of the first entry of a time or later, or the number after the last
// entry. Entries are numbered in the order of time, as far as the clocks agree.
func firstSince(ctx context.Context, q db.Querier, at time.Time) (seq int64, err error) {
	var end int64
	if err := q.Get(ctx, &end, "SELECT COALESCE(MAX(seq), 0) + 1 FROM audit_entries"); err != nil {
		return 0, err
	}
	begin := int64(1)
	for begin < end {
		middle := begin + (end-begin)/2
		var e struct {
			Seq  int64   `db:"seq"`
			Time db.Time `db:"time"`
		}
		// Numbers may be missing.
		if err := q.Get(
			ctx, &e, "SELECT seq, time FROM audit_entries WHERE seq >= ? ORDER BY seq LIMIT 1", middle,
		); err != nil {
			return 0, err
		}
		if e.Time.Before(at) {
			begin = e.Seq + 1
		} else {
			end = middle
		}
	}
	return begin, nil
}
