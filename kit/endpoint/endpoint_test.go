package endpoint_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/endpoint"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/mail"
	"github.com/mainstay-infra/mainstay/kit/mail/mailtest"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

var tables = dbtest.Migrations{"jobs": jobs.Migrations(), "endpoint": endpoint.Migrations()}

// post is a service with endpoints, and their target.
type post struct {
	*testing.T
	db        *db.DB
	endpoints *endpoint.Endpoints
	runner    *jobs.Runner
	target    *httptest.Server
	now       time.Time
	roots     *tls.Config // of mail servers

	mu       sync.Mutex
	status   int
	header   http.Header // of the answer
	received []received
}

type received struct {
	header     http.Header
	body, path string
}

func each(t *testing.T, test func(p *post)) {
	t.Helper()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) { test(open(t, d)) })
}

func open(t *testing.T, d *db.DB) *post {
	t.Helper()
	p := &post{T: t, db: d, now: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC), status: 204, header: http.Header{}, roots: &tls.Config{}}
	p.target = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("%v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.received = append(p.received, received{r.Header, string(body), r.URL.Path})
		for name := range p.header {
			w.Header().Set(name, p.header.Get(name))
		}
		w.WriteHeader(p.status)
		if p.status >= 300 {
			_, _ = io.WriteString(w, "no thanks")
		}
	}))
	t.Cleanup(p.target.Close)
	sealer := newSealer(t, 7)
	clock := func() time.Time { return p.now }
	p.runner = jobs.New(jobs.Config{
		DB: d, Queues: map[string]int{"webhooks": 2}, Worker: "test", Log: slog.New(slog.DiscardHandler),
		Now: clock, Rand: func() float64 { return 0.5 },
	})
	guard := webhook.Guard{AllowPrivate: true}
	client := webhook.NewClient(guard, webhook.Options{})
	t.Cleanup(client.CloseIdleConnections)
	p.endpoints = endpoint.New(endpoint.Config{
		DB: d, Jobs: p.runner, Queue: "webhooks", Client: client, Guard: guard, Sealer: sealer, Now: clock,
		Rand: func() float64 { return 0.5 }, Mail: mail.Sender{Guard: guard, TLS: p.roots},
	})
	return p
}

// mailRoots makes the sender of mails trust a server.
func (p *post) mailRoots(trusted *tls.Config) { p.roots.RootCAs = trusted.RootCAs }

// newSealer returns a sealer with a current key and accepted ones.
func newSealer(t *testing.T, current byte, accepted ...byte) *auth.Sealer {
	t.Helper()
	var others [][]byte
	for _, other := range accepted {
		others = append(others, bytes.Repeat([]byte{other}, 32))
	}
	sealer, err := auth.NewSealer(bytes.Repeat([]byte{current}, 32), "webhooks", others...)
	if err != nil {
		t.Fatal(err)
	}
	return sealer
}

func (p *post) update(f func(tx *db.Tx) error) error {
	p.Helper()
	return p.db.Update(p.Context(), f)
}

// create creates an endpoint of an org, and also returns its secret.
func (p *post) create(org string, change ...func(*endpoint.Input)) (made endpoint.Endpoint, secret string) {
	p.Helper()
	in := endpoint.Input{URL: p.target.URL, Format: endpoint.Standard, Events: []string{"vm.*"}, Enabled: true}
	for _, f := range change {
		f(&in)
	}
	if err := p.update(func(tx *db.Tx) (err error) {
		made, secret, err = p.endpoints.Create(p.Context(), tx, org, in)
		return err
	}); err != nil {
		p.Fatal(err)
	}
	return made, secret
}

func (p *post) publish(org, event string) (n int) {
	p.Helper()
	if err := p.update(func(tx *db.Tx) (err error) {
		n, err = p.endpoints.Publish(p.Context(), tx, org, endpoint.Event{
			Type: event, At: p.now, Text: "VM <one> & only started", Data: map[string]string{"vm": "one"},
		})
		return err
	}); err != nil {
		p.Fatal(err)
	}
	return n
}

// work runs the enqueued jobs, each at its time, and returns their delays in minutes from the one before.
func (p *post) work() (after []float64) {
	p.Helper()
	var waiting []struct {
		ID    string  `db:"id"`
		Args  string  `db:"args"`
		RunAt db.Time `db:"run_at"`
	}
	if err := p.update(func(tx *db.Tx) error {
		return tx.Select(p.Context(), &waiting, "DELETE FROM jobs RETURNING id, args, run_at")
	}); err != nil {
		p.Fatal(err)
	}
	for _, w := range waiting {
		var args struct {
			Delivery string
			Attempts int64
		}
		if err := json.Unmarshal([]byte(w.Args), &args); err != nil {
			p.Fatal(err)
		}
		after = append(after, w.RunAt.Sub(p.now).Minutes())
		if w.RunAt.After(p.now) {
			p.now = w.RunAt.Time
		}
		if err := p.endpoints.Work(p.Context(), args.Delivery, args.Attempts); err != nil {
			p.Fatal(err)
		}
		// The job runs again, as after a crash.
		if err := p.endpoints.Work(p.Context(), args.Delivery, args.Attempts); err != nil {
			p.Fatal(err)
		}
	}
	return after
}

// answer sets the target's response.
func (p *post) answer(status int, header http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.header = status, header
}

func (p *post) deliveries(of endpoint.Endpoint) []endpoint.Delivery {
	p.Helper()
	list, err := p.endpoints.Deliveries(p.Context(), db.All(), of.ID, "", 100)
	if err != nil {
		p.Fatal(err)
	}
	return list
}

func TestAnEventGoesSignedToWhoeverWantsIt(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		mine, secret := p.create("a")
		p.create("b")
		p.create("a", func(in *endpoint.Input) { in.Events = []string{"backup.failed"} })
		p.create("a", func(in *endpoint.Input) { in.Enabled = false })
		all, _ := p.create("")
		if n := p.publish("a", "vm.started"); n != 2 {
			p.Errorf("%d endpoints want it", n)
		}
		p.work()
		if len(p.received) != 2 || len(p.deliveries(mine)) != 1 || len(p.deliveries(all)) != 1 {
			p.Fatalf("%+v", p.received)
		}
		key, err := webhook.ParseSecret(secret)
		if err != nil {
			p.Fatal(err)
		}
		signed := 0
		for _, r := range p.received {
			if key.Verify(r.header, []byte(r.body), p.now, time.Minute) == nil {
				signed++
			}
			if r.body != `{"data":{"vm":"one"},"timestamp":"2026-03-04T12:00:00Z","type":"vm.started"}` {
				p.Error(r.body)
			}
		}
		if signed != 1 {
			p.Errorf("%d requests are signed with the secret", signed)
		}
		d := p.deliveries(mine)[0]
		attempts, err := p.endpoints.Attempts(p.Context(), db.Where("org_id = ?", "a"), d.ID)
		if d.State != endpoint.Delivered || d.FinishedAt != db.At(p.now) || d.Event != "vm.started" || err != nil || len(attempts) != 1 ||
			attempts[0].Status != 204 || attempts[0].Problem != "" || attempts[0].DurationUS <= 0 {
			p.Errorf("%+v, %+v, %v", d, attempts, err)
		}
		if strings.Contains(mine.Secret, secret) || mine.Secret == "" {
			p.Errorf("the secret is stored as %q", mine.Secret)
		}
	})
}

func TestATargetIsTriedAgainLaterAndNotForEver(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		to, _ := p.create("a")
		p.answer(503, http.Header{})
		p.publish("a", "vm.started")
		var waits []float64
		for range endpoint.MaxTries + 1 {
			waits = append(waits, p.work()...)
		}
		if len(waits) != endpoint.MaxTries || waits[0] != 0 || waits[1] != 5./60 || waits[11] != 60 {
			p.Errorf("%v", waits)
		}
		d := p.deliveries(to)[0]
		attempts, err := p.endpoints.Attempts(p.Context(), db.All(), d.ID)
		if d.State != endpoint.Failed || len(attempts) != endpoint.MaxTries || err != nil ||
			attempts[0].Problem != "the target answered 503: no thanks" {
			p.Errorf("%+v, %+v, %v", d, attempts, err)
		}
		p.now = p.now.Add(time.Hour) // the target is not spared any more
		p.answer(429, http.Header{"Retry-After": {"1800"}})
		p.publish("a", "vm.started")
		p.work()
		if waits := p.work(); len(waits) != 1 || waits[0] != 30 {
			p.Errorf("asked to wait for half an hour: %v", waits)
		}
	})
}

func TestWhatIsRefusedFailsAtOnceAndGoneDisables(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		to, _ := p.create("a")
		p.answer(400, http.Header{})
		p.publish("a", "vm.started")
		p.work()
		p.answer(410, http.Header{})
		p.publish("a", "vm.stopped")
		p.publish("a", "vm.deleted")
		p.work()
		if jobs := p.work(); len(jobs) != 0 {
			p.Errorf("tried again: %v", jobs)
		}
		got, err := p.endpoints.Get(p.Context(), p.db, db.All(), to.ID)
		if err != nil || got.Enabled || !strings.Contains(got.DisabledReason, "410") {
			p.Errorf("%+v, %v", got, err)
		}
		if n := p.publish("a", "vm.started"); n != 0 {
			p.Errorf("%d want it", n)
		}
		if len(p.received) != 2 {
			p.Errorf("%d requests", len(p.received))
		}
		for _, d := range p.deliveries(to) {
			if d.State != endpoint.Failed || d.Attempts != 1 {
				p.Errorf("%+v", d)
			}
		}
	})
}

func TestADeliveryIsReplayedByWhoMaySeeIt(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		to, _ := p.create("a")
		p.answer(500, http.Header{})
		p.publish("a", "vm.started")
		id := p.deliveries(to)[0].ID
		replay := func(scope db.Scope) error {
			return p.update(func(tx *db.Tx) error {
				_, err := p.endpoints.Replay(p.Context(), tx, scope, id)
				return err
			})
		}
		if err := replay(db.All()); !fault.Is(err, fault.Conflict) {
			p.Errorf("of what is under way: %v", err)
		}
		for range endpoint.MaxTries {
			p.work()
		}
		for _, scope := range []db.Scope{{}, db.Where("org_id = ?", "b")} {
			if err := replay(scope); !fault.Is(err, fault.NotFound) {
				p.Errorf("by who may not see it: %v", err)
			}
		}
		p.answer(200, http.Header{})
		if err := replay(db.Where("org_id = ?", "a")); err != nil {
			p.Fatal(err)
		}
		p.work()
		d := p.deliveries(to)[0]
		attempts, err := p.endpoints.Attempts(p.Context(), db.All(), id)
		if d.State != endpoint.Delivered || d.Replays != 1 || d.Attempts != endpoint.MaxTries+1 || err != nil ||
			len(attempts) != endpoint.MaxTries+1 {
			p.Errorf("%+v, %d attempts, %v", d, len(attempts), err)
		}
		if last := p.received[len(p.received)-1]; last.header.Get(webhook.HeaderID) != id {
			p.Errorf("the message id changed: %v", last.header)
		}
	})
}

func TestATestIsSentAtOnceAndLogged(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		to, _ := p.create("a", func(in *endpoint.Input) { in.Enabled = false })
		own := db.Where("org_id = ?", "a")
		d, attempt, err := p.endpoints.Test(p.Context(), own, to.ID)
		if err != nil || d.State != endpoint.Delivered || attempt.Status != 204 || len(p.received) != 1 {
			p.Errorf("%+v, %+v, %v", d, attempt, err)
		}
		p.target.Close()
		d, attempt, err = p.endpoints.Test(p.Context(), own, to.ID)
		if err != nil || d.State != endpoint.Failed || attempt.Problem != "the target refused the connection" {
			p.Errorf("%+v, %+v, %v", d, attempt, err)
		}
		if got := p.deliveries(to); len(got) != 2 || got[1].Event != endpoint.TestEvent {
			p.Errorf("%+v", got)
		}
		if jobs := p.work(); len(jobs) != 0 {
			p.Errorf("a test is tried again: %v", jobs)
		}
		if _, _, err := p.endpoints.Test(p.Context(), db.Scope{}, to.ID); !fault.Is(err, fault.NotFound) {
			p.Errorf("%v", err)
		}
	})
}

func TestChatsGetTextInTheirOwnForm(t *testing.T) {
	t.Parallel()
	p := open(t, dbtest.SQLite(t, tables))
	for format, want := range map[endpoint.Format]string{
		endpoint.Slack:   `{"text":"VM &lt;one&gt; &amp; only started"}`,
		endpoint.Discord: `{"allowed_mentions":{"parse":[]},"content":"VM <one> & only started"}`,
		endpoint.Teams: `{"attachments":[{"content":{"$schema":"http://adaptivecards.io/schemas/adaptive-card.json",` +
			`"body":[{"text":"VM <one> & only started","type":"TextBlock","wrap":true}],"type":"AdaptiveCard","version":"1.4"},` +
			`"contentType":"application/vnd.microsoft.card.adaptive"}],"type":"message"}`,
	} {
		to, secret := p.create("a", func(in *endpoint.Input) {
			in.Format, in.Events = format, []string{string(format)}
		})
		if secret != "" || to.Secret != "" {
			t.Errorf("%s has a secret", format)
		}
		p.received = nil
		p.publish("a", string(format))
		p.work()
		var got, wanted any
		if len(p.received) != 1 || json.Unmarshal([]byte(p.received[0].body), &got) != nil ||
			json.Unmarshal([]byte(want), &wanted) != nil || fmt.Sprint(got) != fmt.Sprint(wanted) {
			t.Errorf("%s: %+v", format, p.received)
		}
		if p.received[0].header.Get(webhook.HeaderSignature) != "" {
			t.Errorf("%s is signed", format)
		}
	}
}

func TestEndpointsAreCheckedAndBounded(t *testing.T) {
	t.Parallel()
	p := open(t, dbtest.SQLite(t, tables))
	to, _ := p.create("a")
	for field, change := range map[string]func(*endpoint.Input){
		"url":         func(in *endpoint.Input) { in.URL = "ftp://example.com" },
		"format":      func(in *endpoint.Input) { in.Format = "fax" },
		"description": func(in *endpoint.Input) { in.Description = "\x1b[2J" },
		"events":      func(in *endpoint.Input) { in.Events = nil },
	} {
		in := endpoint.Input{URL: "https://example.com/", Format: endpoint.Standard, Events: []string{"*"}}
		change(&in)
		for what, do := range map[string]func(tx *db.Tx) error{
			"create": func(tx *db.Tx) error {
				_, _, err := p.endpoints.Create(p.Context(), tx, "a", in)
				return err
			},
			"update": func(tx *db.Tx) error {
				_, err := p.endpoints.Update(p.Context(), tx, db.All(), to.ID, in)
				return err
			},
		} {
			if err := p.update(do); !fault.Is(err, fault.Invalid) || fault.From(err).Field != field ||
				!strings.HasPrefix(fault.From(err).Message, field+": ") {
				t.Errorf("%s with a wrong %s: %v", what, field, err)
			}
		}
	}
	for range endpoint.MaxEndpoints - 1 {
		p.create("a")
	}
	err := p.update(func(tx *db.Tx) error {
		_, _, err := p.endpoints.Create(p.Context(), tx, "a", endpoint.Input{
			URL: p.target.URL, Format: endpoint.Slack, Events: []string{"*"},
		})
		return err
	})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("one too many: %v", err)
	}
}

func TestEndpointsAreChangedAndDeletedWithinAScope(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		to, _ := p.create("a")
		p.create("b")
		own, other := db.Where("org_id = ?", "a"), db.Where("org_id = ?", "b")
		in := endpoint.Input{
			Description: "on call", URL: "https://example.com/", Format: endpoint.Standard, Events: []string{"backup.*"},
		}
		change := func(scope db.Scope) error {
			return p.update(func(tx *db.Tx) error {
				_, err := p.endpoints.Update(p.Context(), tx, scope, to.ID, in)
				return err
			})
		}
		remove := func(scope db.Scope) error {
			return p.update(func(tx *db.Tx) error { return p.endpoints.Delete(p.Context(), tx, scope, to.ID) })
		}
		for _, do := range []func(db.Scope) error{change, remove} {
			if err := do(other); !fault.Is(err, fault.NotFound) {
				p.Errorf("by another org: %v", err)
			}
		}
		p.publish("a", "vm.started")
		if err := change(own); err != nil {
			p.Fatal(err)
		}
		list, err := p.endpoints.List(p.Context(), own, "", 10)
		if err != nil || len(list) != 1 || list[0].Description != "on call" || list[0].Enabled || list[0].Events.V[0] != "backup.*" ||
			list[0].Secret != to.Secret {
			p.Errorf("%+v, %v", list, err)
		}
		p.work() // what was published before it was disabled is not sent
		if d := p.deliveries(to)[0]; d.State != endpoint.Failed || len(p.received) != 0 {
			p.Errorf("%+v", d)
		}
		if err := remove(own); err != nil {
			p.Fatal(err)
		}
		var left int
		if err := p.db.Get(
			p.Context(), &left, "SELECT (SELECT count(*) FROM webhook_deliveries) + (SELECT count(*) FROM webhook_attempts)",
		); err != nil || left != 0 {
			p.Errorf("%d rows are left, %v", left, err)
		}
	})
}

func TestDeliveriesThatEndedLongAgoAreDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		to, _ := p.create("a")
		p.publish("a", "vm.started")
		p.work()
		p.now = p.now.Add(time.Hour)
		p.publish("a", "vm.stopped")
		p.publish("a", "vm.deleted") // still pending
		if err := p.endpoints.Expire(p.Context(), p.now.Add(-time.Minute)); err != nil {
			p.Fatal(err)
		}
		if got := p.deliveries(to); len(got) != 2 || got[1].Event != "vm.stopped" {
			p.Errorf("%+v", got)
		}
	})
}

func TestTheRunnerMakesTheAttempts(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		p.create("a")
		arrived := make(chan string, 1)
		p.target.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			arrived <- r.Header.Get(webhook.HeaderID)
		})
		ctx, stop := context.WithCancel(p.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.runner.Run(ctx) }()
		p.publish("a", "vm.started")
		if id := <-arrived; id == "" {
			p.Error("the request has no message id")
		}
		stop()
		if err := <-ended; err != nil {
			p.Error(err)
		}
	})
}

func TestSecretsAreSealedAgainWithAnotherKey(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		made, secret := p.create("org")
		chat, _ := p.create("org", func(in *endpoint.Input) { in.Format = endpoint.Slack })
		if err := p.update(func(tx *db.Tx) error {
			n, unreadable, err := endpoint.Reseal(p.Context(), tx, newSealer(p.T, 8, 7))
			if n != 1 || unreadable != 0 {
				p.Errorf("%d were sealed again, %d cannot be read", n, unreadable)
			}
			return err
		}); err != nil {
			p.Fatal(err)
		}
		stored, err := p.endpoints.Get(p.Context(), p.db, db.All(), made.ID)
		if err != nil {
			p.Fatal(err)
		}
		if got, err := newSealer(p.T, 8).Open(stored.Secret, made.ID); err != nil || string(got) != secret {
			p.Errorf("%q, %v; want %q", got, err, secret)
		}
		if stored, err = p.endpoints.Get(p.Context(), p.db, db.All(), chat.ID); err != nil || stored.Secret != "" {
			p.Errorf("a chat has the secret %q, %v", stored.Secret, err)
		}
	})
}

func TestATargetThatIsDownIsSparedAndGetsEverythingLater(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		to, _ := p.create("a")
		p.answer(503, http.Header{})
		const events = 12
		for range events {
			p.publish("a", "vm.started")
		}
		p.work() // at one time: only the first five are sent
		if len(p.received) != 5 {
			p.Errorf("%d requests to a target that is down", len(p.received))
		}
		p.answer(204, http.Header{})
		for range 20 {
			p.work()
		}
		ids := map[string]bool{}
		for _, r := range p.received[5:] {
			ids[r.header.Get(webhook.HeaderID)] = true
		}
		if len(ids) != events || len(p.received) != 5+events {
			p.Errorf("%d requests, %d events", len(p.received), len(ids))
		}
		for _, d := range p.deliveries(to) {
			if d.State != endpoint.Delivered || d.Attempts > 2 {
				p.Errorf("%+v", d)
			}
		}
	})
}

func TestASecretMayBeGivenAndMustBeOne(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		mine := webhook.NewSecret()
		if _, secret := p.create("a", func(in *endpoint.Input) { in.Secret = mine }); secret != mine {
			p.Errorf("%q, want %q", secret, mine)
		}
		for _, in := range []endpoint.Input{
			{URL: p.target.URL, Format: endpoint.Standard, Events: []string{"*"}, Secret: "short"},
			{URL: p.target.URL, Format: endpoint.Slack, Events: []string{"*"}, Secret: mine},
		} {
			err := p.update(func(tx *db.Tx) error {
				_, _, err := p.endpoints.Create(p.Context(), tx, "a", in)
				return err
			})
			if f := fault.From(err); f.Kind != fault.Invalid || f.Field != "secret" || strings.Contains(f.Message, in.Secret) {
				p.Errorf("%v", err)
			}
		}
	})
}

func TestAProbeIsSentOnceAndStoredNowhere(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		secret := webhook.NewSecret()
		key, err := webhook.ParseSecret(secret)
		if err != nil {
			p.Fatal(err)
		}
		in := endpoint.Input{URL: p.target.URL, Format: endpoint.Standard, Secret: secret}
		if a, err := p.endpoints.Probe(p.Context(), in); err != nil || !a.Ok() || a.Status != 204 || len(p.received) != 1 ||
			key.Verify(p.received[0].header, []byte(p.received[0].body), p.now, time.Minute) != nil {
			p.Errorf("%+v, %v", a, err)
		}
		p.answer(500, http.Header{})
		if a, err := p.endpoints.Probe(p.Context(), in); err != nil || a.Ok() || a.Status != 500 {
			p.Errorf("%+v, %v", a, err)
		}
		if _, err := p.endpoints.Probe(p.Context(), endpoint.Input{URL: "http://169.254.169.254/", Format: endpoint.Slack}); !fault.Is(err, fault.Invalid) {
			p.Errorf("a metadata service: %v", err)
		}
		var n int
		if err := p.db.Get(p.Context(), &n, "SELECT COUNT(*) FROM webhook_deliveries"); err != nil || n != 0 {
			p.Errorf("%d deliveries, %v", n, err)
		}
	})
}

func TestTheOldestDeliveriesOfEachEndpointAreTrimmedAndThoseThatWaitAreNot(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		one, _ := p.create("a")
		p.publish("a", "vm.first")
		p.publish("a", "vm.second")
		p.work()
		two, _ := p.create("a")
		for _, event := range []string{"vm.third", "vm.fourth", "vm.fifth"} {
			p.publish("a", event) // and do not send
		}
		if err := p.endpoints.Trim(p.Context(), 2); err != nil {
			p.Fatal(err)
		}
		if a, b := p.deliveries(one), p.deliveries(two); len(a) != 3 || a[2].Event != "vm.third" || len(b) != 3 {
			p.Errorf("%+v\n%+v", a, b)
		}
	})
}

func TestTheEndpointsOfAnOrgAreRemovedWithIt(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		p.create("a")
		other, _ := p.create("b")
		if err := p.update(func(tx *db.Tx) error { return endpoint.DeleteOrg(p.Context(), tx, "a") }); err != nil {
			p.Fatal(err)
		}
		left, err := p.endpoints.List(p.Context(), db.All(), "", 10)
		if err != nil || len(left) != 1 || left[0].ID != other.ID {
			p.Errorf("%+v, %v", left, err)
		}
	})
}

func TestEventsGoToAGotifyServerWithItsToken(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		gotify := func(in *endpoint.Input) {
			in.Format, in.Secret, in.URL = endpoint.Gotify, "AbC.token", p.target.URL+"/gotify"
		}
		made, secret := p.create("a", gotify)
		if secret != "" || made.Secret == "" || strings.Contains(made.Secret, "token") {
			p.Errorf("%q, %+v", secret, made)
		}
		p.publish("a", "vm.started")
		p.work()
		if len(p.received) != 1 || p.received[0].header.Get("X-Gotify-Key") != "AbC.token" || p.received[0].path != "/gotify/message" ||
			p.received[0].body != `{"message":"VM \u003cone\u003e \u0026 only started","priority":4,"title":"vm.started"}` {
			p.Fatalf("%+v", p.received)
		}
		for field, change := range map[string]func(*endpoint.Input){
			"secret": func(in *endpoint.Input) { in.Secret = "" },
			"url":    func(in *endpoint.Input) { in.URL += "?token=AbC.token" },
		} {
			in := endpoint.Input{Events: []string{"*"}}
			gotify(&in)
			change(&in)
			err := p.update(func(tx *db.Tx) error {
				_, _, err := p.endpoints.Create(p.Context(), tx, "a", in)
				return err
			})
			if f := fault.From(err); f.Kind != fault.Invalid || f.Field != field {
				p.Errorf("%s: %v", field, err)
			}
		}
		// The token stays with the server that it belongs to.
		err := p.update(func(tx *db.Tx) error {
			_, err := p.endpoints.Update(p.Context(), tx, db.All(), made.ID, endpoint.Input{
				URL: "https://gotify.example.org", Format: endpoint.Gotify, Events: []string{"*"}, Enabled: true,
			})
			return err
		})
		if f := fault.From(err); f.Kind != fault.Invalid || f.Field != "url" {
			p.Errorf("%v", err)
		}
	})
}

func TestEventsGoByMailAndWhatTheServerRefusesForGoodFails(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		s := mailtest.New(p.T)
		p.mailRoots(s.TLS)
		made, secret := p.create("a", func(in *endpoint.Input) {
			in.Format, in.Secret = endpoint.Email, s.Password
			in.URL = "smtp://alerts@" + s.Addr + "?from=m@example.org&to=ops@example.org"
		})
		if secret != "" || strings.Contains(made.Secret, s.Password) {
			p.Errorf("%q, %+v", secret, made)
		}
		p.publish("a", "vm.failed")
		p.work()
		got := s.Mails()
		if len(got) != 1 || got[0].User != "alerts" || !strings.Contains(got[0].Content, "Subject: VM <one> & only started") ||
			!strings.Contains(got[0].Content, "vm.failed, 2026-03-04T12:00:00Z") {
			p.Fatalf("%+v", got)
		}
		if d := p.deliveries(made); len(d) != 1 || d[0].State != endpoint.Delivered ||
			!strings.Contains(got[0].Content, "Message-ID: <"+d[0].ID+"@mainstay>") {
			p.Errorf("%+v", d)
		}
		for answer, want := range map[string]string{"451 greylisted": endpoint.Pending, "550 no such user": endpoint.Failed} {
			s.Answer("RCPT", answer)
			p.publish("a", "vm.failed")
			p.work()
			if d := p.deliveries(made)[0]; d.State != want {
				p.Errorf("after %s: %+v", answer, d)
			}
		}
		if len(s.Mails()) != 1 {
			p.Errorf("%+v", s.Mails())
		}
	})
}

func TestAnEndpointWithTagsGetsOnlyEventsWithOneOfThem(t *testing.T) {
	t.Parallel()
	each(t, func(p *post) {
		all, _ := p.create("a")
		tagged, _ := p.create("a", func(in *endpoint.Input) { in.Tags = []string{"prod", "db"} })
		for _, tags := range [][]string{nil, {"test"}, {"db", "test"}} {
			if err := p.update(func(tx *db.Tx) error {
				_, err := p.endpoints.Publish(p.Context(), tx, "a", endpoint.Event{Type: "vm.started", At: p.now, Tags: tags})
				return err
			}); err != nil {
				p.Fatal(err)
			}
		}
		if len(p.deliveries(all)) != 3 || len(p.deliveries(tagged)) != 1 {
			p.Errorf("%d and %d deliveries", len(p.deliveries(all)), len(p.deliveries(tagged)))
		}
	})
}
