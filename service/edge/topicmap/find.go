package topicmap

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// window is how many rows of the map a search examines at once.
const window = 30_000

// Query is a search for the newest events with certain topics.
type Query struct {
	Org    *string  // only events of this org; nil: of all
	Topics db.Scope // of rows with the column topic
	From   int64    // only events with this number or a higher one
	Before int64    // only events with a lower number
	Limit  int      // how many events are wanted
}

// Hit is a place where events match, or may match. It is within a block.
type Hit struct {
	From, To int64   // the events from From to To-1
	Seqs     []int64 // if they are known, the newest first; nil: any of them
}

// Find returns where the events of a search are, the newest first. examined is the number from which
// on it has searched; it is From once nothing is left to search. The hits may be fewer than are
// wanted although more is left.
func Find(ctx context.Context, q db.Querier, s Query) (hits []Hit, examined int64, err error) {
	limit := max(s.Limit, 256)
	places, few, err := s.places(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	var rows []row
	examined = s.From
	switch {
	case few && len(places) == 0:
		return nil, s.From, nil
	case few:
		rows, err = s.rowsOf(ctx, q, places, limit)
	default:
		rows, examined, err = s.rowsInOrder(ctx, q, limit)
	}
	if err != nil {
		return nil, 0, err
	}
	if len(rows) == limit {
		// The block of the last row may have more of them. All of it is to be read.
		rows[limit-1].N = Sparse + 1
		examined = max(s.From, rows[limit-1].Block*Block)
	}
	for len(rows) > 0 {
		block := rows[0].Block
		n, dense := 0, false
		for ; n < len(rows) && rows[n].Block == block; n++ {
			dense = dense || rows[n].dense()
		}
		hit := Hit{From: max(s.From, block*Block), To: min(s.Before, (block+1)*Block)}
		if !dense {
			if hit.Seqs, err = listed(rows[:n], hit); err != nil {
				return nil, 0, err
			}
		}
		if dense || len(hit.Seqs) > 0 {
			hits = append(hits, hit)
		}
		rows = rows[n:]
	}
	return hits, examined, nil
}

const (
	maxKnown  = 1000 // topics of orgs that a search looks through
	maxPlaces = 32   // of these, matching ones whose blocks it looks up one by one
)

// places returns the topics that match, of each org, with the empty topic of orgs that have one. few
// is false if there are too many to look up their blocks one by one. An index has the topics in
// order, so that each takes a step from one to the next, however many rows it has.
func (s Query) places(ctx context.Context, q db.Querier) (places []row, few bool, err error) {
	where, args := s.scope()
	const following = "(SELECT MIN(t.topic) FROM event_topics t WHERE t.org_id = topics.org_id AND t.topic > topics.topic)"
	org, topic := "topics.org_id", following
	if s.Org == nil {
		// After the last topic of an org comes the first one of the next org.
		org = "CASE WHEN " + following + " IS NULL THEN " +
			"(SELECT MIN(t.org_id) FROM event_topics t WHERE t.org_id > topics.org_id) ELSE topics.org_id END"
		topic = "COALESCE(" + following + ", (SELECT t.topic FROM event_topics t WHERE t.org_id > topics.org_id " +
			"ORDER BY t.org_id, t.topic LIMIT 1))"
	}
	matches, more := s.Topics.SQL()
	err = q.Select(
		ctx, &places,
		"WITH RECURSIVE topics (org_id, topic, n) AS ("+
			"SELECT * FROM (SELECT org_id, topic, 1 FROM event_topics WHERE "+where+" ORDER BY org_id, topic LIMIT 1) first "+
			"UNION ALL SELECT "+org+", "+topic+", topics.n + 1 FROM topics WHERE topics.topic IS NOT NULL AND topics.n < ?) "+
			"SELECT org_id, topic, n FROM topics WHERE topic IS NOT NULL AND (n >= ? OR topic = '' OR ("+matches+")) LIMIT ?",
		slices.Concat(args, []any{maxKnown, maxKnown}, more, []any{maxPlaces + 1})...)
	if err != nil || len(places) > maxPlaces {
		return nil, false, err
	}
	for _, p := range places {
		if p.N >= maxKnown {
			return nil, false, nil
		}
	}
	return places, true, nil
}

// scope returns the condition on the org.
func (s Query) scope() (condition string, args []any) {
	if s.Org == nil {
		return "1 = 1", nil
	}
	return "org_id = ?", []any{*s.Org}
}

// rowsOf returns the newest rows of a few topics.
func (s Query) rowsOf(ctx context.Context, q db.Querier, places []row, limit int) (rows []row, err error) {
	parts := make([]string, len(places))
	var args []any
	for i, p := range places {
		parts[i] = "SELECT * FROM (SELECT * FROM event_topics WHERE org_id = ? AND topic = ? AND block <= ? AND block >= ? " +
			"ORDER BY block DESC LIMIT ?) p" + strconv.Itoa(i)
		args = append(args, p.OrgID, p.Topic, (s.Before-1)/Block, s.From/Block, limit)
	}
	err = q.Select(
		ctx, &rows, "SELECT * FROM ("+strings.Join(parts, " UNION ALL ")+") found ORDER BY block DESC LIMIT ?",
		append(args, limit)...)
	return rows, err
}

// rowsInOrder returns the newest rows that match, of as many as a search may examine.
func (s Query) rowsInOrder(ctx context.Context, q db.Querier, limit int) (rows []row, examined int64, err error) {
	where, args := s.scope()
	where, args = where+" AND block <= ? AND block >= ?", append(args, (s.Before-1)/Block, s.From/Block)
	examined = s.From
	var last int64 // the block of the first row that is not examined
	err = q.Get(
		ctx, &last, "SELECT block FROM event_topics WHERE "+where+" ORDER BY block DESC LIMIT 1 OFFSET ?",
		append(args[:len(args):len(args)], window)...)
	switch {
	case err == nil:
		examined = max(examined, (last+1)*Block)
		args[len(args)-1] = last + 1 // of two bounds SQLite would read down to the first
	case !errors.Is(err, db.ErrNoRows):
		return nil, 0, err
	}
	matches, more := s.Topics.SQL()
	err = q.Select(
		ctx, &rows,
		"SELECT * FROM event_topics WHERE "+where+" AND (topic = '' OR ("+matches+")) ORDER BY block DESC LIMIT ?",
		append(append(args, more...), limit)...)
	return rows, examined, err
}

// listed returns the numbers of a block's rows that are within a hit.
func listed(rows []row, within Hit) (seqs []int64, err error) {
	for _, r := range rows {
		for word := range strings.SplitSeq(r.Seqs, ",") {
			seq, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				return nil, fault.Wrap(fault.Internal, err, "the topics of block %d are damaged", r.Block)
			}
			if seq >= within.From && seq < within.To {
				seqs = append(seqs, seq)
			}
		}
	}
	slices.SortFunc(seqs, func(a, b int64) int { return cmp.Compare(b, a) })
	return seqs, nil
}
