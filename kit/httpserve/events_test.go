package httpserve_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// deadlineWriter records the current deadlines, as the server's own writer would.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	read, write time.Time
	atWrite     time.Time // the write deadline during the last Write
	fail        error
}

func newDeadlineWriter() *deadlineWriter {
	d := time.Unix(1, 0)
	return &deadlineWriter{ResponseRecorder: httptest.NewRecorder(), read: d, write: d}
}

func (w *deadlineWriter) SetReadDeadline(t time.Time) error  { w.read = t; return nil }
func (w *deadlineWriter) SetWriteDeadline(t time.Time) error { w.write = t; return nil }
func (w *deadlineWriter) Write(p []byte) (int, error) {
	w.atWrite = w.write
	if w.fail != nil {
		return 0, w.fail
	}
	return w.ResponseRecorder.Write(p)
}

func openStream(t *testing.T, w http.ResponseWriter, r *http.Request) *httpserve.EventStream {
	t.Helper()
	s, err := httpserve.NewEventStream(w, r, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestAnEventStreamLiftsTheTimeoutsAndSetsOnePerWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newDeadlineWriter()
		s := openStream(t, w, httptest.NewRequest("GET", "/", nil))
		if !w.read.IsZero() || !w.write.IsZero() {
			t.Errorf("deadlines remain: %v, %v", w.read, w.write)
		}
		for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		if !w.Flushed {
			t.Error("the header was not flushed")
		}
		if err := s.Heartbeat(); err != nil {
			t.Fatal(err)
		}
		if got := time.Until(w.atWrite); got != 10*time.Second {
			t.Errorf("deadline in %s", got)
		}
		if !w.write.IsZero() {
			t.Error("a deadline stays after the write")
		}
	})
}

func TestSendWritesOneDataLineWhateverTheData(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := openStream(t, w, httptest.NewRequest("GET", "/", nil))
	for _, err := range []error{
		s.Send(7, "state", map[string]string{"text": "a\r\nb\n\nid: 9"}),
		s.Send(0, "", json.RawMessage("{\n\"a\":\n1}")),
		s.Heartbeat(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := "id: 7\nevent: state\ndata: {\"text\":\"a\\r\\nb\\n\\nid: 9\"}\n\n" + "data: {\"a\":1}\n\n" + ":\n\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if err := s.Send(8, "a\ndata: x", nil); err == nil {
		t.Error("an event name with a line break was sent")
	}
	if err := s.Send(8, "a", func() {}); err == nil {
		t.Error("data that JSON cannot hold was sent")
	}
}

func TestLastEventIDComesFromHeaderThenQuery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header, query string
		id            int64
		ok            bool
		field         string
	}{
		{"", "", 0, false, ""}, {"5", "", 5, true, ""}, {"", "6", 6, true, ""}, {"5", "6", 5, true, ""}, {"0", "", 0, true, ""},
		{"x", "", 0, false, "Last-Event-ID"}, {"", "-1", 0, false, "last_event_id"}, {"9999999999999999999", "", 0, false, "Last-Event-ID"},
	} {
		r := httptest.NewRequest("GET", "/?last_event_id="+c.query, nil)
		r.Header.Set("Last-Event-ID", c.header)
		w := httptest.NewRecorder()
		s, err := httpserve.NewEventStream(w, r, 0)
		if c.field != "" {
			if !fault.Is(err, fault.Invalid) || fault.From(err).Field != c.field || w.Flushed {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := s.LastEventID(); id != c.id || ok != c.ok {
			t.Errorf("%+v: %d %v", c, id, ok)
		}
		s.Close()
	}
}

// transcript is a response that can be read while it is written.
type transcript struct {
	*httptest.ResponseRecorder
	mu sync.Mutex
}

func newTranscript() *transcript { return &transcript{ResponseRecorder: httptest.NewRecorder()} }

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ResponseRecorder.Write(p)
}

func (w *transcript) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Body.String()
}

// history is a growing list of events 1..n, returned two at a time.
type history struct{ n, calls atomic.Int64 }

func newHistory(n int64) *history {
	h := &history{}
	h.n.Store(n)
	return h
}

func (h *history) fetch(_ context.Context, after int64) (events []httpserve.Event, _ error) {
	h.calls.Add(1)
	for id := after + 1; id <= h.n.Load() && len(events) < 2; id++ {
		events = append(events, httpserve.Event{ID: id, Data: id})
	}
	return events, nil
}

// ids returns the ids of the events in a stream's text, in order.
func ids(body string) (got []string) {
	for line := range strings.Lines(body) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "id: "); ok {
			got = append(got, id)
		}
	}
	return got
}

func TestLoopSendsEveryEventOnceInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, h := newTranscript(), newHistory(5)
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Last-Event-ID", "1")
		s := openStream(t, w, r)
		ctx, cancel := context.WithCancel(t.Context())
		wake, done := make(chan struct{}), make(chan error)
		go func() { done <- httpserve.Loop(ctx, s, wake, time.Minute, h.fetch) }()
		synctest.Wait()
		if got := strings.Join(ids(w.text()), " "); got != "2 3 4 5" {
			t.Errorf("history: %s", got)
		}
		h.n.Store(6)
		wake <- struct{}{}
		synctest.Wait()
		h.n.Store(8)
		time.Sleep(time.Minute) // until the poll
		synctest.Wait()
		if got := strings.Join(ids(w.text()), " "); got != "2 3 4 5 6 7 8" {
			t.Errorf("woken and polled: %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Loop = %v", err)
		}
	})
}

func TestLoopSendsAHeartbeatOnlyInSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, h := newTranscript(), newHistory(0)
		s := openStream(t, w, httptest.NewRequest("GET", "/", nil))
		wake, done := make(chan struct{}), make(chan error)
		go func() { done <- httpserve.Loop(t.Context(), s, wake, 0, h.fetch) }()
		beats := func() int { synctest.Wait(); return strings.Count(w.text(), ":\n\n") }
		time.Sleep(14 * time.Second)
		if got := beats(); got != 0 {
			t.Errorf("%d heartbeats before 15 s", got)
		}
		h.n.Store(1)
		wake <- struct{}{}
		synctest.Wait()
		time.Sleep(14 * time.Second)
		if got := beats(); got != 0 {
			t.Errorf("%d heartbeats within 15 s of an event", got)
		}
		time.Sleep(17 * time.Second)
		if got := beats(); got != 2 {
			t.Errorf("%d heartbeats after 31 s of silence", got)
		}
		close(wake) // must not turn into a busy loop
		calls := h.calls.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		if h.calls.Load() != calls {
			t.Errorf("%d fetches after wake was closed", h.calls.Load()-calls)
		}
		s.Close()
		if err := <-done; err != nil {
			t.Errorf("Loop = %v", err)
		}
	})
}

func TestLoopReportsAFailedFetchAndAStuckReader(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	s := openStream(t, httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	err := httpserve.Loop(
		t.Context(), s, nil, 0, func(context.Context, int64) ([]httpserve.Event, error) { return nil, boom },
	)
	if !errors.Is(err, boom) {
		t.Errorf("failed fetch: %v", err)
	}
	w := newDeadlineWriter()
	w.fail = boom
	s = openStream(t, w, httptest.NewRequest("GET", "/", nil))
	if err := httpserve.Loop(t.Context(), s, nil, 0, newHistory(1).fetch); !errors.Is(err, boom) {
		t.Errorf("stuck reader: %v", err)
	}
}

func TestLoopSkipsEventsThatWereSentBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTranscript()
		s := openStream(t, w, httptest.NewRequest("GET", "/", nil))
		s.StartAfter(2)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- httpserve.Loop(ctx, s, nil, 0, func(context.Context, int64) ([]httpserve.Event, error) {
				return []httpserve.Event{{ID: 1}, {ID: 3}, {ID: 3}, {ID: 2}}, nil
			})
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := strings.Join(ids(w.text()), " "); got != "3" {
			t.Errorf("sent %s", got)
		}
	})
}
