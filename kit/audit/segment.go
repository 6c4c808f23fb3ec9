package audit

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// segment is a part of the chain with its own start: the first one begins with the log, each
// further one after a break or with another key.
type segment struct {
	Number       int64   `db:"number"`
	ID           string  `db:"id"`
	Log          string  `db:"log"` // the id of the genesis
	Time         db.Time `db:"time"`
	First        int64   `db:"first"`
	Start        string  `db:"start"`
	AfterSegment int64   `db:"after_segment"` // 0: none
	AfterSeq     int64   `db:"after_seq"`
	AfterHash    string  `db:"after_hash"` // empty: the end of the previous segment is not known
	Signature    string  `db:"signature"`
}

func (s *segment) signed() []byte {
	return append(
		[]byte("mainstay audit segment "),
		encode(s.Number, s.ID, s.Log, s.Time.UnixMicro(), s.First, s.Start, s.AfterSegment, s.AfterSeq, s.AfterHash)...)
}

// adopted reports whether the segment was created before segments existed.
func (s *segment) adopted() bool { return s.Start == zeroHash }

// head is the end of the chain. Moving it requires its row's lock.
type head struct {
	Segment   int64  `db:"segment"`
	Seq       int64  `db:"seq"`
	Hash      string `db:"hash"`
	Signature string `db:"signature"`
}

func (h head) signed(s *segment) []byte {
	return append([]byte("mainstay audit head "), encode(s.ID, h.Segment, h.Seq, h.Hash)...)
}

// signedBefore returns the text that was signed before segments existed.
func (h head) signedBefore() []byte {
	return fmt.Appendf(nil, "mainstay audit head %d %s", h.Seq, h.Hash)
}

// mark is a place in the chain that was seen with a valid signature.
type mark struct {
	Log     string `json:"genesis"`
	Segment int64  `json:"segment"`
	Seq     int64  `json:"seq"`
	Hash    string `json:"hash"`
}

func (m mark) after(o mark) bool {
	return m.Segment > o.Segment || m.Segment == o.Segment && m.Seq > o.Seq
}

type signer struct{ key ed25519.PrivateKey }

func (s signer) sign(text []byte) string {
	return base64.StdEncoding.EncodeToString(ed25519.Sign(s.key, text))
}

func (s signer) ours(text []byte, signature string) bool {
	return verifies(s.key.Public().(ed25519.PublicKey), text, signature)
}

func (s signer) public() string {
	return base64.StdEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

func verifies(public ed25519.PublicKey, text []byte, signature string) bool {
	b, err := base64.StdEncoding.DecodeString(signature)
	return err == nil && ed25519.Verify(public, text, b)
}

func (s signer) oursHead(h head, in *segment) bool {
	if in == nil || h.Segment != in.Number {
		return false
	}
	// Replicas of older versions may still append to a log that this version has adopted.
	return s.ours(h.signed(in), h.Signature) || in.adopted() && s.ours(h.signedBefore(), h.Signature)
}

// begin returns a signed segment.
func (s signer) begin(seg segment, now time.Time) (segment, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return seg, fmt.Errorf("audit: make id: %w", err)
	}
	seg.ID, seg.Time = id.String(), db.At(now)
	if seg.Log == "" {
		seg.Log = seg.ID
	}
	if seg.Start == "" {
		seg.Start = digest(seg.signed())
	}
	seg.Signature = s.sign(seg.signed())
	return seg, nil
}

// Numbers are cast: SQLite stores text in a numeric column if somebody writes it there.
const (
	headColumns    = "CAST(segment AS BIGINT) AS segment, CAST(seq AS BIGINT) AS seq, hash, signature"
	segmentColumns = `CAST(number AS BIGINT) AS number, id, log, CAST(time AS BIGINT) AS time, CAST(first AS BIGINT) AS first, start,
		CAST(after_segment AS BIGINT) AS after_segment, CAST(after_seq AS BIGINT) AS after_seq, after_hash, signature`
	// window is how far beyond our last number another row counts as following it. Rows further
	// away are left to Verify, so that nobody can use up the numbers by writing a high one.
	window = int64(1) << 40
)

// readHead reads the head. found is false if its row is missing.
func readHead(ctx context.Context, q db.Querier, lock string) (h head, found bool, err error) {
	err = q.Get(ctx, &h, "SELECT "+headColumns+" FROM audit_head WHERE one = 1"+lock)
	if errors.Is(err, db.ErrNoRows) {
		return head{}, false, nil
	}
	if err != nil {
		return head{}, false, fmt.Errorf("audit: read head: %w", err)
	}
	return h, true, nil
}

// readSegments reads all segments, including those that are not ours.
func readSegments(ctx context.Context, q db.Querier) ([]segment, error) {
	var segments []segment
	if err := q.Select(ctx, &segments, "SELECT "+segmentColumns+" FROM audit_segments ORDER BY number"); err != nil {
		return nil, fmt.Errorf("audit: read segments: %w", err)
	}
	return segments, nil
}

// oursOf splits segments into ours and the numbers of the others.
func (s signer) oursOf(segments []segment) (ours []segment, others []int64) {
	for _, seg := range segments {
		if s.ours(seg.signed(), seg.Signature) {
			ours = append(ours, seg)
		} else {
			others = append(others, seg.Number)
		}
	}
	return ours, others
}
