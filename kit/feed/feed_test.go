package feed_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/feed"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// counter is a feed of numbers, from 1 to the newest.
type counter struct {
	newest atomic.Int64
	bell   feed.Bell
	ended  atomic.Bool // callers may not read any more
}

func (c *counter) count() {
	c.newest.Add(1)
	c.bell.Ring()
}

func (c *counter) serve(t *testing.T) string {
	f := feed.Feed{Newest: func(context.Context) (int64, error) { return c.newest.Load(), nil }, Bell: &c.bell, Poll: time.Hour}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := f.Serve(w, r, func(_ context.Context, after int64) ([]httpserve.Event, error) {
			if c.ended.Load() {
				return nil, fault.New(fault.Unauthenticated, "the token was revoked")
			}
			if after >= c.newest.Load() {
				return nil, nil
			}
			return []httpserve.Event{{ID: after + 1, Name: "number", Data: after + 1}}, nil
		})
		if err != nil {
			t.Errorf("the stream ended with %v", err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// follow opens a stream and returns a function that reads its next number.
func follow(t *testing.T, url, lastEventID string) (next func() string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastEventID != "" {
		r.Header.Set("Last-Event-ID", lastEventID)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	return func() string {
		for lines.Scan() {
			if number, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return number
			}
		}
		return "end"
	}
}

func TestAStreamBeginsWithWhatHappensNextOrWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	c := &counter{}
	c.newest.Store(3)
	url := c.serve(t)
	fresh, resumed := follow(t, url, ""), follow(t, url, "1")
	if got := resumed() + resumed(); got != "23" {
		t.Errorf("after 1: %s", got)
	}
	c.count()
	if got := fresh(); got != "4" {
		t.Errorf("a new stream begins with %s", got)
	}
	if got := resumed(); got != "4" {
		t.Errorf("a resumed stream goes to %s", got)
	}
}

func TestAStreamContinuesAfterABackupWasRestored(t *testing.T) {
	t.Parallel()
	c := &counter{}
	c.newest.Store(3)
	next := follow(t, c.serve(t), "1000")
	c.count()
	if got := next(); got != "4" {
		t.Errorf("a client that has seen 1000 goes on with %s, and the newest is 4", got)
	}
}

func TestAHeadOfAStreamEnds(t *testing.T) {
	t.Parallel()
	res, err := http.Head((&counter{}).serve(t)) //nolint:noctx // of this test's own server
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // it has none
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
}

func TestAStreamEndsWithTheRightsOfItsCaller(t *testing.T) {
	t.Parallel()
	c := &counter{}
	next := follow(t, c.serve(t), "")
	c.count()
	if got := next(); got != "1" {
		t.Fatal(got)
	}
	c.ended.Store(true)
	c.count()
	if got := next(); got != "end" {
		t.Errorf("a caller whose token was revoked reads %s", got)
	}
}

func TestAFeedThatCannotBeReadIsNotOpened(t *testing.T) {
	t.Parallel()
	broken := errors.New("the database is away")
	f := feed.Feed{Newest: func(context.Context) (int64, error) { return 0, broken }, Bell: &feed.Bell{}}
	w := httptest.NewRecorder()
	err := f.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), nil)
	if !errors.Is(err, broken) || w.Body.Len() > 0 {
		t.Errorf("%v, %s", err, w.Body)
	}
}

func TestABellRemembersARingForEachOfItsSubscribers(t *testing.T) {
	t.Parallel()
	var b feed.Bell
	b.Ring() // nobody listens
	one, leave := b.Subscribe()
	two, leaveToo := b.Subscribe()
	defer leaveToo()
	b.Ring()
	b.Ring()
	for _, ch := range []<-chan struct{}{one, two} {
		<-ch
		select {
		case <-ch:
			t.Error("two rings are not one")
		default:
		}
	}
	leave()
	b.Ring()
	select {
	case <-one:
		t.Error("somebody who has left is woken")
	default:
	}
	<-two
}
