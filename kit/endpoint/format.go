package endpoint

import (
	"encoding/json"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/mail"
)

// Format is the format of a request's body.
type Format string

// The formats. A chat gets only the text of an event, and decides how to show it.
const (
	Standard Format = "standard" // Standard Webhooks: type, timestamp and data, signed
	Slack    Format = "slack"    // incoming webhooks of Slack and compatible ones, such as Mattermost
	Teams    Format = "teams"    // Microsoft Teams: an Adaptive Card, as accepted by its workflows
	Discord  Format = "discord"
	Gotify   Format = "gotify" // a Gotify server; the secret is the token of its application
	Email    Format = "email"  // a mail server (package mail); the secret is the password
)

func (f Format) known() bool {
	switch f {
	case Standard, Slack, Teams, Discord, Gotify, Email:
		return true
	}
	return false
}

// Event is an event that endpoints may subscribe to.
type Event struct {
	Type string // such as "vm.started"
	At   time.Time
	Text string // a sentence for people, shown in chats
	// Urgent events, such as failures, get a higher priority where the format has one.
	Urgent bool
	Tags   []string // of what it is about; see Endpoint.Tags
	Data   any      // for programs
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
	case Gotify:
		priority := 4 // shown; from 8 on, clients also make a sound
		if ev.Urgent {
			priority = 8
		}
		content = object{"title": ev.Type, "message": shown, "priority": priority}
	case Email:
		at := ev.At.UTC().Format(time.RFC3339)
		content = mail.Message{At: ev.At, Subject: ev.Text, Text: ev.Text + "\n\n" + ev.Type + ", " + at}
	default:
		content = object{"type": ev.Type, "timestamp": ev.At.UTC().Format(time.RFC3339Nano), "data": ev.Data}
	}
	encoded, err := json.Marshal(content)
	if err == nil && len(encoded) > maxBody {
		err = fault.New(fault.TooLarge, "the event %s takes more than %d bytes", ev.Type, maxBody)
	}
	return string(encoded), err
}
