package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// Finding is an inconsistency. Equal findings are considered the same one.
type Finding struct {
	Segment int64  `json:"segment"` // 0: it concerns the whole log
	Seq     int64  `json:"seq"`     // the first entry concerned; 0: none
	Reason  string `json:"reason"`
}

// chain is what a process knows of the log: its last segment, the last head that it wrote or
// verified, and the key that signs both.
type chain struct {
	segment segment
	head    head
	signer  signer
}

func (c chain) mark() mark { return mark{c.segment.Log, c.head.Segment, c.head.Seq, c.head.Hash} }

// check verifies a head against the entries, the segments and the known places. It costs two
// look-ups by primary key, or only one if the head is the one that this process wrote last. It
// returns the chain as far as it is ours: its segment is the last one that is ours, and its head is
// empty if the head is not ours.
func (l *Log) check(ctx context.Context, q db.Querier, h head, known chain, marks ...mark) (chain, []Finding, error) {
	c := known
	if h != known.head || known.segment.ID == "" {
		found, err := l.checkHead(ctx, q, h, &c, marks)
		if err != nil || len(found) > 0 {
			return c, found, err
		}
	}
	c.head = h
	found, err := checkEnd(ctx, q, h, &c.segment)
	return c, found, err
}

// checkHead sets c's segment to our last one, and c's head if the head is ours.
func (l *Log) checkHead(ctx context.Context, q db.Querier, h head, c *chain, marks []mark) ([]Finding, error) {
	segments, err := readSegments(ctx, q)
	if err != nil {
		return nil, err
	}
	c.head = head{}
	c.signer = l.logKeyOf(segments)
	ours, _ := c.signer.oursOf(segments)
	if len(ours) == 0 {
		return []Finding{nothingOurs(marks)}, nil
	}
	last := ours[len(ours)-1]
	c.segment = last
	for _, s := range segments {
		if s.Number > last.Number && s.Number < last.Number+window {
			return []Finding{{s.Number, s.First, "the segment is not signed by this service"}}, nil
		}
	}
	if !c.signer.oursHead(h, &last) {
		return []Finding{{last.Number, 0, headNotOurs}}, nil
	}
	c.head = h
	var found []Finding
	for _, m := range marks {
		f, err := missing(ctx, q, h, ours, m)
		if err != nil {
			return nil, err
		}
		if f.Reason != "" {
			found = append(found, f)
		}
	}
	return found, nil
}

const headNotOurs = "the head, which says where the log ends, is not signed by this service: somebody changed it, or the secret key was replaced"

// nothingOurs returns the finding for a log without any segment that this service signed.
func nothingOurs(marks []mark) Finding {
	for _, m := range marks {
		if m.Log != "" {
			return Finding{
				0,
				0,
				fmt.Sprintf("the log was known to reach entry %d, and nothing that this service signed is left: "+
					"the database was emptied or replaced, or put back to an earlier state, as by restoring a backup", m.Seq),
			}
		}
	}
	return Finding{
		0,
		0,
		"the log holds nothing that this service signed: somebody changed it, or the secret key was replaced",
	}
}

// checkEnd verifies that the head's entry exists and is the last one.
func checkEnd(ctx context.Context, q db.Querier, h head, in *segment) ([]Finding, error) {
	var ends []struct {
		Seq  int64  `db:"seq"`
		Hash string `db:"hash"`
	}
	if err := q.Select(
		ctx, &ends, "SELECT seq, hash FROM audit_entries WHERE seq >= ? AND seq < ? ORDER BY seq LIMIT 2", h.Seq,
		h.Seq+window,
	); err != nil {
		return nil, fmt.Errorf("audit: read last entry: %w", err)
	}
	if h.Seq == in.First-1 { // the segment has no entries yet
		if h.Hash != in.Start {
			return []Finding{{h.Segment, in.First, "the head is not the beginning of its segment"}}, nil
		}
	} else {
		if len(ends) == 0 || ends[0].Seq != h.Seq {
			return []Finding{
				{h.Segment, h.Seq, fmt.Sprintf("entry %d, which the head names as the last, is missing", h.Seq)},
			}, nil
		}
		if ends[0].Hash != h.Hash {
			return []Finding{{h.Segment, h.Seq, fmt.Sprintf("entry %d was changed", h.Seq)}}, nil
		}
		ends = ends[1:]
	}
	if len(ends) > 0 {
		return []Finding{
			{h.Segment, ends[0].Seq, fmt.Sprintf("entry %d was not written by this service", ends[0].Seq)},
		}, nil
	}
	return nil, nil
}

// missing returns a finding if the log does not hold the known place m, and the zero Finding if it
// does.
func missing(ctx context.Context, q db.Querier, h head, ours []segment, m mark) (Finding, error) {
	if m == (mark{}) {
		return Finding{}, nil
	}
	last := ours[len(ours)-1]
	if m.Log != last.Log {
		return Finding{
			last.Number,
			0,
			fmt.Sprintf("the database holds another audit log than before: it was %s, and is %s", m.Log, last.Log),
		}, nil
	}
	if m.after(mark{Segment: h.Segment, Seq: h.Seq}) {
		return Finding{
			h.Segment,
			h.Seq + 1,
			fmt.Sprintf(
				"the log ends with entry %d, and was known to reach entry %d: the database was put back to an earlier state, "+
					"as by restoring a backup, or entries were removed",
				h.Seq,
				m.Seq,
			),
		}, nil
	}
	for _, s := range ours {
		if s.Number > m.Segment {
			// The break before this segment is recorded; numbers must not be used twice.
			if s.First <= m.Seq {
				return Finding{
					m.Segment,
					s.First,
					fmt.Sprintf("entries %d to %d were known, and others have their numbers now", s.First, m.Seq),
				}, nil
			}
			return Finding{}, nil
		}
		if s.Number == m.Segment && s.First == m.Seq+1 && s.Start == m.Hash {
			return Finding{}, nil // the mark was made before the first entry
		}
	}
	var hashes []string
	if err := q.Select(ctx, &hashes, "SELECT hash FROM audit_entries WHERE seq = ?", m.Seq); err != nil {
		return Finding{}, fmt.Errorf("audit: read known entry: %w", err)
	}
	if len(hashes) == 0 {
		return Finding{m.Segment, m.Seq, fmt.Sprintf("entry %d, which was known, is missing", m.Seq)}, nil
	}
	if hashes[0] != m.Hash {
		return Finding{m.Segment, m.Seq, fmt.Sprintf("entry %d is not the one that was known", m.Seq)}, nil
	}
	return Finding{}, nil
}

// broken is the detail of a break's entry.
type broken struct {
	Findings []Finding `json:"findings"`
	Expected *mark     `json:"expected,omitempty"` // the last place known to be ours
	Found    *head     `json:"found,omitempty"`    // the head found in the database
}

// beginAfterBreak begins a segment after everything that exists, to replace the broken chain.
// Existing rows stay as evidence and are not signed.
func (l *Log) beginAfterBreak(
	ctx context.Context, tx *db.Tx, c *chain, found head, findings []Finding, marks ...mark,
) error {
	expected := mark{Log: c.segment.Log, Segment: c.segment.Number, Seq: max(c.segment.First-1, 0)}
	if c.head != (head{}) {
		expected = c.mark()
	}
	used := int64(0)
	for _, m := range marks {
		used = max(used, m.Seq)
		if m.Log != "" && (expected.Log == "" || m.Log == expected.Log && m.after(expected)) {
			expected = m
		}
	}
	var top, number int64
	if err := tx.Get(
		ctx, &top, "SELECT COALESCE(MAX(seq), 0) FROM audit_entries WHERE seq < ?", max(used, expected.Seq)+window,
	); err != nil {
		return fmt.Errorf("audit: read last number: %w", err)
	}
	if err := tx.Get(
		ctx, &number, "SELECT COALESCE(MAX(number), 0) FROM audit_segments WHERE number < ?", expected.Segment+window,
	); err != nil {
		return fmt.Errorf("audit: read last segment: %w", err)
	}
	seg, err := c.signer.begin(
		segment{Number: max(number, expected.Segment) + 1, Log: expected.Log, First: max(top, used, expected.Seq) + 1,
			AfterSegment: expected.Segment, AfterSeq: expected.Seq, AfterHash: expected.Hash},
		l.now(),
	)
	if err != nil {
		return err
	}
	if err := tx.Insert(ctx, "audit_segments", seg); err != nil {
		return fmt.Errorf("audit: begin segment: %w", err)
	}
	*c = chain{seg, head{Segment: seg.Number, Seq: seg.First - 1, Hash: seg.Start}, c.signer}
	return l.writeBreak(ctx, tx, c, broken{Findings: findings, Expected: &expected, Found: &found})
}

// writeBreak records a break in the current chain.
func (l *Log) writeBreak(ctx context.Context, tx *db.Tx, c *chain, b broken) error {
	message := b.Findings[0].Reason
	if n := len(b.Findings) - 1; n > 0 {
		message = fmt.Sprintf("%s (and %d more)", message, n)
	}
	e := Entry{Actor: "mainstay", ActorType: System, Action: ActionBreak, Result: Error, Message: message}
	e, err := l.extend(ctx, tx, c, e, b)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(
		ctx, "INSERT INTO audit_breaks (seq, message, acknowledged) VALUES (?, ?, '') ON CONFLICT DO NOTHING",
		e.Seq, e.Message,
	); err != nil {
		return fmt.Errorf("audit: note break: %w", err)
	}
	tx.OnCommit(func() {
		l.metrics.broken.Store(1)
		for _, f := range b.Findings {
			l.log.Error(
				"the audit log was tampered with, or the database was put back", "reason", f.Reason, "segment",
				f.Segment, "seq", f.Seq, "recorded_as", e.Seq, "help",
				"see what is left with the operation audit verify, then acknowledge",
			)
		}
		wake(l.verifyNow)
	})
	return nil
}

// minute is how often the end of the log is checked even if nothing is appended.
const minute = time.Minute
