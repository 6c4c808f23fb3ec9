package audit

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// Endpoint receives checkpoints as Standard Webhooks, at most one per minute.
type Endpoint struct {
	URL    string // empty: none are sent
	Secret string // "whsec_..."; empty: they have no webhook signature, only the checkpoint's own
}

// sender sends the newest checkpoint. A newer one replaces a pending one.
type sender struct {
	endpoint Endpoint
	secret   webhook.Secret
	client   *webhook.Client
	next     chan Checkpoint
	trouble  *telemetry.Trouble
	pause    time.Duration
	schedule backoff.Schedule
}

func newSender(e Endpoint, log *slog.Logger) (*sender, error) {
	if e.URL == "" {
		return nil, nil
	}
	// The target is chosen by the operator, not a customer, and is usually inside the network.
	guard := webhook.Guard{AllowPrivate: true}
	s := &sender{
		endpoint: e,
		next:     make(chan Checkpoint, 1),
		pause:    minute,
		client:   webhook.NewClient(guard, webhook.Options{}),
		trouble:  telemetry.NewTrouble(log, "audit checkpoints cannot be sent"),
	}
	if _, err := guard.CheckURL(e.URL); err != nil {
		return nil, fault.InvalidField("audit-checkpoint-url", "%s", fault.From(err).Message)
	}
	if e.Secret != "" {
		var err error
		if s.secret, err = webhook.ParseSecret(e.Secret); err != nil {
			return nil, fault.InvalidField("audit-checkpoint-secret", "%s", fault.From(err).Message)
		}
	}
	return s, nil
}

// offer queues a checkpoint. It never blocks.
func (s *sender) offer(p Checkpoint) {
	for {
		select {
		case s.next <- p:
			return
		default:
		}
		select {
		case <-s.next:
		default:
		}
	}
}

// run sends until ctx ends. Sending is best effort; the file is authoritative.
func (s *sender) run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	for attempt := 0; ; {
		var p Checkpoint
		select {
		case <-ctx.Done():
			return
		case p = <-s.next:
		}
		wait := s.pause
		err := s.send(ctx, p)
		if ctx.Err() != nil {
			return
		}
		s.trouble.Report(err)
		if err == nil {
			attempt = 0
		} else {
			wait = s.schedule.Delay(attempt, rand.Float64)
			attempt++
			select {
			case s.next <- p: // unless a newer one is pending
			default:
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func (s *sender) send(ctx context.Context, p Checkpoint) error {
	res := s.client.Send(ctx, webhook.Request{
		URL:    s.endpoint.URL,
		Body:   p.line(),
		ID:     fmt.Sprintf("audit-%s-%d-%d", p.Genesis, p.Segment, p.Seq),
		Secret: s.secret,
	})
	if res.Err != nil {
		return res.Err
	}
	if webhook.Classify(res.Status, nil) != webhook.Delivered {
		return fmt.Errorf("the endpoint answered %d", res.Status)
	}
	return nil
}
