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

// Limits of the control plane. They are checked here so that the control plane does not refuse an
// accepted event days later.
const (
	// MaxPayloadBytes is the maximum size of a payload.
	MaxPayloadBytes = 1 << 20
	// MaxBatch is the maximum number of events in one call of Accept.
	MaxBatch    = 1000
	maxEventID  = 128
	maxTopic    = 256
	rowOverhead = 128 // approximate space that SQLite and its index need per row, in bytes
)

// Event is an event from a local program.
type Event struct {
	ID      string // generated if empty
	Topic   string
	Payload json.RawMessage // valid JSON
	Headers map[string]string
	Time    time.Time // time of acceptance if zero
}

// check returns an error if the control plane would refuse the event. at is the prefix of field
// names in the error.
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
