package endpoint

import (
	"encoding/json"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Format is the format of a request's body.
type Format string

// The formats. A chat gets only the text of an event, and decides how to show it.
const (
	Standard Format = "standard" // Standard Webhooks: type, timestamp and data, signed
	Slack    Format = "slack"    // incoming webhooks of Slack and compatible ones, such as Mattermost
	Teams    Format = "teams"    // Microsoft Teams: an Adaptive Card, as accepted by its workflows
	Discord  Format = "discord"
)

func (f Format) known() bool { return f == Standard || f == Slack || f == Teams || f == Discord }

// Event is an event that endpoints may subscribe to.
type Event struct {
	Type string // such as "vm.started"
	At   time.Time
	Text string // a sentence for people, shown in chats
	Data any    // for programs
}

const (
	maxBody = 64 << 10
	// maxText is Discord's limit, the lowest of all.
	maxText = 2000
)

// body encodes an event in a format.
func (f Format) body(ev Event) (string, error) {
	type object = map[string]any
	text := []rune(ev.Text)
	shown := string(text[:min(len(text), maxText)])
	var content any
	switch f {
	case Slack:
		content = object{"text": escapeSlack(shown)}
	case Discord:
		// A VM's name must not mention anybody by accident.
		content = object{"content": shown, "allowed_mentions": object{"parse": []string{}}}
	case Teams:
		content = object{"type": "message", "attachments": []object{{
			"contentType": "application/vnd.microsoft.card.adaptive",
			"content": object{
				"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
				"body": []object{{"type": "TextBlock", "text": shown, "wrap": true}},
			},
		}}}
	default:
		content = object{"type": ev.Type, "timestamp": ev.At.UTC().Format(time.RFC3339Nano), "data": ev.Data}
	}
	encoded, err := json.Marshal(content)
	if err == nil && len(encoded) > maxBody {
		err = fault.New(fault.TooLarge, "the event %s takes more than %d bytes", ev.Type, maxBody)
	}
	return string(encoded), err
}
