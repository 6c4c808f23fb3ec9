package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"regexp"
	"strconv"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/service/agent/backoff"
	"github.com/mainstay-infra/mainstay/service/agent/outbox"
)

const (
	// What one request holds at most, and the least to which a slow link brings it.
	maxForwardBytes = 1 << 20
	minForwardBytes = 8 << 10
	// A batch that does not get through in forwardTimeout is made smaller; a single
	// event cannot be, and has loneTimeout.
	forwardTimeout = time.Minute
	loneTimeout    = 15 * time.Minute
)

// window is how much the next batch may hold. It shrinks where requests are too
// much for the link or the server, and grows again, more slowly, with successes:
// on a link that breaks after some kilobytes every batch that is too large costs a
// connection.
type window struct {
	events    int
	bytes     int64
	successes int // in a row, at this size
	refusals  int // in a row, of a single event without saying what is wrong with it
}

func (w *window) grow() {
	w.refusals = 0
	if w.successes++; w.successes == growAfter {
		w.events, w.bytes, w.successes = min(w.events*2, outbox.MaxBatch), min(w.bytes*2, maxForwardBytes), 0
	}
}

// shrink halves the window after a batch failed as a whole.
func (w *window) shrink(batch []outbox.Stored) {
	bytes := int64(0)
	for _, e := range batch {
		bytes += e.Bytes
	}
	w.events, w.bytes, w.successes = max(1, len(batch)/2), max(min(w.bytes, bytes)/2, minForwardBytes), 0
}

const (
	growAfter = 4
	// A single event is given up when it was refused so often.
	maxRefusals = 3
)

// forward sends events in the order of their acceptance until ctx ends, a batch at
// a time.
func (a *Agent) forward(ctx context.Context) {
	retry := backoff.Backoff{Min: time.Second, Max: a.cfg.RetryMax, Rand: a.random}
	w := window{events: outbox.MaxBatch, bytes: maxForwardBytes}
	for {
		s, err := a.link.wait(ctx, a.random)
		if err != nil {
			return
		}
		batch, err := a.outbox.Next(ctx, w.events, w.bytes)
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
			err = a.forwardBatch(ctx, s, batch, &w)
		}
		if err == nil {
			retry.Reset()
			text := ""
			a.forwardError.Store(&text)
			continue
		}
		text := explain(err)
		a.forwardError.Store(&text)
		if !a.mishap(ctx, s, err, &retry) {
			return
		}
	}
}

// forwardBatch sends a batch and takes out of the outbox what was settled by it.
func (a *Agent) forwardBatch(ctx context.Context, s *session, batch []outbox.Stored, w *window) error {
	err := a.sendEvents(ctx, s, batch)
	if err == nil {
		w.grow()
		return a.settle(ctx, func() error { return a.outbox.Acknowledge(ctx, batch) })
	}
	var r *refusal
	var noAnswer *linkError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &noAnswer):
		w.shrink(batch)
		return err
	case !errors.As(err, &r) || !r.final():
		return err
	}
	if i, ok := namedEvent(r.field); ok && i < len(batch) {
		return a.settle(ctx, func() error { return a.outbox.Refuse(ctx, batch[i], r.message) })
	}
	if len(batch) > 1 {
		w.shrink(batch) // until the culprit is alone
		return nil
	}
	if w.refusals++; w.refusals < maxRefusals {
		return err
	}
	w.refusals = 0
	return a.settle(ctx, func() error { return a.outbox.Refuse(ctx, batch[0], r.message) })
}

// settle repeats what stores the result of an answered batch until it is stored:
// sending the batch again would be the worse way to overcome a full disk.
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

// namedEvent is the index in a field such as "events.17.topic".
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

func (a *Agent) sendEvents(ctx context.Context, s *session, batch []outbox.Stored) error {
	body := edgeapi.EventBatch{Events: make([]edgeapi.EventInput, len(batch))}
	for i := range batch {
		e := &batch[i]
		body.Events[i] = edgeapi.EventInput{EventId: &e.EventID, SiteId: s.site(), Topic: e.Topic, Payload: json.RawMessage(e.Payload), EventTime: &e.EventTime.Time}
		if len(e.Headers.V) > 0 {
			headers := edgeapi.Headers(e.Headers.V)
			body.Events[i].Headers = &headers
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // a payload full of < would grow beyond what the server takes
	if err := encoder.Encode(body); err != nil {
		return err
	}
	timeout := forwardTimeout
	if len(batch) == 1 {
		timeout = loneTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, _, err := read(s.api.IngestEventsWithBody(limited, "application/json", &text))
	return err
}

// mishap deals with an error of a request: it waits as long as the next one should
// be delayed, and reports false if ctx ended meanwhile.
func (a *Agent) mishap(ctx context.Context, s *session, err error, retry *backoff.Backoff) bool {
	if ctx.Err() != nil {
		return false
	}
	if a.endedBy(s, err) != nil {
		return true // there is no link any more, which link.wait knows
	}
	wait := retry.Next(asked(err))
	var noAnswer *linkError
	var refused *refusal
	switch {
	case errors.As(err, &noAnswer) && !isTimeout(err):
		a.link.fail(err) // a heartbeat decides when it goes on
	case errors.As(err, &noAnswer), errors.As(err, &refused):
		a.log.Info("a request to the control plane is tried again", "error", explain(err), "in", wait.Round(time.Millisecond))
	default:
		a.log.Error("the agent is in trouble itself; trying again", "error", err, "in", wait.Round(time.Millisecond))
	}
	return backoff.Sleep(ctx, wait)
}
