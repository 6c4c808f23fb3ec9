package audit

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// retired is a public key that signed the log before the current one.
type retired struct {
	Public      string `db:"public"`       // base64
	LastSegment int64  `db:"last_segment"` // the last segment that it signed
	Signature   string `db:"signature"`    // by the log's key
}

func (r retired) signed(log string) []byte {
	return append([]byte("mainstay audit retired key "), encode(log, r.Public, r.LastSegment)...)
}

// readRetired reads all retired keys, including those that are not ours.
func readRetired(ctx context.Context, q db.Querier) ([]retired, error) {
	var all []retired
	if err := q.Select(
		ctx, &all, "SELECT public, CAST(last_segment AS BIGINT) AS last_segment, signature FROM audit_retired_keys",
	); err != nil {
		return nil, fmt.Errorf("audit: read retired keys: %w", err)
	}
	return all, nil
}

// retired returns those of all that the signer vouches for.
func (s signer) retired(all []retired, log string) (ours []retired) {
	for _, r := range all {
		if s.ours(r.signed(log), r.Signature) {
			ours = append(ours, r)
		}
	}
	return ours
}

// logKeyOf returns the key of the log, which is the one that signed its segments. Rotate signs all
// of them again, so they have one key. It is the current key if none of ours signed any.
func (l *Log) logKeyOf(segments []segment) signer {
	for _, s := range l.signers {
		if ours, _ := s.oursOf(segments); len(ours) > 0 {
			return s
		}
	}
	return l.signers[0]
}

// Rotate lets the log continue with the current key, in the caller's transaction. It does nothing
// if the log has that key already.
//
// Rotate checks the end of the log with the key so far, as Append does. Then it signs all segments
// and acknowledgements with the current key, and begins a segment that names the end of the one
// before with its hash. So nothing in the database depends on the old key any more. The first entry
// of the segment, "audit.key", names both public keys.
func (l *Log) Rotate(ctx context.Context, tx *db.Tx) error {
	// All segments are read, so that a forged one cannot have the number of the new one.
	c, err := l.chainFrom(ctx, tx, chain{}, l.last().mark())
	if err != nil {
		return err
	}
	before, now := c.signer, l.signers[0]
	if before.key.Equal(now.key) {
		return nil
	}
	for _, sign := range []func(context.Context, *db.Tx, *chain, signer) error{
		signSegments, signAcknowledgements, retire,
	} {
		if err := sign(ctx, tx, c, now); err != nil {
			return fmt.Errorf("audit: sign with the new key: %w", err)
		}
	}
	seg, err := now.begin(segment{
		Number: c.segment.Number + 1, Log: c.segment.Log, First: c.head.Seq + 1,
		AfterSegment: c.segment.Number, AfterSeq: c.head.Seq, AfterHash: c.head.Hash,
	}, l.now())
	if err != nil {
		return err
	}
	if err := tx.Insert(ctx, "audit_segments", seg); err != nil {
		return fmt.Errorf("audit: begin segment: %w", err)
	}
	*c = chain{seg, head{Segment: seg.Number, Seq: seg.First - 1, Hash: seg.Start}, now}
	_, err = l.extend(
		ctx, tx, c,
		Entry{Actor: "mainstay", ActorType: System, Action: ActionKey, Message: "the log continues with another key"},
		map[string]string{"old_public_key": before.public(), "new_public_key": now.public()},
	)
	return err
}

// signSegments signs the segments of the chain with another key.
func signSegments(ctx context.Context, tx *db.Tx, c *chain, now signer) error {
	segments, err := readSegments(ctx, tx)
	if err != nil {
		return err
	}
	ours, _ := c.signer.oursOf(segments)
	for i := range ours {
		if _, err := tx.Exec(
			ctx, "UPDATE audit_segments SET signature = ? WHERE number = ?", now.sign(ours[i].signed()), ours[i].Number,
		); err != nil {
			return err
		}
	}
	return nil
}

// signAcknowledgements signs the marks of acknowledged breaks with another key.
func signAcknowledgements(ctx context.Context, tx *db.Tx, c *chain, now signer) error {
	var all []noted
	if err := tx.Select(
		ctx, &all, "SELECT seq, message, acknowledged FROM audit_breaks WHERE acknowledged <> ''",
	); err != nil {
		return err
	}
	for _, n := range all {
		text := n.signed(c.segment.Log)
		if !c.signer.ours(text, n.Acknowledged) {
			continue
		}
		if _, err := tx.Exec(
			ctx, "UPDATE audit_breaks SET acknowledged = ? WHERE seq = ?", now.sign(text), n.Seq,
		); err != nil {
			return err
		}
	}
	return nil
}

// retire adds the chain's key to the retired ones, and signs all of them with another key.
func retire(ctx context.Context, tx *db.Tx, c *chain, now signer) error {
	log := c.segment.Log
	all, err := readRetired(ctx, tx)
	if err != nil {
		return err
	}
	old := retired{Public: c.signer.public(), LastSegment: c.segment.Number}
	for _, r := range append(c.signer.retired(all, log), old) {
		if _, err := tx.Exec(
			ctx, `INSERT INTO audit_retired_keys (public, last_segment, signature) VALUES (?, ?, ?)
			ON CONFLICT (public) DO UPDATE SET last_segment = excluded.last_segment, signature = excluded.signature`,
			r.Public, r.LastSegment, now.sign(r.signed(log)),
		); err != nil {
			return err
		}
	}
	return nil
}

// witnesses are the keys whose checkpoints count.
type witnesses struct {
	signers []signer
	log     string
	retired []retired // of log
}

// accept reports whether a checkpoint counts. A retired key counts only for segments that it signed:
// whoever stole it can sign more.
func (w witnesses) accept(p Checkpoint) bool {
	text := p.signed()
	for _, r := range w.retired {
		if public, err := base64.StdEncoding.DecodeString(r.Public); err == nil && len(public) == ed25519.PublicKeySize &&
			verifies(public, text, p.Signature) {
			return p.Genesis == w.log && p.Segment <= r.LastSegment
		}
	}
	for _, s := range w.signers {
		if s.ours(text, p.Signature) {
			return true
		}
	}
	return false
}

// readWitnesses returns the keys whose checkpoints count according to the database.
func (l *Log) readWitnesses(ctx context.Context) (w witnesses, err error) {
	err = l.db.Update(ctx, func(tx *db.Tx) error {
		w = witnesses{signers: l.signers}
		if _, _, err := readHead(ctx, tx, tx.ForUpdate()); err != nil { // another replica may rotate
			return err
		}
		segments, err := readSegments(ctx, tx)
		if err != nil {
			return err
		}
		all, err := readRetired(ctx, tx)
		if err != nil {
			return err
		}
		key := l.logKeyOf(segments)
		if ours, _ := key.oursOf(segments); len(ours) > 0 {
			w.log = ours[len(ours)-1].Log
			w.retired = key.retired(all, w.log)
		}
		return nil
	})
	return w, err
}
