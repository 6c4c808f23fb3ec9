package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// request makes the HTTP request for an event: its JSON as body, its own headers,
// and the Standard Webhooks headers signed with the route's secret.
func request(r Route, ev Event, now time.Time) webhook.Request {
	body, err := json.Marshal(ev)
	if err != nil {
		panic(err) // the payload was checked when the event was accepted
	}
	return webhook.Request{
		Method: r.Method, URL: r.TargetURL, Header: webhook.HTTPHeader(ev.Headers), Body: body,
		ID: messageID(ev.EventID), Secret: r.Secret, Timestamp: now, Timeout: r.Timeout,
	}
}

// messageID is the event id where Standard Webhooks can carry it, else a hash of
// it: ids with a full stop would blur what is signed.
func messageID(eventID string) string {
	if webhook.CheckID(eventID) == nil {
		return eventID
	}
	sum := sha256.Sum256([]byte(eventID))
	return "sha256-" + hex.EncodeToString(sum[:])
}
