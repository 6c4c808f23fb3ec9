package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Inspect runs Verify and records new findings, which raises the alarm.
func (l *Log) Inspect(ctx context.Context) (Verification, error) {
	l.inspecting.Lock() // two concurrent runs would record the same findings
	defer l.inspecting.Unlock()
	if err := l.Check(ctx); err != nil {
		return Verification{}, err
	}
	v, err := l.Verify(ctx, l.db)
	if err != nil {
		return v, err
	}
	var fresh []Finding
	for _, b := range v.Breaks {
		if b.Recorded == 0 {
			fresh = append(fresh, b.Finding)
		}
	}
	err = l.db.Update(ctx, func(tx *db.Tx) error {
		c, err := l.chainOf(ctx, tx)
		if err != nil {
			return err
		}
		if err := restoreBreaks(ctx, tx, c, v); err != nil || len(fresh) == 0 {
			return err
		}
		if err := l.writeBreak(ctx, tx, c, broken{Findings: fresh}); err != nil {
			return err
		}
		for i := range v.Breaks {
			if b := &v.Breaks[i]; b.Recorded == 0 {
				b.Recorded, b.FoundAt = c.head.Seq, l.now().UTC()
			}
		}
		return nil
	})
	return v, errors.Join(err, l.readBroken(ctx))
}

// restoreBreaks rebuilds the table of breaks from the entries.
func restoreBreaks(ctx context.Context, tx *db.Tx, c *chain, v Verification) error {
	done := map[int64]bool{}
	for _, b := range v.Breaks {
		if b.Recorded == 0 || done[b.Recorded] {
			continue
		}
		done[b.Recorded] = true
		var err error
		if b.AcknowledgedAt.IsZero() {
			_, err = tx.Exec(
				ctx,
				"INSERT INTO audit_breaks (seq, message, acknowledged) VALUES (?, ?, '') ON CONFLICT DO NOTHING",
				b.Recorded, b.Reason,
			)
		} else {
			err = signAcknowledged(ctx, tx, c, noted{Seq: b.Recorded, Message: b.Reason})
		}
		if err != nil {
			return fmt.Errorf("audit: note break: %w", err)
		}
	}
	return nil
}

// noted is a row of the table of breaks.
type noted struct {
	Seq          int64  `db:"seq"`
	Message      string `db:"message"`
	Acknowledged string `db:"acknowledged"` // a signature
}

// signed returns the text that the signature of an acknowledged break covers.
func (n noted) signed(logID string) []byte {
	return fmt.Appendf(nil, "mainstay audit acknowledged\n%s\n%d", logID, n.Seq)
}

// signAcknowledged marks a break as acknowledged. The mark is signed, so that nobody can end the
// alarm by writing to the database.
func signAcknowledged(ctx context.Context, tx *db.Tx, c *chain, n noted) error {
	_, err := tx.Exec(
		ctx,
		"INSERT INTO audit_breaks (seq, message, acknowledged) VALUES (?, ?, ?) ON CONFLICT (seq) DO UPDATE SET acknowledged = excluded.acknowledged",
		n.Seq, n.Message, c.signer.sign(n.signed(c.segment.Log)),
	)
	return err
}

// unacknowledged returns the breaks that have not been acknowledged, in the order in which they
// were recorded.
func (l *Log) unacknowledged(ctx context.Context, q db.Querier) ([]noted, error) {
	var all []noted
	// An entry counts even if its row in the table is gone.
	err := q.Select(ctx, &all, `SELECT seq, message, acknowledged FROM audit_breaks
		UNION ALL SELECT seq, message, '' FROM audit_entries WHERE action = ? AND seq NOT IN (SELECT seq FROM audit_breaks) ORDER BY seq`, ActionBreak)
	if err != nil {
		return nil, fmt.Errorf("audit: read breaks: %w", err)
	}
	if len(all) == 0 {
		return nil, nil
	}
	segments, err := readSegments(ctx, q) // another replica may have rotated the key
	if err != nil {
		return nil, err
	}
	logID, key := l.last().segment.Log, l.logKeyOf(segments)
	return slices.DeleteFunc(all, func(n noted) bool { return key.ours(n.signed(logID), n.Acknowledged) }), nil
}

// Alarm returns the message of the first unacknowledged break, or "" if there is none.
func (l *Log) Alarm(ctx context.Context) (string, error) {
	breaks, err := l.unacknowledged(ctx, l.db)
	if err != nil || len(breaks) == 0 {
		return "", err
	}
	return breaks[0].Message, nil
}

// readBroken sets the metric from the unacknowledged breaks.
func (l *Log) readBroken(ctx context.Context) error {
	message, err := l.Alarm(ctx)
	if err != nil {
		return err
	}
	broken := int64(0)
	if message != "" {
		broken = 1
	}
	l.metrics.broken.Store(broken)
	return nil
}

// Acknowledge records that an operator has seen the breaks up to entry through, which must itself
// record a break. e holds the operator and the explanation. The alarm ends.
func (l *Log) Acknowledge(ctx context.Context, tx *db.Tx, through int64, e Entry) error {
	c, err := l.chainOf(ctx, tx) // locks the head
	if err != nil {
		return err
	}
	var n int64
	if err := tx.Get(
		ctx, &n, "SELECT count(*) FROM audit_entries WHERE seq = ? AND action = ?", through, ActionBreak,
	); err != nil {
		return fmt.Errorf("audit: read break: %w", err)
	}
	if n == 0 {
		return fault.InvalidField(
			"through", "is not the number of an entry that records a break; take it from the verification",
		)
	}
	breaks, err := l.unacknowledged(ctx, tx)
	if err != nil {
		return err
	}
	breaks = slices.DeleteFunc(breaks, func(n noted) bool { return n.Seq > through })
	if len(breaks) == 0 {
		return fault.New(fault.Conflict, "every break up to entry %d is acknowledged already", through).WithCode(
			"nothing_to_acknowledge",
		)
	}
	for _, n := range breaks {
		if err := signAcknowledged(ctx, tx, c, n); err != nil {
			return fmt.Errorf("audit: acknowledge: %w", err)
		}
	}
	e.Action, e.Target, e.Result = ActionAcknowledge, strconv.FormatInt(through, 10), OK
	if err := l.Append(ctx, tx, e, map[string]int64{"through": through}); err != nil {
		return err
	}
	tx.OnCommit(func() {
		if err := l.readBroken(context.WithoutCancel(ctx)); err != nil {
			l.log.Warn("the metric of the audit log is late", "error", err)
		}
	})
	return nil
}
