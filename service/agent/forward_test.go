package agent_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/service/agent"
)

// dislike has the control plane refuse the events whose ids begin with "bad".
func (l *lab) dislike(status int, body string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dislikes = func(id string) bool { return strings.HasPrefix(id, "bad") }
	l.dislikeStatus, l.dislikeBody = status, body
}

func (l *lab) likeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dislikes = nil
}

// setAside are the ids of the events that are set aside, newest first.
func (l *lab) setAside() []string {
	ids := []string{}
	for _, e := range l.status().Outbox.LastRefused {
		ids = append(ids, e.EventId)
	}
	return ids
}

func TestAnEventThatIsRefusedIsSetAsideAndTheOthersGoOnInTheirOrder(t *testing.T) {
	t.Parallel()
	words := func(code, field string) string {
		return fmt.Sprintf(`{"error":{"code":%q,"message":"m","field":%q,"request_id":"r"}}`, code, field)
	}
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			status int
			body   string
		}{
			"500":                 {500, words("internal", "")},
			"500 of a proxy":      {500, "<html>"},
			"422":                 {422, words("invalid", "")},
			"400":                 {400, words("invalid", "")},
			"400, named":          {400, words("invalid", "events.%d.topic")},
			"400, wrongly named":  {400, words("invalid", "events.9999.topic")},
			"413":                 {413, words("too_large", "")},
			"413 of a proxy":      {413, "<html>"},
			"403":                 {403, words("denied", "")},
			"409":                 {409, words("conflict", "")},
			"404":                 {404, words("not_found", "")},
			"500, in odd letters": {500, strings.Repeat("\xff\x00", 10)},
		} {
			l := newLab(t, func(*agent.Config) {})
			l.set(refuse(http.StatusServiceUnavailable, "away")) // so that all wait at first
			l.dislike(c.status, c.body)
			var good, all []string
			for i := range 300 {
				id := fmt.Sprintf("e%03d", i)
				if i == 100 || i == 101 || i == 299 { // two in a row, and the last
					id = "bad" + id
				} else {
					good = append(good, id)
				}
				all = append(all, id)
			}
			l.send(all...)
			l.later(time.Minute)
			l.set(well)
			l.later(45 * time.Minute)
			got := l.has()
			if slices.Sort(got); !slices.Equal(got, good) {
				t.Errorf("%s: %d of %d events arrived", name, len(got), len(good))
			}
			// The last one is not known to be bad, there being none to compare it with.
			l.send("new")
			l.later(15 * time.Minute)
			if got := l.setAside(); !slices.Equal(got, []string{"bade299", "bade101", "bade100"}) {
				t.Errorf("%s: set aside are %v", name, got)
			}
			if s := l.status(); s.Outbox.Events != 0 || s.Outbox.Forwarded != 298 || s.Outbox.LastError != "" {
				t.Errorf("%s: %+v", name, s.Outbox)
			}
			// Once it is mended, a person sends them again.
			l.likeAll()
			if w := request(
				l.agent.Handler(),
				"POST",
				"/v1/events/refused/retry",
				`{"all":true}`,
			); w.Code != http.StatusOK ||
				!strings.Contains(w.Body.String(), "3") {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			l.later(15 * time.Minute)
			if got, s := l.has(), l.status(); s.Outbox.SetAside != 0 ||
				!slices.Equal(got[len(got)-4:], []string{"new", "bade100", "bade101", "bade299"}) {
				t.Errorf("%s: in the end %v, %+v", name, got[len(got)-4:], s.Outbox)
			}
			l.stop()
		}
	})
}

func TestOrderIsKeptAroundAnEventThatIsSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(*agent.Config) {})
		l.set(refuse(http.StatusServiceUnavailable, "away"))
		l.dislike(500, "")
		var want, all []string
		for i := range 60 {
			id := fmt.Sprintf("e%02d", i)
			if i%20 == 7 {
				id = "bad" + id
			} else {
				want = append(want, id)
			}
			all = append(all, id)
		}
		l.send(all...)
		l.later(time.Minute)
		l.set(well)
		l.later(time.Hour)
		if got := l.has(); !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
		l.stop()
	})
}

func TestABadEventThatWasAloneIsFoundOutByTheNextOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(*agent.Config) {})
		l.dislike(500, "")
		l.send("bad")
		l.later(3 * time.Hour)
		if s := l.status(); s.Outbox.Events != 1 || s.Outbox.SetAside != 0 ||
			!strings.Contains(s.Outbox.LastError, "500") {
			t.Errorf("%+v", s.Outbox)
		}
		l.send("good")
		l.later(30 * time.Second) // not only after the next wait
		if got := l.has(); !slices.Equal(got, []string{"good"}) || !slices.Equal(l.setAside(), []string{"bad"}) {
			t.Errorf("arrived: %v, set aside: %v", got, l.setAside())
		}
		l.stop()
	})
}

func TestARefusalOfAllEventsSetsNoneAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504, 507} {
			l := newLab(t, func(*agent.Config) {})
			l.later(time.Minute)
			l.set(func(path string) (int, http.Header, error) {
				if path == "/heartbeat" {
					return well(path)
				}
				return status, http.Header{}, nil
			})
			var want []string
			for i := range 50 {
				want = append(want, fmt.Sprintf("e%02d", i))
			}
			l.send(want...)
			l.take()
			l.later(4 * time.Hour)
			if n := count(l.take(), "/events/batch"); n == 0 || n > 2000 {
				t.Errorf("%d: %d requests in four hours", status, n)
			}
			if s := l.status(); s.Outbox.Events != 50 || s.Outbox.SetAside != 0 || s.Outbox.Refused != 0 ||
				s.Outbox.LastError == "" {
				t.Errorf("%d: %+v", status, s.Outbox)
			}
			l.set(well)
			l.later(30 * time.Minute)
			if got := l.has(); !slices.Equal(got, want) {
				t.Errorf("%d: %v", status, got)
			}
			l.stop()
		}
	})
}

func TestManyBadEventsInARowDoNotHoldUpTheOthersForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *agent.Config) { c.RetryMax = time.Minute })
		l.set(refuse(http.StatusServiceUnavailable, "away"))
		l.dislike(422, "")
		for i := range 30 {
			l.send(fmt.Sprintf("bad%02d", i))
		}
		l.send("e1", "e2", "e3")
		l.later(time.Minute)
		l.set(well)
		for range 40 { // there must be others to compare them with
			l.later(15 * time.Minute)
			l.send(fmt.Sprint("later-", time.Now().UnixNano()))
		}
		l.later(15 * time.Minute)
		s := l.status()
		if s.Outbox.Events != 0 || s.Outbox.SetAside != 30 || s.Outbox.Forwarded != 43 {
			t.Errorf("%+v", s.Outbox)
		}
		l.stop()
	})
}
