package outbox

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// Limits of the control plane, which are checked here so that what is accepted is
// not refused there, days later.
const (
	// MaxPayloadBytes is the largest payload.
	MaxPayloadBytes = 1 << 20
	// MaxBatch is how many events can be handed over at once.
	MaxBatch    = 1000
	maxEventID  = 128
	maxTopic    = 256
	rowOverhead = 128 // about what SQLite and its index take for a row, in bytes
)

// Event is an event as a program hands it over.
type Event struct {
	ID      string // made when empty
	Topic   string
	Payload json.RawMessage // valid JSON
	Headers map[string]string
	Time    time.Time // the time of acceptance when zero
}

// check refuses what the control plane would refuse. at precedes the names of
// fields in faults.
func (e *Event) check(at string) error {
	if e.Topic == "" {
		return fault.InvalidField(at+"topic", "is required")
	}
	if err := checkText(at+"topic", e.Topic, maxTopic); err != nil {
		return err
	}
	if len(e.Payload) == 0 {
		return fault.InvalidField(at+"payload", "is required")
	}
	if len(e.Payload) > MaxPayloadBytes {
		f := fault.New(fault.TooLarge, "%spayload: larger than %d bytes", at, MaxPayloadBytes)
		f.Field = at + "payload"
		return f
	}
	if !utf8.Valid(e.Payload) {
		return fault.InvalidField(at+"payload", "is not valid UTF-8")
	}
	if !json.Valid(e.Payload) {
		return fault.InvalidField(at+"payload", "is not valid JSON")
	}
	if err := checkText(at+"event_id", e.ID, maxEventID); err != nil {
		return err
	}
	if len(e.Headers) > 0 {
		if err := webhook.CheckHeaders(e.Headers); err != nil {
			f := fault.From(err)
			return fault.InvalidField(at+f.Field, "%s", strings.TrimPrefix(f.Message, f.Field+": "))
		}
	}
	if y := e.Time.UTC().Year(); y < 1 || y > 9999 {
		return fault.InvalidField(at+"event_time", "must be in the years 1 to 9999")
	}
	return nil
}

func checkText(field, s string, limit int) error {
	if len(s) > limit {
		return fault.InvalidField(field, "is longer than %d bytes", limit)
	}
	return text.CheckID(field, s)
}
