package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/service/agent"
)

// lab is an agent whose control plane is a diary, in a bubble of synctest.
type lab struct {
	*testing.T
	*diary
	cfg   agent.Config
	agent *agent.Agent
	stop  func()
}

func newLab(t *testing.T, change func(*agent.Config)) *lab {
	t.Helper()
	s := newSite(t, "http://127.0.0.1:1", func(c *agent.Config) {
		c.RetryMax = 5 * time.Minute
		change(c)
	})
	l := &lab{T: t, diary: &diary{answer: well}, cfg: s.cfg}
	a, err := agent.New(context.Background(), s.cfg, agent.Deps{
		Log:       slog.New(slog.DiscardHandler),
		Registry:  prometheus.NewRegistry(),
		Now:       time.Now,
		Transport: l.diary,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	l.agent = a
	l.stop = func() {
		stop()
		if err := errors.Join(<-done, a.Close()); err != nil {
			t.Error(err)
		}
	}
	return l
}

// later lets time pass.
func (l *lab) later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *lab) status() (s agentapi.Status) {
	l.Helper()
	if err := json.Unmarshal(request(l.agent.Handler(), "GET", "/v1/status", "").Body.Bytes(), &s); err != nil {
		l.Fatal(err)
	}
	return s
}

func (l *lab) send(ids ...string) {
	l.Helper()
	var batch agentapi.EventBatch
	for _, id := range ids {
		batch.Events = append(
			batch.Events, agentapi.EventInput{EventId: &id, Topic: "t", Payload: json.RawMessage("1")},
		)
	}
	body, err := json.Marshal(batch)
	if err != nil {
		l.Fatal(err)
	}
	if w := request(l.agent.Handler(), "POST", "/v1/events/batch", string(body)); w.Code != http.StatusAccepted {
		l.Fatalf("%d %s", w.Code, w.Body)
	}
}

// has are the events that the control plane has.
func (l *lab) has() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// count is how often a path was asked since the last time.
func count(all []asked, path string) (n int) {
	for _, x := range all {
		if x.path == path {
			n++
		}
	}
	return n
}

func refuse(status int, code string) func(string) (int, http.Header, error) {
	return func(string) (int, http.Header, error) { return status, http.Header{"Code": {code}}, nil }
}

func TestAnAgentThatIsNotKnownForAWhileComesBackByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []func(string) (int, http.Header, error){
			refuse(http.StatusUnauthorized, "unauthenticated"), refuse(http.StatusUnauthorized, ""), refuse(http.StatusForbidden, "denied"),
			refuse(http.StatusNotFound, "not_found"), refuse(http.StatusGone, "gone"), refuse(http.StatusInternalServerError, "internal"),
		} {
			l := newLab(t, func(*agent.Config) {})
			l.later(time.Minute)
			l.set(answer)
			l.send("kept")
			l.later(8 * time.Hour)
			beats := count(l.take(), "/heartbeat")
			if beats < 8*12 || beats > 8*60 { // between each five minutes and each minute
				t.Errorf("%d heartbeats in eight hours of refusals", beats)
			}
			if s := l.status(); s.Link.State != agentapi.LinkStateOffline || s.Link.LastError == "" ||
				s.Outbox.Events != 1 ||
				s.SiteId != "s1" {
				t.Errorf("%+v", s)
			}
			l.set(well)
			l.later(6 * time.Minute)
			if s := l.status(); s.Link.State != agentapi.LinkStateOnline || !slices.Equal(l.has(), []string{"kept"}) {
				t.Errorf("%+v, the control plane has %v", s, l.has())
			}
			l.stop()
		}
	})
}

func TestARevokedSiteAsksEveryHourWhetherItStillIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(*agent.Config) {})
		l.later(time.Minute)
		l.take()
		l.set(refuse(http.StatusForbidden, "site_revoked"))
		l.send("kept")
		l.later(10*time.Hour + time.Minute)
		all := l.take()
		if n := count(all, "/heartbeat"); n < 9 || n > 13 || len(all) > n+1 {
			t.Errorf("%d heartbeats in ten hours; asked: %v", n, all)
		}
		if s := l.status(); s.Link.State != agentapi.LinkStateRefused || s.Outbox.Events != 1 || len(s.Alerts) == 0 ||
			s.Alerts[0].Code != "site_revoked" {
			t.Errorf("%+v", s)
		}
		if text, err := os.ReadFile(filepath.Join(l.cfg.Data, "identity.json")); err != nil ||
			!strings.Contains(string(text), "site_revoked") {
			t.Errorf("%s, %v", text, err)
		}
		l.set(well)
		l.later(70 * time.Minute)
		if s := l.status(); s.Link.State != agentapi.LinkStateOnline || !slices.Equal(l.has(), []string{"kept"}) ||
			len(s.Alerts) != 0 {
			t.Errorf("%+v", s)
		}
		if text, err := os.ReadFile(filepath.Join(l.cfg.Data, "identity.json")); err != nil ||
			strings.Contains(string(text), "refused") {
			t.Errorf("%s, %v", text, err)
		}
		l.stop()
	})
}

func TestASiteThatIsNotKnownIsReplacedOnlyIfWantedAndOnlyAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *agent.Config) { c.EnrollAgain = true })
		l.later(time.Minute)
		l.take()
		unknown := refuse(http.StatusUnauthorized, "unauthenticated")
		l.set(unknown)
		l.later(9 * time.Minute)
		if n := count(l.take(), "/enroll"); n != 0 {
			t.Errorf("%d enrollments within nine minutes", n)
		}
		l.later(time.Hour)
		if n := count(l.take(), "/enroll"); n == 0 {
			t.Error("no enrollment in an hour")
		}
		// It was refused, too, so the old identity is still there, and good again.
		if s := l.status(); s.SiteId != "s1" || s.Link.State != agentapi.LinkStateOffline {
			t.Errorf("%+v", s)
		}
		l.set(well)
		l.later(6 * time.Minute)
		if s := l.status(); s.SiteId != "s1" || s.Link.State != agentapi.LinkStateOnline {
			t.Errorf("%+v", s)
		}
		if n := count(l.take(), "/enroll"); n != 0 {
			t.Errorf("%d enrollments of a site that is known", n)
		}
		l.set(func(path string) (int, http.Header, error) {
			if path == "/enroll" {
				return well(path)
			}
			return unknown(path)
		})
		l.later(20 * time.Minute)
		if n := count(l.take(), "/enroll"); n == 0 {
			t.Error("no enrollment")
		}
		l.stop()
	})
}

func TestARetryAfterOfADayDoesNotSilenceAnAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, value := range []string{"86400", "99999999999999999999", time.Now().Add(24 * time.Hour).UTC().Format(http.TimeFormat)} {
			l := newLab(t, func(c *agent.Config) { c.RetryAfterMax = 10 * time.Minute })
			l.later(time.Minute)
			l.set(func(string) (int, http.Header, error) {
				return http.StatusServiceUnavailable, http.Header{"Retry-After": {value}}, nil
			})
			l.send("kept")
			l.later(20 * time.Minute)
			l.set(well)
			l.later(16 * time.Minute)
			if got := l.has(); !slices.Equal(got, []string{"kept"}) {
				t.Errorf("Retry-After %s: the control plane has %v", value, got)
			}
			l.stop()
		}
	})
}
