package agent_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/service/agent"
)

// diary is a control plane without a network, in which time can be made to pass.
// It notes when it was asked what.
type diary struct {
	mu     sync.Mutex
	asked  []asked
	events []string // that it has
	// A batch with an event that it dislikes is answered so; %d is the event's place.
	dislikes      func(id string) bool
	dislikeStatus int
	dislikeBody   string
	answer        func(path string) (status int, header http.Header, err error) // status 0: as if all were well
}

type asked struct {
	path string
	at   time.Time
}

func (d *diary) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/api/v1")
	d.asked = append(d.asked, asked{path, time.Now()})
	status, header, err := d.answer(path)
	if err != nil {
		return nil, err
	}
	body := `[]`
	switch {
	case slices.Equal(header["Code"], []string{""}):
		body = "<html>"
	case status != 0:
		body = fmt.Sprintf(`{"error":{"code":%q,"message":"m","request_id":"r"}}`, cmp.Or(header.Get("Code"), "x"))
	case path == "/events/batch":
		var batch edgeapi.EventBatch
		receipts := []edgeapi.EventReceipt{}
		if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(
			batch.Events, func(e edgeapi.EventInput) bool { return d.dislikes != nil && d.dislikes(*e.EventId) },
		); i >= 0 {
			status, body = d.dislikeStatus, strings.ReplaceAll(d.dislikeBody, "%d", strconv.Itoa(i))
			break
		}
		for _, e := range batch.Events {
			d.events = append(d.events, *e.EventId)
			receipts = append(receipts, edgeapi.EventReceipt{EventId: *e.EventId})
		}
		text, err := json.Marshal(receipts)
		if err != nil {
			return nil, err
		}
		body = string(text)
	case path == "/enroll":
		body = `{"site_id":"s1","org_id":"","agent_token":"t","heartbeat_interval_seconds":30}`
	case path == "/heartbeat":
		body = fmt.Sprintf(
			`{"status":"online","site_id":"s1","heartbeat_interval_seconds":30,"server_time":%q,"renew_certificate":false,"desired_revision":1}`,
			time.Now().UTC().Format(time.RFC3339Nano),
		)
	}
	if status == 0 {
		status = http.StatusOK
	}
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{
		StatusCode: status,
		Status:     http.StatusText(status),
		Header:     header,
		Body:       io.NopCloser(strings.NewReader(body)),
		Request:    r,
	}, nil
}

// take returns what was asked since the last time.
func (d *diary) take() []asked {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.asked
	d.asked = nil
	return all
}

func (d *diary) set(answer func(path string) (int, http.Header, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = answer
}

func well(string) (int, http.Header, error) { return 0, nil, nil }

func TestHeartbeatsKeepTheirIntervalAndAnOutageIsMetWithPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &diary{answer: well}
		s := newSite(t, "http://127.0.0.1:1", func(c *agent.Config) { c.RetryMax = 5 * time.Minute })
		a, err := agent.New(context.Background(), s.cfg, agent.Deps{
			Log:       slog.New(slog.DiscardHandler),
			Registry:  prometheus.NewRegistry(),
			Now:       time.Now,
			Transport: d,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		send := func() {
			t.Helper()
			w := httptest.NewRecorder()
			a.Handler().ServeHTTP(
				w,
				httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader(`{"topic":"t","payload":1}`)),
			)
			if w.Code != http.StatusAccepted {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		beats := func(all []asked) (times []time.Time) {
			for _, x := range all {
				if x.path == "/heartbeat" {
					times = append(times, x.at)
				}
			}
			return times
		}

		time.Sleep(30 * time.Minute)
		times := beats(d.take())
		if len(times) < 54 || len(times) > 67 {
			t.Errorf("%d heartbeats in half an hour", len(times))
		}
		distinct := map[time.Duration]bool{}
		for i := range times[1:] {
			gap := times[i+1].Sub(times[i])
			distinct[gap] = true
			if gap < 27*time.Second || gap > 33*time.Second {
				t.Errorf("a gap of %s", gap)
			}
		}
		if len(distinct) < 10 {
			t.Error("heartbeats have no jitter")
		}

		d.set(func(string) (int, http.Header, error) { return 0, nil, errors.New("network is unreachable") })
		send()
		time.Sleep(2 * time.Hour)
		all := d.take()
		times = beats(all)
		for _, x := range all {
			if x.path != "/heartbeat" && x.at.After(all[0].at.Add(time.Minute)) {
				t.Errorf("%s was asked while there was no link", x.path)
			}
		}
		if len(times) < 20 || len(times) > 150 {
			t.Errorf("%d attempts in two hours", len(times))
		}
		for i := range times[1:] {
			if gap := times[i+1].Sub(times[i]); gap < time.Second || gap > 5*time.Minute {
				t.Errorf("a gap of %s while there was no link", gap)
			}
		}

		d.set(func(string) (int, http.Header, error) {
			return http.StatusServiceUnavailable, http.Header{"Retry-After": {"600"}}, nil
		})
		time.Sleep(6 * time.Minute) // the first attempt finds it overloaded
		before := beats(d.take())
		time.Sleep(2 * time.Hour)
		times = append(before[len(before)-1:], beats(d.take())...)
		for i := range times[1:] {
			if gap := times[i+1].Sub(times[i]); gap < 10*time.Minute || gap > 15*time.Minute+time.Second {
				t.Errorf("a gap of %s, though ten minutes were asked for", gap)
			}
		}

		d.set(well)
		time.Sleep(20 * time.Minute)
		all = d.take()
		first := map[string]time.Time{}
		for _, x := range all {
			if _, known := first[x.path]; !known {
				first[x.path] = x.at
			}
		}
		sent, ok := first["/events/batch"]
		if !ok || sent.Before(first["/heartbeat"]) {
			t.Errorf("events went out at %s, the first heartbeat at %s", sent, first["/heartbeat"])
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAgentsThatLoseTheirServerTogetherDoNotComeBackTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const agents = 12
		var diaries []*diary
		var stops []func()
		for range agents {
			d := &diary{answer: well}
			s := newSite(t, "http://127.0.0.1:1", func(c *agent.Config) { c.RetryMax = 5 * time.Minute })
			a, err := agent.New(context.Background(), s.cfg, agent.Deps{
				Log:       slog.New(slog.DiscardHandler),
				Registry:  prometheus.NewRegistry(),
				Now:       time.Now,
				Transport: d,
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- a.Run(ctx) }()
			diaries = append(diaries, d)
			stops = append(stops, func() {
				stop()
				if err := errors.Join(<-done, a.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(5 * time.Minute)
		for _, d := range diaries {
			d.set(func(string) (int, http.Header, error) { return 0, nil, errors.New("network is unreachable") })
		}
		time.Sleep(time.Hour)
		for _, d := range diaries {
			d.take()
			d.set(well)
		}
		back := time.Now()
		time.Sleep(6 * time.Minute)
		minutes := map[time.Duration]int{}
		for _, d := range diaries {
			all := d.take()
			if len(all) == 0 {
				t.Fatal("an agent did not come back")
			}
			minutes[all[0].at.Sub(back)/(30*time.Second)]++
		}
		if len(minutes) < 3 {
			t.Errorf("12 agents came back in these half minutes: %v", minutes)
		}
		for _, stop := range stops {
			stop()
		}
	})
}
