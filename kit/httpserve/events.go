package httpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	defaultHeartbeat = 15 * time.Second
	// eventWriteTimeout disconnects a client that reads nothing for this long.
	eventWriteTimeout = 10 * time.Second
)

// Event is one message of an event stream.
type Event struct {
	ID   int64  // positive and increasing; the client sends it back when it reconnects
	Name string // the event's type; empty means "message"
	Data any    // encoded as JSON
}

// EventStream writes server-sent events (HTML standard, section 9.2). It is not safe for concurrent
// use.
type EventStream struct {
	w         http.ResponseWriter
	rc        *http.ResponseController
	ctx       context.Context
	cancel    context.CancelFunc
	heartbeat time.Duration
	last      int64
	resumed   bool
	end       func() // releases the stream's slot; nil if none was taken
	buf       bytes.Buffer
}

// NewEventStream starts a stream: it sends the header and lifts the server's read and write
// timeouts for this response. heartbeat is how long the stream may be silent before Loop sends a
// comment that keeps proxies from closing it; 0 means 15 s. The caller must call Close.
//
// A Last-Event-ID that is not a whole number from 0 is a fault of kind Invalid, and nothing is
// sent. A browser cannot set that header on a first connection, so the query parameter
// last_event_id is accepted too; the header takes precedence. A caller with too many streams gets a
// fault of kind TooMany (LimitInFlight).
func NewEventStream(w http.ResponseWriter, r *http.Request, heartbeat time.Duration) (*EventStream, error) {
	if heartbeat <= 0 {
		heartbeat = defaultHeartbeat
	}
	s := &EventStream{w: w, rc: http.NewResponseController(w), heartbeat: heartbeat}
	field, id := "Last-Event-ID", r.Header.Get("Last-Event-ID")
	if id == "" {
		field, id = "last_event_id", r.URL.Query().Get("last_event_id")
	}
	if id != "" {
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil || n < 0 {
			return nil, fault.InvalidField(field, "must be a whole number from 0")
		}
		s.last, s.resumed = n, true
	}

	// The server's read deadline would end the request's context in the middle of
	// the stream, and its write deadline would fail a later write.
	if err := s.setDeadlines(); err != nil {
		return nil, fmt.Errorf("httpserve: event stream: %w", err)
	}
	if x := exchangeOf(r.Context()); x != nil {
		var err error
		if s.end, err = x.asStream(); err != nil {
			return nil, err
		}
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer events
	w.WriteHeader(http.StatusOK)
	s.ctx, s.cancel = StreamContext(r.Context())
	if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.Close()
		return nil, fmt.Errorf("httpserve: event stream: %w", err)
	}
	return s, nil
}

func (s *EventStream) setDeadlines() error {
	for _, set := range []func(time.Time) error{s.rc.SetReadDeadline, s.rc.SetWriteDeadline} {
		if err := set(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	return nil
}

// Context returns a context that ends when the client disconnects, the server begins to drain, or
// Close is called.
func (s *EventStream) Context() context.Context { return s.ctx }

// Close releases the stream's context. The response ends when the handler
// returns.
func (s *EventStream) Close() {
	s.cancel()
	if s.end != nil {
		s.end()
	}
}

// LastEventID returns the last id that the client has seen. ok is false if it sent none.
func (s *EventStream) LastEventID() (id int64, ok bool) { return s.last, s.resumed }

// StartAfter makes Loop begin after id. It is for clients without a LastEventID that should not
// receive the whole history.
func (s *EventStream) StartAfter(id int64) { s.last = id }

// Send writes one event and flushes it. An id of 0 is omitted. data is encoded as one line of JSON.
// The event's name must not contain a line break. Any error except one from encoding data means
// that the stream has ended.
func (s *EventStream) Send(id int64, event string, data any) error {
	if strings.ContainsAny(event, "\r\n") {
		return fmt.Errorf("httpserve: event name %q contains a line break", event)
	}
	// json.Marshal escapes line breaks in strings and removes those between
	// tokens, in a json.RawMessage too, so one data line always suffices.
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("httpserve: event %d: %w", id, err)
	}
	s.buf.Reset()
	if id != 0 {
		fmt.Fprintf(&s.buf, "id: %d\n", id)
	}
	if event != "" {
		fmt.Fprintf(&s.buf, "event: %s\n", event)
	}
	s.buf.WriteString("data: ")
	s.buf.Write(text)
	s.buf.WriteString("\n\n")
	if err := s.write(); err != nil {
		return err
	}
	s.last = max(s.last, id)
	return nil
}

// Heartbeat writes a comment, which clients ignore.
func (s *EventStream) Heartbeat() error {
	s.buf.Reset()
	s.buf.WriteString(":\n\n")
	return s.write()
}

func (s *EventStream) write() error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	err := s.rc.SetWriteDeadline(time.Now().Add(eventWriteTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("httpserve: event stream: %w", err)
	}
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return fmt.Errorf("httpserve: event stream: %w", err)
	}
	if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("httpserve: event stream: %w", err)
	}
	// HTTP/2 resets the stream when a deadline passes even if nothing is being written, so the
	// deadline must be cleared.
	err = s.rc.SetWriteDeadline(time.Time{})
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("httpserve: event stream: %w", err)
	}
	return nil
}

// Loop sends the events that fetch returns until ctx or the stream's Context ends, and then returns
// nil. It returns any error of fetch or of a write.
//
// fetch returns events with ids greater than after, in ascending order, as many as it likes; others
// are skipped. Loop calls it repeatedly until it returns nothing new, then whenever wake yields or
// poll has passed (0 means never). A closed wake channel is treated as one that never yields.
func Loop(ctx context.Context, s *EventStream, wake <-chan struct{}, poll time.Duration,
	fetch func(ctx context.Context, after int64) ([]Event, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	heartbeat := time.NewTimer(s.heartbeat)
	defer heartbeat.Stop()
	var polled <-chan time.Time
	if poll > 0 {
		t := time.NewTicker(poll)
		defer t.Stop()
		polled = t.C
	}
	for {
		sent, err := s.sendNew(ctx, fetch)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if sent {
			heartbeat.Reset(s.heartbeat)
		}
	wait:
		for {
			select {
			case <-ctx.Done():
				return nil
			case _, ok := <-wake:
				if !ok {
					wake = nil
					continue
				}
				break wait
			case <-polled:
				break wait
			case <-heartbeat.C:
				if err := s.Heartbeat(); err != nil {
					if ctx.Err() != nil {
						return nil
					}
					return err
				}
				heartbeat.Reset(s.heartbeat)
			}
		}
	}
}

// sendNew sends events until fetch returns no new ones.
func (s *EventStream) sendNew(
	ctx context.Context, fetch func(context.Context, int64) ([]Event, error),
) (sent bool, err error) {
	for {
		events, err := fetch(ctx, s.last)
		if err != nil {
			return sent, err
		}
		progress := false
		for _, e := range events {
			if e.ID <= s.last {
				continue
			}
			if err := s.Send(e.ID, e.Name, e.Data); err != nil {
				return sent, err
			}
			progress, sent = true, true
		}
		if !progress {
			return sent, nil
		}
	}
}
