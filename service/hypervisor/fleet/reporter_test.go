package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

// beats is a registry as a reporter sees it, in a bubble of testing/synctest.
type beats struct {
	mu     sync.Mutex
	began  time.Time
	at     []time.Duration // when they came
	after  []int64         // what they carried
	status int             // 0: no connection
	hang   bool
}

func (b *beats) RoundTrip(r *http.Request) (*http.Response, error) {
	var hb hypervisorapi.Heartbeat
	if err := json.NewDecoder(r.Body).Decode(
		&hb,
	); err != nil || r.Method != http.MethodPut || r.URL.Path != "/fleet/nodes/a/heartbeat" || r.Header.Get("Authorization") != "Bearer "+token ||
		hb.FreeVcpus != 3 {
		return nil, errors.New("not a heartbeat")
	}
	b.mu.Lock()
	b.at, b.after = append(b.at, time.Since(b.began)), append(b.after, after(hb))
	status, hang, sequence := b.status, b.hang, 100+len(b.at)
	b.mu.Unlock()
	if hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if status == 0 {
		return nil, errors.New("nobody is there")
	}
	body, _ := json.Marshal(map[string]any{"name": "a", "sequence": sequence})
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{},
		Body:       io.NopCloser(bytes.NewReader(body)),
		Request:    r,
	}, nil
}

// after is what a heartbeat carries of the answer before; 0 for nothing.
func after(hb hypervisorapi.Heartbeat) int64 {
	if hb.After == nil {
		return 0
	}
	return *hb.After
}

// take returns what came since the last time.
func (b *beats) take() []time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.at
	b.at, b.began = nil, time.Now()
	return at
}

// turn changes what becomes of heartbeats.
func (b *beats) turn(status int, hang bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status, b.hang = status, hang
}

// reporting runs a reporter in a bubble until the test ends. random is what its jitter is made of.
func reporting(t *testing.T, random *float64, test func(r *fleet.Reporter, b *beats, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &beats{began: time.Now(), status: 200}
		var log bytes.Buffer
		r, err := fleet.NewReporter(fleet.ReporterConfig{
			Registry: "http://registry:7070/",
			Name:     "a",
			Token:    token,
			Interval: 10 * time.Second,
			HTTP:     &http.Client{Transport: b},
			Rand:     func() float64 { return *random },
			Log:      slog.New(slog.NewTextHandler(&log, nil)),
			Report:   func(context.Context) (hypervisorapi.Heartbeat, error) { return numbers(4, 3), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		synctest.Wait()
		test(r, b, &log)
		b.take()
		stop()
		<-ended
		if len(b.take()) != 0 {
			t.Error("something was sent at the end")
		}
	})
}

func pass(d time.Duration) {
	time.Sleep(d) // the bubble's clock
	synctest.Wait()
}

func seconds(s ...float64) []time.Duration {
	var d []time.Duration
	for _, one := range s {
		d = append(d, time.Duration(one*float64(time.Second)))
	}
	return d
}

func TestHeartbeatsComeAtOnceThenInEveryIntervalWithJitter(t *testing.T) {
	t.Parallel()
	for random, want := range map[float64][]time.Duration{0: seconds(0, 1, 10, 19), 0.5: seconds(0, 1, 11, 21), 1: seconds(0, 1, 12, 23)} {
		reporting(t, &random, func(_ *fleet.Reporter, b *beats, log *bytes.Buffer) {
			pass(25 * time.Second)
			if got := b.at; !slices.Equal(got, want) {
				t.Errorf("with %v: %v, want %v", random, got, want)
			}
			if !slices.Equal(b.after, []int64{0, 101, 102, 103}) {
				t.Errorf("carried %v", b.after)
			}
			if n := strings.Count(log.String(), "\n"); n != 1 || strings.Contains(log.String(), token) {
				t.Errorf("%d lines: %s", n, log)
			}
		})
	}
}

func TestANudgeBringsTwoHeartbeatsSoonAndManyBringNoFlood(t *testing.T) {
	t.Parallel()
	random := 0.5
	reporting(t, &random, func(r *fleet.Reporter, b *beats, _ *bytes.Buffer) {
		pass(5 * time.Second)
		b.take()
		r.Nudge()
		pass(3 * time.Second)
		if got := b.take(); !slices.Equal(got, seconds(0, 1)) {
			t.Errorf("%v", got)
		}
		for range 1000 {
			r.Nudge()
			pass(10 * time.Millisecond)
		}
		if got := len(b.take()); got < 9 || got > 11 {
			t.Errorf("%d heartbeats in ten seconds", got)
		}
	})
}

func TestAReporterBacksOffAndNeverGivesUp(t *testing.T) {
	t.Parallel()
	random := 0.5
	reporting(t, &random, func(r *fleet.Reporter, b *beats, log *bytes.Buffer) {
		pass(2 * time.Second)
		log.Reset()
		b.take()
		b.turn(0, false)
		r.Nudge()
		for range 60 {
			pass(time.Second)
			r.Nudge() // makes no difference
		}
		if got := b.take(); !slices.Equal(got, seconds(0, 1.25, 3.75, 8.75, 18.75, 28.75, 38.75, 48.75, 58.75)) {
			t.Errorf("%v", got)
		}
		b.turn(503, false)
		pass(10 * time.Minute)
		if got := len(b.take()); got != 60 {
			t.Errorf("%d in ten minutes", got)
		}
		b.turn(200, true)
		pass(10 * time.Minute)
		if got := len(b.take()); got < 29 {
			t.Errorf("%d in ten minutes at a registry that hangs", got)
		}
		b.turn(200, false)
		pass(time.Minute)
		b.take()
		pass(time.Minute)
		if got := len(b.take()); got != 6 {
			t.Errorf("%d in a minute when all is well", got)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "do not reach") ||
			!strings.Contains(lines[1], "heartbeats reach") ||
			strings.Contains(log.String(), token) {
			t.Errorf("%s", log)
		}
	})
}

func TestAReporterNamesTheSettingThatIsWrong(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]fleet.ReporterConfig{
		"registry":  {Registry: "registry:7070", Name: "a"},
		"registry ": {Registry: "http://a:secret@registry:7070", Name: "a"},
		"name":      {Registry: "http://registry:7070", Name: "a/b"},
		"ca_file":   {Registry: "http://registry:7070", Name: "a", CAFile: "/dev/null"},
	} {
		_, err := fleet.NewReporter(cfg)
		if f := fault.From(err); err == nil || f.Kind != fault.Invalid || f.Field != strings.TrimSpace(field) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// The two ends together: what a reporter sends, a registry understands, and a VM that was made
// through it is counted once after the heartbeats that a nudge brings.
func TestAReporterKeepsItsNodeInTheRegistry(t *testing.T) {
	t.Parallel()
	w := sqlite(t)
	n := newNode(t, "a", 8)
	beaten := make(chan int64, 100)
	registry := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var hb hypervisorapi.Heartbeat
		if err := json.NewDecoder(r.Body).Decode(&hb); err != nil {
			t.Error(err)
		}
		_, sequence, err := w.Heartbeat(r.Context(), "a", hb, after(hb))
		if err != nil {
			if r.Context().Err() == nil { // else the reporter has given it up
				t.Error(err)
			}
			return
		}
		answer(rw, 200, map[string]any{"sequence": sequence})
		beaten <- sequence
	}))
	defer registry.Close()
	r, err := fleet.NewReporter(
		fleet.ReporterConfig{Registry: registry.URL, Name: "a", Token: token, Interval: 500 * time.Millisecond,
			Report: func(context.Context) (hypervisorapi.Heartbeat, error) { return n.numbers(), nil }},
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(inTime(t))
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	<-beaten
	if _, err := w.Create(ctx, "", spec("web", 3)); err != nil {
		t.Fatal(err)
	}
	r.Nudge()
	for range 4 { // one may have been under way, the next may be, and two more count
		if got := w.free("a"); got > 5 {
			t.Errorf("%d free", got)
		}
		<-beaten
	}
	stop()
	<-ended
	if got := w.free("a"); got != 5 {
		t.Errorf("%d free", got)
	}
	if _, err := w.Node(t.Context(), "a"); err != nil {
		t.Errorf("the end of a reporter has deregistered its node: %v", err)
	}
}
