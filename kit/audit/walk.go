package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

const entriesQuery = `SELECT CAST(seq AS BIGINT) AS seq, id, CAST(time AS BIGINT) AS time, actor, actor_type, action, target, tenant, site, result, message, detail, hash FROM audit_entries`

// walk reads the entries of the segments.
type walk struct {
	q            db.Querier
	points       map[int64]Checkpoint // of the current segment, by number
	findings     []Finding
	recorded     []Break
	acknowledged []acknowledgement
}

type acknowledgement struct {
	seq, through int64
	at           time.Time
	by, note     string
}

func (w *walk) find(segment, seq int64, format string, args ...any) {
	if len(w.findings) < maxFindings {
		w.findings = append(w.findings, Finding{segment, seq, fmt.Sprintf(format, args...)})
	}
}

// stretch is what is known of a segment before its entries are read.
type stretch struct {
	of    segment
	end   mark  // where it ends; zero: not known
	limit int64 // the last number that may belong to it
}

// plan returns what to read of segment i, and reports what is missing before it.
func (w *walk) plan(ours []segment, i int, s snapshot, sound bool) stretch {
	seg := ours[i]
	previous := int64(0)
	if i > 0 {
		previous = ours[i-1].Number
	}
	if seg.AfterSegment > previous {
		w.find(
			seg.AfterSegment, 0, "%s",
			span{previous + 1, seg.AfterSegment}.text("segment", "is missing", "segments", "are missing"),
		)
	}
	if seg.Log != ours[len(ours)-1].Log {
		w.find(seg.Number, 0, "segment %d belongs to another log, %s", seg.Number, seg.Log)
	}
	clear(w.points)
	var newest mark
	for _, p := range s.points {
		if p.Genesis == seg.Log && p.Segment == seg.Number {
			w.points[p.Seq] = p
			if newest == (mark{}) || p.mark().after(newest) {
				newest = p.mark()
			}
		}
	}
	if k := s.known; k.Log == seg.Log && k.Segment == seg.Number && (newest == (mark{}) || k.after(newest)) {
		newest = k
	}
	st := stretch{of: seg, end: newest, limit: seg.First + window}
	switch {
	case i < len(ours)-1:
		next := ours[i+1]
		st.limit = next.First - 1
		if next.AfterSegment == seg.Number && next.AfterHash != "" {
			st.end = mark{seg.Log, seg.Number, next.AfterSeq, next.AfterHash}
		}
	case sound:
		st.end = mark{seg.Log, seg.Number, s.head.Seq, s.head.Hash}
		st.limit = s.head.Seq
	}
	if st.end == (mark{}) {
		w.find(seg.Number, seg.First, "nothing signed tells where segment %d ended", seg.Number)
	}
	return st
}

// segment verifies the entries of segment i. It also returns how many there should be.
func (w *walk) segment(
	ctx context.Context, ours []segment, i int, s snapshot, sound bool,
) (state SegmentState, entries int64, err error) {
	st := w.plan(ours, i, s, sound)
	r := reading{walk: w, stretch: st, next: st.of.First, previous: st.of.Start}
	if st.end == (mark{}) {
		r.end.Seq = st.limit
	}
	const page = 1000
	for after := st.of.First - 1; ; {
		var read []Entry
		if err := w.q.Select(
			ctx, &read, entriesQuery+" WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?", after, st.limit, page,
		); err != nil {
			return state, 0, fmt.Errorf("audit: read entries: %w", err)
		}
		for j := range read {
			r.entry(&read[j])
		}
		if len(read) < page {
			break
		}
		after = read[len(read)-1].Seq
	}
	r.finish(st.end != mark{})
	seg := st.of
	state = SegmentState{
		Number:   seg.Number,
		Time:     seg.Time.Time,
		First:    seg.First,
		Last:     seg.First - 1,
		Verified: r.verified,
	}
	if st.end != (mark{}) {
		state.Last = st.end.Seq
		return state, st.end.Seq - seg.First + 1, nil
	}
	state.Verified = 0
	return state, r.count, nil
}

// reading is the state of reading one segment.
type reading struct {
	*walk
	stretch
	next     int64  // the next expected number
	previous string // the hash that the next entry extends; empty: it is missing
	faulty   bool
	verified int64
	count    int64
	changed  span // consecutive changed entries
	stray    span
	breaks   []Break
	acks     []acknowledgement
}

// span is a range of numbers.
type span struct{ first, last int64 }

func (s span) text(one, is, more, are string) string {
	if s.first == s.last {
		return fmt.Sprintf("%s %d %s", one, s.first, is)
	}
	return fmt.Sprintf("%s %d to %d %s", more, s.first, s.last, are)
}

func (s span) entries(is, are string) string { return s.text("entry", is, "entries", are) }

func (r *reading) entry(e *Entry) {
	r.count++
	if e.Seq > r.end.Seq {
		if r.stray.first == 0 {
			r.stray.first = e.Seq
		}
		r.stray.last = e.Seq
		return
	}
	if e.Seq != r.next {
		r.gone(e.Seq - 1)
	}
	fits := r.previous != "" && e.chained(r.previous) == e.Hash
	switch p, known := r.points[e.Seq]; {
	case known && p.Hash != e.Hash:
		r.fault()
		r.flush()
		r.find(
			r.of.Number, e.Seq, "entry %d is not the one of the checkpoint of %s", e.Seq,
			p.Time.UTC().Format(time.RFC3339),
		)
	case fits:
		r.flush()
		r.keep(e)
		if known {
			r.vouch() // the checkpoint has the same hash
		}
	case r.previous != "":
		r.fault()
		if r.changed.first == 0 {
			r.changed.first = e.Seq
		}
		r.changed.last = e.Seq
	}
	r.previous, r.next = e.Hash, e.Seq+1
	if !r.faulty {
		r.verified++
	}
}

// fault discards what earlier entries since the last confirmed one recorded: whoever caused the
// fault may have written them.
func (r *reading) fault() { r.faulty, r.breaks, r.acks = true, nil, nil }

// vouch accepts what earlier entries recorded: the hash of the last one is part of something
// signed.
func (r *reading) vouch() {
	r.recorded = append(r.recorded, r.breaks...)
	r.acknowledged = append(r.acknowledged, r.acks...)
	r.breaks, r.acks = nil, nil
}

// gone reports that the numbers from next to last are missing.
func (r *reading) gone(last int64) {
	r.flush()
	r.fault()
	r.find(r.of.Number, r.next, "%s", span{r.next, last}.entries("is missing", "are missing"))
	r.previous, r.next = "", last+1
}

func (r *reading) flush() {
	if r.changed.first != 0 {
		r.find(r.of.Number, r.changed.first, "%s", r.changed.entries("was changed", "were changed"))
		r.changed = span{}
	}
}

// keep remembers what an entry records about the log itself.
func (r *reading) keep(e *Entry) {
	switch e.Action {
	case ActionBreak:
		var b broken
		if json.Unmarshal([]byte(e.Detail), &b) == nil {
			for _, f := range b.Findings {
				r.breaks = append(r.breaks, Break{Finding: f, Recorded: e.Seq, FoundAt: e.Time.Time})
			}
		}
	case ActionAcknowledge:
		if through, err := strconv.ParseInt(e.Target, 10, 64); err == nil {
			r.acks = append(r.acks, acknowledgement{e.Seq, through, e.Time.Time, e.Actor, e.Message})
		}
	}
}

// finish compares the end with the signed end, and accepts what the segment recorded if they match.
func (r *reading) finish(endKnown bool) {
	r.flush()
	if r.stray.first != 0 {
		r.find(r.of.Number, r.stray.first, "%s", r.stray.entries("is not signed", "are not signed"))
	}
	if !endKnown {
		return
	}
	if r.next <= r.end.Seq {
		r.gone(r.end.Seq)
		return
	}
	if r.previous != "" && r.previous != r.end.Hash {
		r.find(r.of.Number, r.end.Seq, "entry %d is not the one that was signed as the last", r.end.Seq)
		r.verified = 0
		return
	}
	r.vouch()
}
