package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// ActorType is the kind of caller who acted.
type ActorType string

// The kinds of callers.
const (
	Admin  ActorType = "admin"
	User   ActorType = "user" // of a tenant; may change what belongs to the tenant
	Viewer ActorType = "viewer"
	Agent  ActorType = "agent"  // of a site or a guest
	Node   ActorType = "node"   // another daemon of the same service
	System ActorType = "system" // the service itself
)

// Result is the outcome of the attempt.
type Result string

// The results.
const (
	OK     Result = "ok"
	Error  Result = "error"
	Denied Result = "denied"
)

// Actions of entries that the log writes about itself.
const (
	ActionBreak       = "audit.break"       // tampering was found
	ActionAcknowledge = "audit.acknowledge" // an operator has seen it
	ActionDenied      = "audit.denied"      // denied attempts that have no entries of their own
	ActionKey         = "audit.key"         // the log continues with another key
)

// Entry is one line of the log. Append fills in Seq, ID, Time and Hash.
type Entry struct {
	Seq       int64     `db:"seq"`
	ID        string    `db:"id"`
	Time      db.Time   `db:"time"`
	Actor     string    `db:"actor"`
	ActorType ActorType `db:"actor_type"`
	Action    string    `db:"action"` // noun.verb, for example "site.revoke"
	Target    string    `db:"target"` // the id of the target
	Tenant    string    `db:"tenant"` // the tenant whose log it belongs to; empty for the operator's log
	Site      string    `db:"site"`   // the site concerned, if any
	Result    Result    `db:"result"`
	Message   string    `db:"message"`
	Detail    string    `db:"detail"` // a JSON object
	Hash      string    `db:"hash"`   // lower hex
}

// Limits of an entry's texts, in bytes. Callers choose some of them, and the log is kept forever.
const (
	maxName    = 256 // actor, action, target, tenant, site
	maxMessage = 1 << 10
	maxDetail  = 64 << 10
)

// complete sets the generated fields and truncates the texts.
func complete(e Entry, detail any, now time.Time) (Entry, error) {
	e.Detail = "{}"
	if detail != nil {
		b, err := json.Marshal(detail)
		if err != nil {
			return e, err
		}
		e.Detail = string(b)
		if len(b) > maxDetail {
			e.Detail = `{"omitted":"the detail was too long"}`
		}
	}
	if e.Result == "" {
		e.Result = OK
	}
	for _, s := range []*string{&e.Actor, &e.Action, &e.Target, &e.Tenant, &e.Site} {
		*s = clip(*s, maxName)
	}
	e.Message = clip(e.Message, maxMessage)
	id, err := uuid.NewV7()
	e.ID, e.Time = id.String(), db.At(now)
	return e, err
}

// clip returns s as both engines can store it: at most n bytes of UTF-8 without NUL.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "")
}

// canonical returns the encoding that is hashed: a JSON array of all fields but the hash, in the
// order of the struct, the time in microseconds since 1970.
func (e *Entry) canonical() []byte {
	return encode(
		e.Seq, e.ID, e.Time.UnixMicro(), e.Actor, e.ActorType, e.Action, e.Target, e.Tenant, e.Site, e.Result,
		e.Message, e.Detail,
	)
}

// encode returns the JSON array of strings and integers. Encoding them cannot fail.
func encode(values ...any) []byte {
	b, err := json.Marshal(values)
	if err != nil {
		panic(err)
	}
	return b
}

// zeroHash is the start of a log that was created before segments existed.
var zeroHash = strings.Repeat("0", 2*sha256.Size)

// chained returns the hash of e after an entry with the hash previous.
func (e *Entry) chained(previous string) string {
	prev, err := hex.DecodeString(previous)
	if err != nil {
		prev = []byte(previous) // not written by us; no hash of ours follows from it
	}
	return digest(append(prev, e.canonical()...))
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
