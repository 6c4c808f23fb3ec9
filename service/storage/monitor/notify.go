package monitor

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// notice is a message that is still to be told.
type notice struct {
	ID        string  `db:"id"`
	Body      string  `db:"body"`
	Attempt   int64   `db:"attempt"`
	DueAt     db.Time `db:"due_at"`
	CreatedAt db.Time `db:"created_at"`
}

const (
	// noticesAtOnce is how many messages a pass sends.
	noticesAtOnce = 50
	// noticeLease is how long a replica has for a message that it has taken.
	noticeLease = time.Minute
	// noticeKept is how long a message is tried.
	noticeKept = day
)

// hook is where alerts are told.
type hook struct {
	url      string
	secret   webhook.Secret
	client   *webhook.Client
	schedule backoff.Schedule
}

// guard lets the operator's target be inside the network, where it usually is.
var guard = webhook.Guard{AllowPrivate: true}

// CheckWebhook returns a fault that names the setting if a webhook's URL or secret is not one.
func CheckWebhook(url, secret string) error {
	_, err := newHook(Config{URL: url, Secret: secret})
	return err
}

func newHook(c Config) (*hook, error) {
	if c.URL == "" {
		return nil, nil
	}
	h := &hook{url: c.URL, client: webhook.NewClient(guard, webhook.Options{})}
	if _, err := guard.CheckURL(c.URL); err != nil {
		return nil, fault.InvalidField("alert-webhook-url", "%s", fault.From(err).Message)
	}
	if c.Secret != "" {
		var err error
		if h.secret, err = webhook.ParseSecret(c.Secret); err != nil {
			return nil, fault.InvalidField("alert-webhook-secret", "%s", fault.From(err).Message)
		}
	}
	return h, nil
}

// Message is what the webhook is told about an alert.
type Message struct {
	Type      string    `json:"type"` // alert.opened or alert.resolved
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		ID           string          `json:"id"`
		Source       string          `json:"source"`
		Severity     string          `json:"severity"`
		Title        string          `json:"title"`
		Description  string          `json:"description"`
		ResourceType string          `json:"resource_type"`
		ResourceID   string          `json:"resource_id"`
		TenantID     string          `json:"tenant_id"`
		Evidence     json.RawMessage `json:"evidence"`
	} `json:"data"`
}

func message(a *alert.Alert, now time.Time) Message {
	m := Message{Type: "alert.opened", Timestamp: now}
	if a.Status == alert.Resolved {
		m.Type = "alert.resolved"
	}
	k := Kinds[a.Kind]
	m.Data.ID, m.Data.Source, m.Data.Severity, m.Data.Title = a.ID, a.Kind, a.Severity, k.Title
	m.Data.Description, m.Data.ResourceType, m.Data.ResourceID, m.Data.TenantID = a.Message, k.Resource, a.Subject, a.OrgID
	m.Data.Evidence = json.RawMessage(Evidence(a))
	return m
}

// Evidence returns the numbers that an alert was found by, as the text of a JSON object.
func Evidence(a *alert.Alert) string {
	if a.Evidence == "" {
		return "{}"
	}
	return a.Evidence
}

// Notify sends the messages that are due.
func (m *Monitor) Notify(ctx context.Context) error {
	if m.hook == nil {
		return nil
	}
	begun := m.cfg.Now()
	due, err := m.takeNotices(ctx, begun)
	for i := 0; i < len(due) && err == nil; i++ {
		if m.cfg.Now().Sub(begun) > noticeLease-webhook.DefaultTimeout {
			break // the others are due again when the lease ends
		}
		err = m.send(ctx, &due[i])
	}
	return err
}

// takeNotices takes messages that are due, so that no other replica sends them meanwhile.
func (m *Monitor) takeNotices(ctx context.Context, now time.Time) (due []notice, err error) {
	err = m.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		if err := tx.Select(ctx, &due, "SELECT * FROM alert_notices WHERE due_at <= ? ORDER BY due_at, id LIMIT ?"+
			tx.ForUpdateSkipLocked(), db.At(now), noticesAtOnce); err != nil {
			return err
		}
		for _, n := range due {
			if _, err := tx.Exec(ctx, "UPDATE alert_notices SET due_at = ?, attempt = attempt + 1 WHERE id = ?",
				db.At(now.Add(noticeLease)), n.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return due, err
}

func (m *Monitor) send(ctx context.Context, n *notice) error {
	res := m.hook.client.Send(ctx, webhook.Request{URL: m.hook.url, Body: []byte(n.Body), ID: n.ID, Secret: m.hook.secret})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	outcome, now := webhook.Classify(res.Status, res.Err), m.cfg.Now()
	if outcome != webhook.Delivered {
		m.cfg.Log.Warn("the webhook was not told about an alert", "problem", res.Problem(), "attempt", n.Attempt+1)
	}
	return m.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		if outcome == webhook.Retry && now.Sub(n.CreatedAt.Time) < noticeKept {
			wait := max(res.RetryAfter, m.hook.schedule.Delay(int(n.Attempt), rand.Float64))
			_, err := tx.Exec(ctx, "UPDATE alert_notices SET due_at = ? WHERE id = ?", db.At(now.Add(wait)), n.ID)
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM alert_notices WHERE id = ?", n.ID)
		return err
	})
}
