package operation_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/operation"
)

// watch follows an operation, and returns a function that reads the next event's data, or "end" at
// the end.
func (s *service) watch(id string) (next func() string) {
	s.Helper()
	return s.watchAfter(id, "")
}

// watchAfter is like watch, for a client that has seen the event with an id.
func (s *service) watchAfter(id, seen string) (next func() string) {
	s.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := func(ctx context.Context, wait time.Duration) (any, *operation.Operation, error) {
			o, err := s.get(id)
			if err == nil {
				err = s.Await(ctx, &o, wait)
			}
			return words.Of(&o), &o, err
		}
		err := operation.Watch(s.ending, w, r, "step", next)
		if err != nil {
			w.WriteHeader(fault.KindOf(err).HTTPStatus())
		}
	}))
	s.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", seen)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		return func() string { return res.Status }
	}
	lines := bufio.NewScanner(res.Body)
	return func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		return "end"
	}
}

func TestAnOperationIsWatchedToItsEnd(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.SQLite(t, tables))
	o := s.begun(t.Context(), "fence")
	next := s.watch(o.ID)
	if got := next(); got != `"pending"` {
		t.Errorf("first %s", got)
	}
	end := make(chan struct{})
	s.work <- func(context.Context, func(float64)) error { <-end; return nil }
	s.run()
	if got := next(); got != `"in progress"` {
		t.Errorf("then %s", got)
	}
	close(end)
	if got := next() + next(); got != `"done"end` {
		t.Errorf("at last %s", got)
	}
	if again := s.watch(o.ID); again() != `"done"` || again() != "end" {
		t.Error("one that has ended is not shown once")
	}
	ended, err := s.get(o.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.watchAfter(o.ID, fmt.Sprint(ended.Revision()))(); got != "end" {
		t.Errorf("a client that has seen the end gets %s", got)
	}
	if got := s.watchAfter(o.ID, "1")(); got != `"done"` {
		t.Errorf("a client that has seen the beginning gets %s", got)
	}
	if got := s.watch("none")(); got != "404 Not Found" {
		t.Errorf("one that there is not: %s", got)
	}
}

func TestAWatchEndsWithTheService(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.SQLite(t, tables))
	next := s.watch(s.begun(t.Context(), "fence").ID)
	if got := next(); got != `"pending"` {
		t.Errorf("first %s", got)
	}
	s.end()
	if got := next(); got != "end" {
		t.Errorf("then %s", got)
	}
}
