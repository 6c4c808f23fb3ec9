package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Verification is the result of Verify.
type Verification struct {
	OK       bool   // there is no break, or all breaks are acknowledged
	Entries  int64  // number of entries that the log should hold
	Verified int64  // number of entries that verify
	Reason   string // the first unacknowledged break's; empty when OK
	Genesis  string // the id of the log
	HeadSeq  int64
	HeadHash string
	Segments []SegmentState
	Breaks   []Break
	// Checkpoints describes the checkpoint file. It is the zero value if there is none.
	Checkpoints CheckpointState
}

// SegmentState is the result of Verify for a segment.
type SegmentState struct {
	Number   int64
	Time     time.Time // when it was begun
	First    int64     // the number of its first entry
	Last     int64     // the number of its last signed entry; First-1: none
	Verified int64     // number of leading entries that are unchanged
}

// Break is an inconsistency.
type Break struct {
	Finding
	Recorded       int64     // the number of the entry that records it; 0: found by this verification
	FoundAt        time.Time // when it was recorded; zero: by this verification
	AcknowledgedAt time.Time // zero: not acknowledged
	AcknowledgedBy string
	Note           string // the operator's explanation
}

// CheckpointState describes the content of the checkpoint file.
type CheckpointState struct {
	Count  int
	First  Checkpoint // a database that was restored before it cannot be detected
	Newest Checkpoint
	Cut    int // incomplete lines, for example after a full disk
}

// maxFindings limits the findings of one verification.
const maxFindings = 100

// snapshot is the log as Verify reads it. The order matters: the known place is older than the
// head.
type snapshot struct {
	known    mark
	points   []Checkpoint
	newest   Checkpoint
	others   []string // lines of the file that are not ours
	cut      int
	head     head
	found    bool
	segments []segment
	retired  []retired
}

func (l *Log) snapshot(ctx context.Context, q db.Querier) (s snapshot, err error) {
	s.known = l.last().mark()
	if l.checkpoints != nil {
		s.points, s.others, s.cut = l.checkpoints.snapshot()
		s.newest = l.checkpoints.newest()
	}
	for range 5 { // another replica may begin a segment in between
		var before head
		if before, _, err = readHead(ctx, q, ""); err != nil {
			return s, err
		}
		if s.segments, err = readSegments(ctx, q); err != nil {
			return s, err
		}
		if s.retired, err = readRetired(ctx, q); err != nil {
			return s, err
		}
		if s.head, s.found, err = readHead(ctx, q, ""); err != nil || s.head.Segment == before.Segment {
			return s, err
		}
	}
	return s, nil
}

// Verify recomputes the whole chain, and continues after inconsistencies. It reads in pages, so its
// memory does not grow with the log, and it can run while entries are appended.
func (l *Log) Verify(ctx context.Context, q db.Querier) (Verification, error) {
	s, err := l.snapshot(ctx, q)
	if err != nil {
		return Verification{}, err
	}
	w := &walk{q: q, points: map[int64]Checkpoint{}}
	v := Verification{
		HeadSeq:     s.head.Seq,
		HeadHash:    s.head.Hash,
		Checkpoints: CheckpointState{Count: len(s.points), Cut: s.cut},
	}
	if n := len(s.points); n > 0 {
		v.Checkpoints.First, v.Checkpoints.Newest = s.points[0], s.newest
	}
	for _, digest := range s.others {
		w.find(0, 0, "the file of checkpoints holds a line that this service did not sign (its SHA-256 is %s)", digest)
	}
	key := l.logKeyOf(s.segments)
	ours, others := key.oursOf(s.segments)
	for _, number := range others {
		w.find(number, 0, "segment %d is not signed by this service", number)
	}
	known := []mark{s.known, v.Checkpoints.Newest.mark()}
	if len(ours) == 0 {
		w.findings = append(w.findings, nothingOurs(known))
		v.Breaks, v.Reason = merge(w), w.findings[0].Reason
		return v, nil
	}
	last := ours[len(ours)-1]
	v.Genesis = last.Log
	if forged := len(s.retired) - len(key.retired(s.retired, last.Log)); forged > 0 {
		w.find(0, 0, "retired keys of the log are not signed by this service: %d", forged)
	}
	sound, err := w.head(ctx, key, s, ours, known)
	if err != nil {
		return v, err
	}
	for i := range ours {
		state, entries, err := w.segment(ctx, ours, i, s, sound)
		if err != nil {
			return v, err
		}
		v.Segments = append(v.Segments, state)
		v.Entries, v.Verified = v.Entries+entries, v.Verified+state.Verified
	}
	if sound {
		if err := w.strays(ctx, ours[0].First); err != nil {
			return v, err
		}
	}
	v.Breaks = merge(w)
	v.OK = true
	for _, b := range v.Breaks {
		if b.AcknowledgedAt.IsZero() {
			v.OK, v.Reason = false, b.Reason
			break
		}
	}
	return v, nil
}

// head reports whether the head is ours, and compares the log with the known places.
func (w *walk) head(ctx context.Context, key signer, s snapshot, ours []segment, known []mark) (sound bool, err error) {
	last := ours[len(ours)-1]
	if !s.found || !key.oursHead(s.head, &last) {
		w.find(last.Number, 0, headNotOurs)
		return false, nil
	}
	for _, m := range known {
		f, err := missing(ctx, w.q, s.head, ours, m)
		if err != nil {
			return true, err
		}
		if f.Reason != "" {
			w.findings = append(w.findings, f)
		}
	}
	return true, nil
}

// merge combines the recorded breaks with new findings.
func merge(w *walk) []Break {
	breaks, recorded := w.recorded, map[Finding]bool{}
	for i := range breaks {
		b := &breaks[i]
		recorded[b.Finding] = true
		for _, a := range w.acknowledged {
			if a.seq > b.Recorded && a.through >= b.Recorded {
				b.AcknowledgedAt, b.AcknowledgedBy, b.Note = a.at, a.by, a.note
				break
			}
		}
	}
	for _, f := range w.findings {
		if !recorded[f] {
			recorded[f] = true
			breaks = append(breaks, Break{Finding: f})
		}
	}
	return breaks
}

// strays finds entries outside the range from the first segment to the head.
func (w *walk) strays(ctx context.Context, first int64) error {
	var out []struct {
		N int64 `db:"n"`
	}
	// A single statement, since entries are appended concurrently.
	err := w.q.Select(
		ctx, &out,
		"SELECT count(*) AS n FROM audit_entries WHERE seq < ? OR seq > (SELECT seq FROM audit_head WHERE one = 1)",
		first,
	)
	if err != nil {
		return fmt.Errorf("audit: count entries outside: %w", err)
	}
	if len(out) > 0 && out[0].N > 0 {
		w.find(0, 0, "entries lie outside of what is signed: %d", out[0].N)
	}
	return nil
}
