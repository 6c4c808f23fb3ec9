package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/mail"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

// The states of a delivery.
const (
	Pending   = "pending"
	Delivered = "delivered"
	Failed    = "failed"
)

const (
	jobKind = "webhook.deliver"
	// maxTries is the number of attempts before a delivery fails, after about eight hours.
	maxTries = 12
	// maxRuns is how often the job of an attempt runs if processes die before they store its outcome.
	maxRuns = 1000
)

// schedule defines the delays between attempts.
var schedule = backoff.Schedule{Min: time.Second, Base: 10 * time.Second, Max: 2 * time.Hour}

// TestEvent is the type of the event that Test sends.
const TestEvent = "webhook.test"

// Delivery is an event to be sent to an endpoint.
type Delivery struct {
	ID         string  `db:"id"` // the message id of every request
	EndpointID string  `db:"endpoint_id"`
	Event      string  `db:"event"`
	Body       string  `db:"body"`
	State      string  `db:"state"`
	Attempts   int64   `db:"attempts"`
	Replays    int64   `db:"replays"`
	Tries      int64   `db:"tries"` // attempts since the last replay
	CreatedAt  db.Time `db:"created_at"`
	FinishedAt db.Time `db:"finished_at"`
}

// Attempt is one request of a delivery.
type Attempt struct {
	DeliveryID string  `db:"delivery_id"`
	Number     int64   `db:"number"` // from 1
	At         db.Time `db:"at"`
	Status     int     `db:"status"`      // 0: no response
	Problem    string  `db:"problem"`     // with the first bytes of the response; empty after a success
	DurationUS int64   `db:"duration_us"` // microseconds
}

// escapeSlack escapes text for Slack, where these three characters begin links and mentions.
var escapeSlack = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace

// Publish stores a delivery for each enabled endpoint that wants an event of an org, and returns
// how many. They are sent after the transaction is committed.
func (e *Endpoints) Publish(ctx context.Context, tx *db.Tx, orgID string, ev Event) (int, error) {
	var endpoints []Endpoint
	if err := tx.Select(
		ctx, &endpoints,
		"SELECT * FROM webhook_endpoints WHERE enabled AND org_id IN ('', ?) ORDER BY id"+tx.ForShare(), orgID,
	); err != nil {
		return 0, err
	}
	n := 0
	for i := range endpoints {
		if !endpoints[i].wants(&ev) {
			continue
		}
		d, err := e.newDelivery(&endpoints[i], ev)
		if err != nil {
			return n, err
		}
		if err := tx.Insert(ctx, "webhook_deliveries", d); err != nil {
			return n, err
		}
		if err := e.enqueue(ctx, tx, d, e.cfg.Now(), time.Time{}); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (e *Endpoints) newDelivery(p *Endpoint, ev Event) (Delivery, error) {
	body, err := p.Format.body(ev)
	return Delivery{
		ID: newID(), EndpointID: p.ID, Event: ev.Type, Body: body, State: Pending, CreatedAt: db.At(e.cfg.Now()),
	}, err
}

// work is the task of a job: one attempt.
type work struct {
	Delivery string    `json:"delivery"`
	Attempts int64     `json:"attempts"` // number of previous attempts
	Since    time.Time `json:"since"`    // when the event was published, or last replayed
	Held     int64     `json:"held"`     // how often the attempt was held back
}

// enqueue adds the job of the next attempt. Jobs are grouped by endpoint, so that a service can keep a
// target that hangs from taking all workers (jobs.Config.PerGroup).
func (e *Endpoints) enqueue(ctx context.Context, tx *db.Tx, d Delivery, since, at time.Time) error {
	w := work{Delivery: d.ID, Attempts: d.Attempts, Since: since}
	_, err := e.cfg.Jobs.Enqueue(ctx, tx, jobKind, w, jobs.Options{RunAt: at, Group: d.EndpointID, MaxAttempts: maxRuns})
	return err
}

// hold adds the job of an attempt again, once for each time that it is held back.
func (e *Endpoints) hold(ctx context.Context, d Delivery, w work, at time.Time) error {
	w.Held++
	key := fmt.Sprintf("%s/%d/%d/%d", d.ID, d.Attempts, d.Replays, w.Held)
	return e.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		_, err := e.cfg.Jobs.Enqueue(ctx, tx, jobKind, w, jobs.Options{
			RunAt: at, Group: d.EndpointID, UniqueKey: key, MaxAttempts: maxRuns,
		})
		return err
	})
}

// deliver makes one attempt. The attempt is repeated if the process dies before the outcome is
// stored.
func (e *Endpoints) deliver(ctx context.Context, _ *jobs.Job, w work) error {
	var d Delivery
	err := e.cfg.DB.Get(
		ctx, &d, "SELECT * FROM webhook_deliveries WHERE id = ? AND state = 'pending' AND attempts = ?",
		w.Delivery, w.Attempts,
	)
	if errors.Is(err, db.ErrNoRows) {
		return nil // the endpoint was deleted, or this attempt was already made
	}
	if err != nil {
		return err
	}
	p, err := e.Get(ctx, e.cfg.DB, db.All(), d.EndpointID)
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			e.breakers.forget(d.EndpointID)
			return nil
		}
		return err
	}
	at := e.cfg.Now()
	result := webhook.Result{Err: errDisabled}
	if p.Enabled {
		breaker := e.breakers.of(p.ID)
		ok, wait := breaker.Allow(at)
		switch {
		case !ok && !w.Since.IsZero() && at.Sub(w.Since) > maxHeld:
			result.Err = errHeld
		case !ok:
			// Later, and not all at once.
			return e.hold(ctx, d, w, at.Add(wait+time.Duration(e.cfg.Rand()*float64(wait))))
		default:
			if result = e.send(ctx, &p, d, at); ctx.Err() != nil {
				return ctx.Err() // this process is stopping; that is not the target's failure
			}
			note(breaker, result, e.cfg.Now())
		}
	}
	return e.cfg.DB.Update(ctx, func(tx *db.Tx) error { return e.settle(ctx, tx, &p, d, result, w.Since, at) })
}

var (
	errDisabled = fault.New(fault.Invalid, "the webhook is disabled")
	errHeld     = fault.New(fault.Invalid, "the target did not answer other deliveries for a day")
)

// send makes an attempt to a stored endpoint.
func (e *Endpoints) send(ctx context.Context, p *Endpoint, d Delivery, at time.Time) webhook.Result {
	secret := ""
	if p.Secret != "" || p.Format == Standard {
		opened, err := e.cfg.Sealer.Open(p.Secret, p.ID)
		if err != nil {
			return webhook.Result{Err: err}
		}
		secret = string(opened)
	}
	return e.post(ctx, p, secret, d, at)
}

// post sends a delivery with an opened secret, or without one.
func (e *Endpoints) post(ctx context.Context, p *Endpoint, secret string, d Delivery, at time.Time) webhook.Result {
	if p.Format == Email {
		return e.mail(ctx, p, secret, d)
	}
	request := webhook.Request{URL: p.URL, Body: []byte(d.Body), ID: d.ID, Timestamp: at}
	var err error
	switch {
	case p.Format == Gotify:
		request.URL, err = url.JoinPath(p.URL, "message")
		request.Header = http.Header{"X-Gotify-Key": {secret}}
	case secret != "":
		request.Secret, err = webhook.ParseSecret(secret)
	}
	if err != nil {
		return webhook.Result{Err: err}
	}
	return e.cfg.Client.Send(ctx, request)
}

// mail sends a delivery to a mail server.
func (e *Endpoints) mail(ctx context.Context, p *Endpoint, password string, d Delivery) (result webhook.Result) {
	begun := e.cfg.Now()
	defer func() { result.Duration = max(0, e.cfg.Now().Sub(begun)) }()
	target, err := mail.Parse(e.cfg.Guard, p.URL)
	if err != nil {
		return webhook.Result{Err: err}
	}
	var m mail.Message
	if err := json.Unmarshal([]byte(d.Body), &m); err != nil {
		return webhook.Result{Err: err}
	}
	m.ID = d.ID
	if err := e.cfg.Mail.Send(ctx, target, password, m); err != nil {
		return webhook.Result{Err: err}
	}
	return webhook.Result{Status: accepted}
}

// accepted is the answer of a mail server that has taken a message (RFC 5321).
const accepted = 250

// settle stores the result of an attempt, and decides how to continue.
func (e *Endpoints) settle(
	ctx context.Context, tx *db.Tx, p *Endpoint, d Delivery, result webhook.Result, since, at time.Time,
) error {
	before, now := d.Attempts, e.cfg.Now()
	d.Attempts, d.Tries = d.Attempts+1, d.Tries+1
	outcome := webhook.Classify(result.Status, result.Err)
	switch {
	case outcome == webhook.Delivered:
		d.State = Delivered
	case outcome != webhook.Retry || d.Tries >= maxTries:
		d.State = Failed
	}
	if d.State != Pending {
		d.FinishedAt = db.At(now)
	}
	n, err := tx.Exec(
		ctx,
		"UPDATE webhook_deliveries SET state = ?, attempts = ?, tries = ?, finished_at = ? WHERE id = ? AND state = 'pending' AND attempts = ?",
		d.State, d.Attempts, d.Tries, d.FinishedAt, d.ID, before,
	)
	if err != nil || n == 0 {
		return err // another run of the same job was faster, or the endpoint was deleted
	}
	if err := tx.Insert(ctx, "webhook_attempts", attemptOf(d, d.Attempts, at, result)); err != nil {
		return err
	}
	if outcome == webhook.Gone {
		if _, err := tx.Exec(
			ctx, "UPDATE webhook_endpoints SET enabled = FALSE, disabled_reason = ?, updated_at = ? WHERE id = ?",
			"the target answered 410: it wants no more", db.At(now), p.ID,
		); err != nil {
			return err
		}
	}
	if d.State == Pending {
		wait := max(schedule.Delay(int(d.Tries-1), e.cfg.Rand), result.RetryAfter)
		return e.enqueue(ctx, tx, d, since, now.Add(wait))
	}
	return nil
}

// Test sends an event to an endpoint immediately, whatever it subscribes to and whether or not it
// is enabled, and records it like any other. It does not retry.
func (e *Endpoints) Test(ctx context.Context, scope db.Scope, id string) (Delivery, Attempt, error) {
	p, err := e.Get(ctx, e.cfg.DB, scope, id)
	if err != nil {
		return Delivery{}, Attempt{}, err
	}
	at := e.cfg.Now()
	d, err := e.newDelivery(&p, testEvent(at))
	if err != nil {
		return d, Attempt{}, err
	}
	result := e.send(ctx, &p, d, at)
	d.State, d.Attempts, d.Tries, d.FinishedAt = Failed, 1, 1, db.At(e.cfg.Now())
	if webhook.Classify(result.Status, result.Err) == webhook.Delivered {
		d.State = Delivered
	}
	attempt := attemptOf(d, 1, at, result)
	err = e.cfg.DB.Update(ctx, func(tx *db.Tx) error {
		if _, err := e.Get(ctx, tx, scope, id); err != nil {
			return err // it was deleted in between
		}
		if err := tx.Insert(ctx, "webhook_deliveries", d); err != nil {
			return err
		}
		return tx.Insert(ctx, "webhook_attempts", attempt)
	})
	return d, attempt, err
}

// CheckProbe returns the fault of a target that Probe would refuse.
func (e *Endpoints) CheckProbe(in Input) error {
	in.Events = []string{TestEvent}
	return errors.Join(e.check(in), e.checkNew(in))
}

// Probe sends the test event once to a target that is not stored, and stores nothing. Without a
// Secret, a request to a Standard endpoint is not signed.
func (e *Endpoints) Probe(ctx context.Context, in Input) (Attempt, error) {
	if err := e.CheckProbe(in); err != nil {
		return Attempt{}, err
	}
	at := e.cfg.Now()
	p := Endpoint{URL: in.URL, Format: in.Format}
	d, err := e.newDelivery(&p, testEvent(at))
	if err != nil {
		return Attempt{}, err
	}
	return attemptOf(d, 1, at, e.post(ctx, &p, in.Secret, d, at)), nil
}

// Ok reports whether the target accepted the request.
func (a *Attempt) Ok() bool {
	return a.Status >= http.StatusOK && a.Status < http.StatusMultipleChoices
}

func attemptOf(d Delivery, number int64, at time.Time, result webhook.Result) Attempt {
	return Attempt{
		DeliveryID: d.ID, Number: number, At: db.At(at), Status: result.Status, Problem: result.Problem(),
		DurationUS: result.Duration.Microseconds(),
	}
}

func testEvent(at time.Time) Event {
	return Event{Type: TestEvent, At: at, Text: "This is a test.", Data: map[string]any{}}
}

// Replay restarts a delivery that was delivered or has failed.
func (e *Endpoints) Replay(ctx context.Context, tx *db.Tx, scope db.Scope, id string) (Delivery, error) {
	d, err := e.Delivery(ctx, tx, scope, id)
	if err != nil {
		return d, err
	}
	n, err := tx.Exec(
		ctx,
		"UPDATE webhook_deliveries SET state = 'pending', replays = replays + 1, tries = 0, finished_at = NULL WHERE id = ? AND state <> 'pending'",
		id,
	)
	if err != nil {
		return d, err
	}
	if n == 0 {
		return d, fault.New(fault.Conflict, "delivery %s is under way already", id)
	}
	e.breakers.forget(d.EndpointID) // somebody believes that the target is well
	d.State, d.Replays, d.Tries, d.FinishedAt = Pending, d.Replays+1, 0, db.Time{}
	return d, e.enqueue(ctx, tx, d, e.cfg.Now(), time.Time{})
}

// ofEndpoints returns the scope of the deliveries of endpoints within a scope.
func ofEndpoints(scope db.Scope) db.Scope {
	condition, args := scope.SQL()
	return db.Where("endpoint_id IN (SELECT id FROM webhook_endpoints WHERE "+condition+")", args...)
}

// Delivery returns one delivery. If its endpoint is outside the scope, it returns a NotFound fault.
func (e *Endpoints) Delivery(ctx context.Context, q db.Querier, scope db.Scope, id string) (Delivery, error) {
	condition, args := ofEndpoints(scope).And("id = ?", id).SQL()
	var d Delivery
	err := q.Get(ctx, &d, "SELECT * FROM webhook_deliveries WHERE "+condition, args...)
	return d, db.NotFound(err, "no delivery %s", id)
}

// Deliveries lists the deliveries to an endpoint, newest first, starting after the delivery before
// (empty: the newest).
func (e *Endpoints) Deliveries(
	ctx context.Context, scope db.Scope, endpointID, before string, limit int,
) ([]Delivery, error) {
	if _, err := e.Get(ctx, e.cfg.DB, scope, endpointID); err != nil {
		return nil, err
	}
	of := db.Where("endpoint_id = ?", endpointID)
	if before != "" {
		of = of.And("id < ?", before)
	}
	condition, args := of.SQL()
	deliveries := []Delivery{}
	err := e.cfg.DB.Select(
		ctx, &deliveries, "SELECT * FROM webhook_deliveries WHERE "+condition+" ORDER BY id DESC LIMIT ?",
		append(args, min(limit, maxDeliveries))...)
	return deliveries, err
}

// Attempts lists the requests of a delivery, oldest first.
func (e *Endpoints) Attempts(ctx context.Context, scope db.Scope, deliveryID string) ([]Attempt, error) {
	if _, err := e.Delivery(ctx, e.cfg.DB, scope, deliveryID); err != nil {
		return nil, err
	}
	attempts := []Attempt{}
	err := e.cfg.DB.Select(
		ctx, &attempts, "SELECT * FROM webhook_attempts WHERE delivery_id = ? ORDER BY number LIMIT ?",
		deliveryID, maxDeliveries,
	)
	return attempts, err
}

// Expire deletes the deliveries that ended before a time, with their attempts.
func (e *Endpoints) Expire(ctx context.Context, before time.Time) error {
	_, err := e.cfg.DB.DeletePages(
		ctx, expirePage,
		"DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM webhook_deliveries WHERE finished_at < ? LIMIT ?)",
		db.At(before),
	)
	return err
}

// Trim deletes the oldest deliveries of each endpoint that have ended, so that about keep remain.
func (e *Endpoints) Trim(ctx context.Context, keep int) error {
	var endpoints []string
	if err := e.cfg.DB.Select(ctx, &endpoints, "SELECT id FROM webhook_endpoints ORDER BY id"); err != nil {
		return err
	}
	for _, id := range endpoints {
		var first string // of those that are kept
		err := e.cfg.DB.Get(
			ctx, &first, "SELECT id FROM webhook_deliveries WHERE endpoint_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?", id, keep-1)
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err == nil {
			_, err = e.cfg.DB.DeletePages(
				ctx, expirePage,
				`DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM webhook_deliveries
				WHERE endpoint_id = ? AND id < ? AND state <> 'pending' LIMIT ?)`,
				id, first,
			)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// expirePage is how many deliveries one transaction deletes.
const expirePage = 500
