package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// request builds the HTTP request for an event: its JSON as body, its own headers, and the Standard
// Webhooks headers signed with the route's secret. It fails if the payload is not valid JSON.
// Ingest refuses such events, but rows may have been changed in the database.
func request(r Route, ev Event, now time.Time) (webhook.Request, error) {
	body, err := json.Marshal(ev)
	if err != nil {
		return webhook.Request{}, fmt.Errorf("the event cannot be written as JSON: %w", err)
	}
	return webhook.Request{
		Method: r.Method, URL: r.TargetURL, Header: webhook.HTTPHeader(ev.Headers), Body: body,
		ID: messageID(ev.EventID), Secret: r.Secret, Timestamp: now, Timeout: r.Timeout,
	}, nil
}

// messageID returns the event ID if Standard Webhooks allows it, else a hash of it. An ID with a
// full stop would make the signed text ambiguous.
func messageID(eventID string) string {
	if webhook.CheckID(eventID) == nil {
		return eventID
	}
	sum := sha256.Sum256([]byte(eventID))
	return "sha256-" + hex.EncodeToString(sum[:])
}
