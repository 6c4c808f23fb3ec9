package audit

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
)

// RecordDenied records the attempts that were only counted, as Run does every minute.
func (l *Log) RecordDenied(ctx context.Context) error { return l.recordDenied(ctx) }

// Forgery is what whoever stole a signing key does to the database.
type Forgery struct {
	Seed       []byte
	Entry      int64 // changed, with the chain after it
	Segments   bool  // all segments are signed again, with ends that fit the changed chain
	Head       bool  // the head is signed again
	Additional bool  // a segment is added at the end, with an entry
}

// Apply changes the database.
func (f Forgery) Apply(ctx context.Context, tx *db.Tx) error {
	thief := signer{ed25519.NewKeyFromSeed(f.Seed)}
	segments, err := readSegments(ctx, tx)
	if err != nil {
		return err
	}
	h, _, err := readHead(ctx, tx, "")
	if err != nil {
		return err
	}
	var entries []Entry
	if err := tx.Select(ctx, &entries, entriesQuery+" ORDER BY seq"); err != nil {
		return err
	}
	hashes := map[int64]string{}
	for i := range entries {
		e := &entries[i]
		if f.Entry != 0 && e.Seq >= f.Entry {
			previous := hashes[e.Seq-1]
			for _, s := range segments {
				if s.First == e.Seq {
					previous = s.Start
				}
			}
			if e.Seq == f.Entry {
				e.Message = "forged"
			}
			e.Hash = e.chained(previous)
			if _, err := tx.Exec(
				ctx, "UPDATE audit_entries SET message = ?, hash = ? WHERE seq = ?", e.Message, e.Hash, e.Seq,
			); err != nil {
				return err
			}
		}
		hashes[e.Seq] = e.Hash
	}
	if f.Additional {
		last := segments[len(segments)-1]
		seg, err := thief.begin(segment{
			Number: last.Number + 1, Log: last.Log, First: h.Seq + 1,
			AfterSegment: last.Number, AfterSeq: h.Seq, AfterHash: h.Hash,
		}, time.Unix(1, 0))
		if err != nil {
			return err
		}
		e := Entry{Seq: seg.First, ID: "forged", Time: db.At(time.Unix(1, 0)), Detail: "{}"}
		e.Hash = e.chained(seg.Start)
		if err := tx.Insert(ctx, "audit_segments", seg); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "audit_entries", e); err != nil {
			return err
		}
		segments = append(segments, seg)
		h.Segment, h.Seq, hashes[e.Seq] = seg.Number, e.Seq, e.Hash
	}
	if f.Segments {
		for _, s := range segments {
			if s.AfterSegment > 0 {
				s.AfterHash = hashes[s.AfterSeq]
			}
			if _, err := tx.Exec(
				ctx, "UPDATE audit_segments SET after_hash = ?, signature = ? WHERE number = ?", s.AfterHash,
				thief.sign(s.signed()), s.Number,
			); err != nil {
				return err
			}
		}
	}
	if f.Head {
		h.Hash = hashes[h.Seq]
		h.Signature = thief.sign(h.signed(&segments[len(segments)-1]))
		if _, err := tx.Exec(
			ctx, "UPDATE audit_head SET segment = ?, seq = ?, hash = ?, signature = ?", h.Segment, h.Seq, h.Hash,
			h.Signature,
		); err != nil {
			return err
		}
	}
	return nil
}

// ForgeCheckpoint returns a line of the checkpoint file that is p but for the segment, signed with
// another key.
func ForgeCheckpoint(line, seed []byte, segment int64) ([]byte, error) {
	var p Checkpoint
	if err := json.Unmarshal(line, &p); err != nil {
		return nil, err
	}
	p.Segment = segment
	p.Signature = signer{ed25519.NewKeyFromSeed(seed)}.sign(p.signed())
	return p.line(), nil
}

// List is Find by one query, however long that takes.
func (l *Log) List(ctx context.Context, q db.Querier, f Filter) ([]Entry, error) {
	where, args := []string{"1 = 1"}, []any{}
	add := func(cond string, arg any) { where, args = append(where, cond), append(args, arg) }
	if f.Tenant != nil {
		add("tenant = ?", *f.Tenant)
	}
	if f.Site != "" {
		add("site = ?", f.Site)
	}
	if f.Actor != "" {
		add("actor = ?", f.Actor)
	}
	if f.Action != "" {
		add("action = ?", f.Action)
	}
	if f.Target != "" {
		add("target = ?", f.Target)
	}
	if f.Result != "" {
		add("result = ?", f.Result)
	}
	if f.Without != "" {
		add("NOT (action = ? AND result = 'ok')", f.Without)
	}
	if !f.From.IsZero() {
		add("time >= ?", db.At(f.From))
	}
	if !f.To.IsZero() {
		add("time < ?", db.At(f.To))
	}
	if f.Before > 0 {
		add("seq < ?", f.Before)
	}
	entries := []Entry{}
	if f.Text != "" {
		contains, texts := list.Search(f.Text, "action", "target", "message", "actor", "detail")
		where, args = append(where, contains), append(args, texts...)
	}
	err := q.Select(
		ctx, &entries,
		"SELECT * FROM audit_entries WHERE "+strings.Join(where, " AND ")+" ORDER BY seq DESC LIMIT ?",
		append(args, f.Limit)...)
	return entries, err
}
