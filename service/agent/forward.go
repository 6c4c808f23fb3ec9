package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
	"github.com/mainstay-infra/mainstay/service/agent/outbox"
)

const (
	// If a batch does not get through within forwardTimeout, the next one is smaller. A single
	// event cannot be split, so it has loneTimeout.
	forwardTimeout = time.Minute
	loneTimeout    = 15 * time.Minute
)

// forward sends events in the order of their acceptance, in batches, until ctx ends.
func (a *Agent) forward(ctx context.Context) {
	retry := a.newBackoff()
	f := newForwarder(a)
	for {
		s, err := a.link.wait(ctx, a.random)
		if err != nil {
			return
		}
		batch, err := a.outbox.Next(ctx, f.window.events, f.window.bytes)
		if err == nil && len(batch) == 0 {
			a.forwardError.Store(new(string))
			select {
			case <-a.outbox.Added():
				continue
			case <-ctx.Done():
				return
			}
		}
		if err == nil {
			err = f.forwardBatch(ctx, s, batch)
		}
		if err == nil {
			if !f.suspect.isSuspected() {
				retry.Reset()
				a.forwardError.Store(new(string))
			}
			continue
		}
		text := explain(err)
		a.forwardError.Store(&text)
		if !a.mishap(ctx, err, &retry, f.suspect.newcomers(a.outbox.Added())) {
			return
		}
	}
}

// forwarder sends batches. Only forward uses it.
type forwarder struct {
	*Agent
	window  window
	suspect suspect
}

func newForwarder(a *Agent) *forwarder {
	return &forwarder{Agent: a, window: window{events: outbox.MaxBatch, bytes: maxForwardBytes}}
}

// forwardBatch sends a batch, and removes from the outbox the events whose fate is settled.
func (f *forwarder) forwardBatch(ctx context.Context, s *session, batch []outbox.Stored) error {
	if f.suspect.isSuspected() && f.suspect.seq == batch[0].Seq {
		batch = batch[:1] // in a batch, it would only be refused again
	}
	err := f.sendEvents(ctx, s, batch)
	if err == nil {
		f.window.grow()
		f.suspect = suspect{}
		return f.settle(ctx, func() error { return f.outbox.Acknowledge(ctx, batch) })
	}
	var r *answer.Refusal
	var noAnswer *answer.LinkError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &noAnswer):
		f.window.shrink(batch, 2)
		return err
	case !errors.As(err, &r) || !mayBeTheEvent(r):
		return err
	}
	if i, ok := namedEvent(r.Field); ok && r.Final() && i < len(batch) {
		return f.settle(ctx, func() error { return f.outbox.Refuse(ctx, batch[i], r.Error()) })
	}
	if len(batch) == 1 {
		return f.examine(ctx, s, &batch[0], err)
	}
	// Shrink the batch until it contains only the refused event.
	if r.Status >= 500 {
		f.window.shrink(batch, 8) // it may also be the server's fault, so make few attempts
		return err
	}
	f.window.shrink(batch, 2)
	return nil
}

// examine handles the oldest event after it was refused alone. It sets the event aside only if the
// server accepts others, so that no event is lost to a server that refuses everything.
func (f *forwarder) examine(ctx context.Context, s *session, e *outbox.Stored, refusal error) error {
	if !f.suspect.refusedAgain(e.Seq) {
		return refusal
	}
	found, err := f.anotherIsAccepted(ctx, s, e.Seq)
	if err != nil {
		return err
	}
	if !found {
		return refusal
	}
	// Try it once more, at a moment when the server does accept events.
	var r *answer.Refusal
	switch err := f.sendEvents(ctx, s, []outbox.Stored{*e}); {
	case err == nil:
		f.suspect = suspect{}
		return f.settle(ctx, func() error { return f.outbox.Acknowledge(ctx, []outbox.Stored{*e}) })
	case !errors.As(err, &r) || !mayBeTheEvent(r):
		return err
	}
	f.suspect = suspect{}
	return f.settle(ctx, func() error { return f.outbox.Refuse(ctx, *e, r.Error()) })
}

// anotherIsAccepted sends events that follow the suspected one, each alone. It reports whether one
// was accepted, and stops after maxProbes attempts.
func (f *forwarder) anotherIsAccepted(ctx context.Context, s *session, seq int64) (bool, error) {
	for range maxProbes {
		e, err := f.outbox.After(ctx, seq, f.suspect.probed)
		if err != nil {
			return false, err
		}
		if e == nil {
			f.suspect.alone = f.suspect.probed == 0
			f.suspect.probed = 0 // start over the next time
			return false, nil
		}
		f.suspect.alone = false
		probe := []outbox.Stored{*e}
		err = f.sendEvents(ctx, s, probe)
		if err == nil {
			return true, f.settle(ctx, func() error { return f.outbox.Acknowledge(ctx, probe) })
		}
		var r *answer.Refusal
		if !errors.As(err, &r) || !mayBeTheEvent(r) {
			return false, err
		}
		f.suspect.probed++
	}
	return false, nil
}

// settle retries store until it succeeds or ctx ends. Sending the batch again would be a worse way
// to deal with a full disk.
func (a *Agent) settle(ctx context.Context, store func() error) error {
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 30 * time.Second, Rand: a.random}
	for {
		err := store()
		if err == nil {
			return nil
		}
		a.log.Error("what the control plane has answered cannot be stored; trying again", "error", err)
		if !backoff.Sleep(ctx, retry.Next(0)) {
			return err
		}
	}
}

var eventField = regexp.MustCompile(`^events\.(\d+)\.`)

// namedEvent returns the index in a field such as "events.17.topic".
func namedEvent(field string) (int, bool) {
	m := eventField.FindStringSubmatch(field)
	if m == nil {
		return 0, false
	}
	i, err := strconv.Atoi(m[1])
	return i, err == nil
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// sendEvents sends a batch. It returns nil only if the control plane has sent a receipt for each
// event.
func (a *Agent) sendEvents(ctx context.Context, s *session, batch []outbox.Stored) error {
	body := edgeapi.EventBatch{Events: make([]edgeapi.EventInput, len(batch))}
	for i := range batch {
		e := &batch[i]
		body.Events[i] = edgeapi.EventInput{
			EventId:   &e.EventID,
			SiteId:    s.site(),
			Topic:     e.Topic,
			Payload:   json.RawMessage(e.Payload),
			EventTime: &e.EventTime.Time,
		}
		if len(e.Headers.V) > 0 {
			headers := edgeapi.Headers(e.Headers.V)
			body.Events[i].Headers = &headers
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // escaping could make a payload with many < larger than the server accepts
	if err := encoder.Encode(body); err != nil {
		return err
	}
	timeout := forwardTimeout
	if len(batch) == 1 {
		timeout = loneTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	receipts, err := answer.Decode[[]edgeapi.EventReceipt](
		answer.Read(s.api.IngestEventsWithBody(limited, "application/json", &text)),
	)
	if err != nil {
		return err
	}
	return checkReceipts(batch, receipts)
}

// checkReceipts compares the receipts with the events that were sent. A receipt means that the
// control plane has the event, whether it is new or a duplicate.
func checkReceipts(batch []outbox.Stored, receipts []edgeapi.EventReceipt) error {
	if len(receipts) != len(batch) {
		return answer.NewInvalid("it has %d receipts for %d events", len(receipts), len(batch))
	}
	for i, receipt := range receipts {
		if receipt.EventId != batch[i].EventID {
			return answer.NewInvalid("receipt %d is for event %.128q, not %s", i, receipt.EventId, batch[i].EventID)
		}
	}
	return nil
}

// mishap handles the error of a request. It waits until the next attempt is due or early receives a
// value, and reports false if ctx ends first.
func (a *Agent) mishap(ctx context.Context, err error, retry *backoff.Backoff, early <-chan struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	wait := retry.Next(answer.RetryAfter(err))
	var noAnswer *answer.LinkError
	var refused *answer.Refusal
	var invalid *answer.Invalid
	switch {
	case errors.As(err, &noAnswer) && !isTimeout(err):
		a.link.fail(err) // the next heartbeat decides when to continue
	case errors.As(err, &refused) && (refused.EndsSite() || refused.Status == http.StatusUnauthorized):
		a.link.fail(err) // the next heartbeat finds out what that means
	case errors.As(err, &invalid):
		a.log.Warn(
			"an answer is not believed; the request is tried again",
			"error",
			explain(err),
			"in",
			wait.Round(time.Millisecond).String(),
		)
	case errors.As(err, &noAnswer), errors.As(err, &refused):
		a.log.Info(
			"a request to the control plane is tried again",
			"error",
			explain(err),
			"in",
			wait.Round(time.Millisecond).String(),
		)
	default:
		a.log.Error(
			"the agent is in trouble itself; trying again",
			"error",
			err,
			"in",
			wait.Round(time.Millisecond).String(),
		)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-early:
		return true
	case <-ctx.Done():
		return false
	}
}
