package edge_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
)

// Whatever is accepted must be storable on both engines and deliverable: valid
// UTF-8, no NUL outside of JSON escapes, and JSON that encodes again.
func FuzzEventBody(f *testing.F) {
	for _, seed := range []string{
		`{"site_id":"s","topic":"t","payload":{"a":[1,null,"x"]}}`,
		`{"site_id":"s","topic":"t","payload":null,"headers":{"X-A":"b"},"event_id":"e.1","event_time":"2026-01-02T03:04:05Z"}`,
		`{"site_id":"s","topic":"a\u0000b","payload":1}`,
		`{"site_id":"s","topic":"t","payload":"\u0000\ud800"}`,
		`{"site_id":"s","topic":"t","payload":1,"headers":{"Host":"x"}}`,
		"{\"site_id\":\"s\",\"topic\":\"t\",\"payload\":\"\xff\"}",
		`[]`, `{`, `{"payload":1e999}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := edge.DecodeEvent(body)
		if err != nil {
			return
		}
		for what, text := range map[string]string{"payload": string(e.Payload), "topic": e.Topic, "event_id": e.EventID} {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				t.Errorf("%s cannot be stored: %q", what, text)
			}
		}
		if !json.Valid(e.Payload) {
			t.Errorf("payload is no JSON: %q", e.Payload)
		}
		if _, err := json.Marshal(delivery.Event{Payload: e.Payload, Headers: e.Headers}); err != nil {
			t.Errorf("cannot be delivered: %v", err)
		}
	})
}
