package edge

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/topicmap"
)

// EventFilter selects events; zero fields select all.
type EventFilter struct {
	SiteID  string
	Minutes int
	Topic   string // a pattern
	Text    string // must be contained in the topic; see list.Search
	Before  int64  // only events with a smaller sequence number
	Limit   int
}

// Limits of what one page of events reads.
const (
	maxScanned      = 4_000 // events that are read one by one
	maxScannedBlock = 2     // blocks of the topic map
)

// clockSkew is how far apart the clocks of replicas may be without hiding events from a search by
// time.
const clockSkew = 10 * time.Minute

// Events lists events newest first. A search reads a bounded number of events: examined is the
// number down to which it has looked, 0 if it has looked at all. Events above it that match are in
// the result, up to the limit.
func (s *Service) Events(ctx context.Context, f EventFilter) (events []Event, examined int64, err error) {
	return s.events(ctx, s.db, f)
}

func (s *Service) events(
	ctx context.Context, q db.Querier, f EventFilter,
) (events []Event, examined int64, err error) {
	e := eventSearch{
		db: q, scope: callerFrom(ctx).scope(), topics: f.topics(), others: db.All(),
		before: math.MaxInt64, limit: f.Limit, events: []Event{},
	}
	for field, given := range map[string]string{"topic": f.Topic, "q": f.Text} {
		if err := text.Check(field, given); err != nil {
			return nil, 0, err
		}
	}
	if f.Before > 0 {
		e.before = f.Before
	}
	if caller := callerFrom(ctx); !caller.Global() {
		e.org = &caller.OrgID
	}
	if f.SiteID != "" {
		site, err := s.Site(ctx, f.SiteID)
		if err != nil {
			return nil, 0, err
		}
		e.site = f.SiteID
		e.scope, e.org = db.Where("site_id = ?", f.SiteID), &site.OrgID
	}
	if f.Minutes > 0 {
		since := s.now().Add(-time.Duration(f.Minutes) * time.Minute)
		if e.from, err = firstEventSince(ctx, q, since); err != nil {
			return nil, 0, err
		}
		e.others = db.Where("received_at >= ?", db.At(since))
	}
	switch {
	case f.Topic != "" || f.Text != "":
		examined, err = e.byTopic(ctx)
	case f.Minutes > 0:
		examined, err = e.scan(ctx)
	default:
		err = e.read(ctx, e.before, e.from)
	}
	return e.events, examined, err
}

// topics returns the condition on the column topic.
func (f EventFilter) topics() db.Scope {
	contains, args := list.Search(f.Text, "topic")
	return topicCondition(f.Topic).And(contains, args...)
}

// topicCondition returns the condition that the column topic matches a pattern; the empty one matches
// all.
func topicCondition(pattern string) db.Scope {
	switch {
	case pattern == "":
		return db.All()
	case strings.Contains(pattern, "*"):
		// * becomes %, and the rest is escaped.
		like := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`).Replace(pattern)
		return db.Where(`topic LIKE ? ESCAPE '\'`, like)
	}
	return db.Where("topic = ?", pattern)
}

// firstEventSince returns a number that is at most that of the first event that was received at a
// time or later.
func firstEventSince(ctx context.Context, q db.Querier, since time.Time) (seq int64, err error) {
	var first db.Time
	err = q.Get(
		ctx, &first, "SELECT minute FROM event_minutes WHERE minute >= ? ORDER BY minute LIMIT 1",
		db.At(since.Truncate(time.Minute)),
	)
	if errors.Is(err, db.ErrNoRows) {
		return math.MaxInt64, nil
	}
	if err != nil {
		return 0, err
	}
	// A later minute may begin with an earlier number, if another replica's clock is ahead.
	err = q.Get(
		ctx, &seq, "SELECT MIN(first_seq) FROM event_minutes WHERE minute >= ? AND minute <= ?", first,
		db.At(first.Add(clockSkew)),
	)
	return seq, err
}

// eventSearch reads a page of events, the newest first.
type eventSearch struct {
	db     db.Querier
	site   string   // empty: all
	scope  db.Scope // of the caller, or a site within; an index has these events by their numbers
	org    *string  // of the caller, or that of the site; nil: all
	topics db.Scope // the condition on the topic
	others db.Scope // further conditions
	from   int64    // only events with this number or a higher one
	before int64    // only events with a lower number
	limit  int
	events []Event // what was found
}

// read adds the matching events with numbers below before and from from on.
func (e *eventSearch) read(ctx context.Context, before, from int64) error {
	where, args := e.scope.SQL()
	for _, more := range []db.Scope{e.topics, e.others} {
		condition, values := more.SQL()
		where, args = where+" AND "+condition, append(args, values...)
	}
	var found []Event
	err := e.db.Select(
		ctx, &found, "SELECT * FROM events WHERE "+where+" AND seq < ? AND seq >= ? ORDER BY seq DESC LIMIT ?",
		append(args, before, from, e.limit-len(e.events))...)
	e.events = append(e.events, found...)
	return err
}

// readThese adds the matching events with the given numbers.
func (e *eventSearch) readThese(ctx context.Context, seqs []int64) error {
	where, args := e.scope.SQL()
	for _, more := range []db.Scope{e.topics, e.others} {
		condition, values := more.SQL()
		where, args = where+" AND "+condition, append(args, values...)
	}
	query, args, err := db.In(
		"SELECT * FROM events WHERE "+where+" AND seq IN (?) ORDER BY seq DESC LIMIT ?",
		append(args, seqs, e.limit-len(e.events))...)
	if err != nil {
		return err
	}
	var found []Event
	err = e.db.Select(ctx, &found, query, args...)
	e.events = append(e.events, found...)
	return err
}

// scan reads a bounded number of events one by one.
func (e *eventSearch) scan(ctx context.Context) (examined int64, err error) {
	where, args := e.scope.SQL()
	err = e.db.Get(
		ctx, &examined,
		"SELECT seq FROM events WHERE "+where+" AND seq < ? AND seq >= ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
		append(args, e.before, e.from, maxScanned-1)...)
	if errors.Is(err, db.ErrNoRows) {
		return 0, e.read(ctx, e.before, e.from)
	}
	if err != nil {
		return 0, err
	}
	return examined, e.read(ctx, e.before, examined)
}

// byTopic reads where the topic map says that matching events are.
func (e *eventSearch) byTopic(ctx context.Context) (examined int64, err error) {
	described, err := topicmap.Described(ctx, e.db)
	if err != nil {
		return 0, err
	}
	if e.before <= max(described, e.from) {
		return e.scan(ctx)
	}
	wanted := e.limit
	if e.site != "" {
		wanted = 1
	}
	hits, mapped, err := topicmap.Find(ctx, e.db, topicmap.Query{
		Org: e.org, Topics: e.topics, From: max(described, e.from), Before: e.before, Limit: wanted,
	})
	if err != nil {
		return 0, err
	}
	if e.site != "" && len(hits) > 0 {
		// The index of the site's events finds them faster than the blocks, and only from here on.
		e.before = hits[0].To
		return e.scan(ctx)
	}
	if examined, err = e.readHits(ctx, hits, mapped); err != nil || len(e.events) == e.limit {
		return examined, err
	}
	if examined > e.from {
		return examined, nil
	}
	return 0, nil
}

// readHits reads the events of hits until the page is full, or as many blocks were read as a page
// may. It returns the number down to which it has looked; mapped is that of the hits.
func (e *eventSearch) readHits(ctx context.Context, hits []topicmap.Hit, mapped int64) (examined int64, err error) {
	var listed []int64
	blocks := 0
	for _, hit := range hits {
		if hit.Seqs != nil {
			if listed = append(listed, hit.Seqs...); len(e.events)+len(listed) < e.limit {
				continue
			}
		}
		if len(listed) > 0 {
			if err := e.readThese(ctx, listed); err != nil {
				return 0, err
			}
			listed = nil
		}
		if len(e.events) == e.limit {
			return hit.From, nil
		}
		if hit.Seqs != nil {
			continue
		}
		if blocks++; blocks > maxScannedBlock {
			return hit.To, nil
		}
		if err := e.read(ctx, hit.To, hit.From); err != nil {
			return 0, err
		}
		if len(e.events) == e.limit {
			return hit.From, nil
		}
	}
	if len(listed) > 0 {
		if err := e.readThese(ctx, listed); err != nil {
			return 0, err
		}
	}
	return mapped, nil
}
