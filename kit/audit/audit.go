package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/db"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations are the tables of this package, for db.DB.Migrate.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return sub
}

// ActorType is the kind of caller who acted.
type ActorType string

// The kinds of callers.
const (
	Admin  ActorType = "admin"
	Viewer ActorType = "viewer"
	Agent  ActorType = "agent"
	System ActorType = "system"
)

// Result is how the attempt ended.
type Result string

// The results.
const (
	OK     Result = "ok"
	Error  Result = "error"
	Denied Result = "denied"
)

// Entry is one line of the log. Append fills in Seq, ID, Time and Hash.
type Entry struct {
	Seq       int64     `db:"seq"`
	ID        string    `db:"id"`
	Time      db.Time   `db:"time"`
	Actor     string    `db:"actor"`
	ActorType ActorType `db:"actor_type"`
	Action    string    `db:"action"` // noun.verb, for example "site.revoke"
	Target    string    `db:"target"` // the id of what was acted on
	Tenant    string    `db:"tenant"` // whose log it belongs to; empty for the operator's own
	Site      string    `db:"site"`   // the site concerned, if any
	Result    Result    `db:"result"`
	Message   string    `db:"message"`
	Detail    string    `db:"detail"` // a JSON object
	Hash      string    `db:"hash"`   // lower hex
}

// canonical is the encoding that is hashed: a JSON array of all fields but the
// hash, in the order of the struct, the time in microseconds since 1970.
func (e *Entry) canonical() []byte {
	b, err := json.Marshal([]any{e.Seq, e.ID, e.Time.UnixMicro(), e.Actor, e.ActorType, e.Action, e.Target, e.Tenant, e.Site, e.Result, e.Message, e.Detail})
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return b
}

func (e *Entry) chained(previous string) (string, error) {
	prev, err := hex.DecodeString(previous)
	if err != nil {
		return "", fmt.Errorf("audit: stored hash is no hex: %w", err)
	}
	sum := sha256.Sum256(append(prev, e.canonical()...))
	return hex.EncodeToString(sum[:]), nil
}

type head struct {
	Seq       int64  `db:"seq"`
	Hash      string `db:"hash"`
	Signature string `db:"signature"`
}

func (h head) signed() []byte { return fmt.Appendf(nil, "mainstay audit head %d %s", h.Seq, h.Hash) }

// Log appends to and reads one audit log.
type Log struct {
	key ed25519.PrivateKey
	now func() time.Time
}

// NewLog returns a log whose head is signed with a key made from seed
// (ed25519.SeedSize bytes).
func NewLog(seed []byte, now func() time.Time) *Log {
	return &Log{key: ed25519.NewKeyFromSeed(seed), now: now}
}

// Append adds an entry in the caller's transaction. detail is encoded as JSON;
// nil is an empty object.
func (l *Log) Append(ctx context.Context, tx *db.Tx, e Entry, detail any) error {
	e.Detail = "{}"
	if detail != nil {
		b, err := json.Marshal(detail)
		if err != nil {
			return fmt.Errorf("audit: encode detail: %w", err)
		}
		e.Detail = string(b)
	}
	if e.Result == "" {
		e.Result = OK
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("audit: make id: %w", err)
	}
	e.ID, e.Time = id.String(), db.At(l.now())

	var h head
	if err := tx.Get(ctx, &h, "SELECT seq, hash, signature FROM audit_head WHERE one = 1"+tx.ForUpdate()); err != nil {
		return fmt.Errorf("audit: read head: %w", err)
	}
	e.Seq = h.Seq + 1
	if e.Hash, err = e.chained(h.Hash); err != nil {
		return err
	}
	if err := tx.Insert(ctx, "audit_entries", e); err != nil {
		return fmt.Errorf("audit: append: %w", err)
	}
	h = head{Seq: e.Seq, Hash: e.Hash}
	h.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(l.key, h.signed()))
	if _, err := tx.Exec(ctx, "UPDATE audit_head SET seq = ?, hash = ?, signature = ? WHERE one = 1", h.Seq, h.Hash, h.Signature); err != nil {
		return fmt.Errorf("audit: move head: %w", err)
	}
	return nil
}

// Filter selects entries; zero fields select all.
type Filter struct {
	Tenant   *string // nil means every tenant
	Site     string
	Actor    string
	Action   string
	From, To time.Time // From inclusive, To exclusive
	Before   int64     // only entries with a smaller seq; 0 means from the newest
	Limit    int
}

// List returns entries newest first.
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
	err := q.Select(ctx, &entries, "SELECT * FROM audit_entries WHERE "+strings.Join(where, " AND ")+" ORDER BY seq DESC LIMIT ?", append(args, f.Limit)...)
	return entries, err
}

// Verification is the outcome of Verify.
type Verification struct {
	OK       bool
	Entries  int64  // as the head has it
	Verified int64  // entries before the first that does not fit
	Reason   string // empty when OK
	HeadSeq  int64
	HeadHash string // keep it elsewhere to detect a database that was put back
}

// Verify recomputes the whole chain. It reads in pages, so its memory does not
// grow with the log, and it can run while entries are appended.
func (l *Log) Verify(ctx context.Context, q db.Querier) (Verification, error) {
	var h head
	if err := q.Get(ctx, &h, "SELECT seq, hash, signature FROM audit_head WHERE one = 1"); err != nil {
		return Verification{}, fmt.Errorf("audit: read head: %w", err)
	}
	v := Verification{Entries: h.Seq, HeadSeq: h.Seq, HeadHash: h.Hash}
	signature, err := base64.StdEncoding.DecodeString(h.Signature)
	if h.Seq > 0 && (err != nil || !ed25519.Verify(l.key.Public().(ed25519.PublicKey), h.signed(), signature)) {
		v.Reason = "the head's signature is not ours"
		return v, nil
	}
	const page = 1000
	previous := strings.Repeat("0", 2*sha256.Size)
	for v.Verified < h.Seq {
		var entries []Entry
		if err := q.Select(ctx, &entries, "SELECT * FROM audit_entries WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?", v.Verified, h.Seq, page); err != nil {
			return v, err
		}
		if len(entries) == 0 {
			v.Reason = fmt.Sprintf("entries %d to %d are missing", v.Verified+1, h.Seq)
			return v, nil
		}
		for i := range entries {
			e := &entries[i]
			if e.Seq != v.Verified+1 {
				v.Reason = fmt.Sprintf("entry %d is missing", v.Verified+1)
				return v, nil
			}
			want, err := e.chained(previous)
			if err != nil {
				return v, err
			}
			if want != e.Hash {
				v.Reason = fmt.Sprintf("entry %d was changed", e.Seq)
				return v, nil
			}
			previous, v.Verified = e.Hash, e.Seq
		}
	}
	if previous != h.Hash {
		v.Reason = "the last entry is not the one that the head names"
		return v, nil
	}
	v.OK = true
	return v, nil
}
