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
const window = 100_000

// Query is a search for the newest events with certain topics.
type Query struct {
	Scope  db.Scope // of rows with the column org_id
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
	where, args := s.Scope.SQL()
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

	limit := max(s.Limit, 256)
	matches, more := s.Topics.SQL()
	var rows []row
	if err := q.Select(
		ctx, &rows,
		"SELECT * FROM event_topics WHERE "+where+" AND (topic = '' OR ("+matches+")) ORDER BY block DESC LIMIT ?",
		append(append(args, more...), limit)...); err != nil {
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
