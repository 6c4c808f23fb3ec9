// Package notify tells the world outside what happens to VMs and backups: it delivers events to the
// webhooks that admins configure (kit/endpoint), among which are chats and mail servers.
//
//	notify.go   Notifier: the webhooks of the caller's scope, their deliveries, tests and replays
//	event.go    what an event says
//
// # How an event is delivered
//
//  1. Package record stores a change of state, and calls publish in the same transaction. It stores a
//     delivery for each webhook that wants the event, and the job of its first attempt.
//  2. A worker of any replica makes the attempt, stores its result, and enqueues the next one if there
//     is to be one.
//
// So an event is delivered if and only if the change is stored, at least once, and twice only if a
// replica dies between the request and the storing of its result.
//
// # Invariants
//
//   - A webhook gets the events of the VMs and backups of its tenant; one without a tenant, which only
//     admins without a tenant can make, gets all.
//   - An event holds no path of a host and no secret.
//   - A target that hangs takes at most two of the workers.
//   - Requests reach no address inside the network, unless a setting allows it.
//   - The webhooks of a tenant are removed with it.
//
// It imports caller and record.
package notify

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/endpoint"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/mail"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// The room's workers, and how many of them one webhook may take.
const (
	queue            = "webhooks"
	workers          = 8
	workersOfWebhook = 2
)

// How long deliveries are kept after they have ended, and about how many of each webhook.
const (
	keepAge    = 7 * 24 * time.Hour
	keepNewest = 1000
)

// Config holds the dependencies of a Notifier.
type Config struct {
	DB           *db.DB
	Store        *record.Store
	Sealer       *auth.Sealer // of webhooks' secrets
	AllowPrivate bool         // webhooks may be inside the network
	Log          *slog.Logger
	Now          func() time.Time
}

// Notifier manages webhooks and delivers events to them.
type Notifier struct {
	db        *db.DB
	store     *record.Store
	jobs      *jobs.Runner
	client    *webhook.Client
	endpoints *endpoint.Endpoints
	now       func() time.Time
}

// New returns a Notifier, to which the store tells what happens.
func New(c Config) *Notifier {
	guard := webhook.Guard{AllowPrivate: c.AllowPrivate}
	n := &Notifier{
		db: c.DB, store: c.Store, client: webhook.NewClient(guard, webhook.Options{}), now: c.Now,
		jobs: jobs.New(jobs.Config{
			DB: c.DB, Queues: map[string]int{queue: workers}, PerGroup: map[string]int{queue: workersOfWebhook},
			Lease: 10 * time.Second, Worker: uuid.NewString(), Log: c.Log, Now: c.Now, Rand: rand.Float64,
		}),
	}
	n.endpoints = endpoint.New(endpoint.Config{
		DB: c.DB, Jobs: n.jobs, Queue: queue, Client: n.client, Guard: guard, Sealer: c.Sealer, Now: c.Now,
		Rand: rand.Float64, Mail: mail.Sender{Guard: guard},
	})
	n.store.OnHappening(n.publish)
	n.store.OnTenantDeleted(endpoint.DeleteOrg)
	return n
}

// Run delivers events until ctx ends.
func (n *Notifier) Run(ctx context.Context) error {
	defer n.client.CloseIdleConnections()
	return n.jobs.Run(ctx)
}

// Expire forgets old deliveries.
func (n *Notifier) Expire(ctx context.Context) error {
	if err := n.endpoints.Expire(ctx, n.now().Add(-keepAge)); err != nil {
		return err
	}
	return n.endpoints.Trim(ctx, keepNewest)
}

// scope returns the webhooks that the caller sees. Those of a tenant's admin have the tenant.
func scope(ctx context.Context) db.Scope {
	c := caller.From(ctx)
	switch {
	case c.SeesAll():
		return db.All()
	case c.Tenant != "":
		return db.Where("org_id = ?", c.Tenant)
	}
	return db.Scope{} // a webhook without a tenant gets the events of all
}

func entry(action string, p *endpoint.Endpoint) audit.Entry {
	return audit.Entry{Action: action, Target: p.ID, Tenant: p.OrgID, Message: string(p.Format)}
}

// Create stores a webhook of a tenant, and returns the secret that signs its requests; those to a chat
// are not signed. tenant is empty for events of all tenants.
func (n *Notifier) Create(
	ctx context.Context, tenant string, in endpoint.Input,
) (made endpoint.Endpoint, secret string, err error) {
	c := caller.From(ctx)
	if !c.SeesAll() && (tenant != c.Tenant || tenant == "") {
		return made, "", fault.New(fault.Denied, "tenant: is not the tenant of your token")
	}
	if tenant != "" {
		if err := record.CheckTenant("tenant", tenant); err != nil {
			return made, "", err
		}
	}
	err = n.store.Noted(ctx, func(tx *db.Tx) (audit.Entry, error) {
		if made, secret, err = n.endpoints.Create(ctx, tx, tenant, in); err != nil {
			return audit.Entry{}, err
		}
		return entry("webhook.create", &made), nil
	})
	return made, secret, err
}

// List lists webhooks, oldest first, after an id.
func (n *Notifier) List(ctx context.Context, after string, limit int) ([]endpoint.Endpoint, error) {
	return n.endpoints.List(ctx, scope(ctx), after, limit)
}

// Get returns a webhook.
func (n *Notifier) Get(ctx context.Context, id string) (endpoint.Endpoint, error) {
	return n.endpoints.Get(ctx, n.db, scope(ctx), id)
}

// Update lets change change a webhook.
func (n *Notifier) Update(
	ctx context.Context, id string, change func(in *endpoint.Input),
) (changed endpoint.Endpoint, err error) {
	err = n.store.Noted(ctx, func(tx *db.Tx) (audit.Entry, error) {
		p, err := n.endpoints.Get(ctx, tx, scope(ctx), id)
		if err != nil {
			return audit.Entry{}, err
		}
		in := endpoint.Input{
			Description: p.Description, URL: p.URL, Format: p.Format, Events: p.Events.V, Tags: p.Tags.V,
			Enabled: p.Enabled,
		}
		change(&in)
		if changed, err = n.endpoints.Update(ctx, tx, scope(ctx), id, in); err != nil {
			return audit.Entry{}, err
		}
		return entry("webhook.update", &changed), nil
	})
	return changed, err
}

// Delete removes a webhook with its deliveries.
func (n *Notifier) Delete(ctx context.Context, id string) error {
	return n.store.Noted(ctx, func(tx *db.Tx) (audit.Entry, error) {
		p, err := n.endpoints.Get(ctx, tx, scope(ctx), id)
		if err == nil {
			err = n.endpoints.Delete(ctx, tx, scope(ctx), id)
		}
		return entry("webhook.delete", &p), err
	})
}

// Test sends a test event to a webhook now, and returns what came of it.
func (n *Notifier) Test(ctx context.Context, id string) (endpoint.Attempt, error) {
	p, err := n.Get(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return endpoint.Attempt{}, fault.InvalidField("webhook_id", "there is no such webhook")
	}
	if err == nil {
		err = n.store.Note(ctx, entry("webhook.test", &p))
	}
	if err != nil {
		return endpoint.Attempt{}, err
	}
	_, attempt, err := n.endpoints.Test(ctx, scope(ctx), id)
	return attempt, err
}

// Probe sends a test event to a target that is not stored.
func (n *Notifier) Probe(ctx context.Context, in endpoint.Input) (endpoint.Attempt, error) {
	if err := n.endpoints.CheckProbe(in); err != nil {
		return endpoint.Attempt{}, err
	}
	p := endpoint.Endpoint{Format: in.Format}
	if err := n.store.Note(ctx, entry("webhook.test", &p)); err != nil {
		return endpoint.Attempt{}, err
	}
	return n.endpoints.Probe(ctx, in)
}

// Deliveries lists the deliveries of a webhook, newest first, starting before an id.
func (n *Notifier) Deliveries(ctx context.Context, id, before string, limit int) ([]endpoint.Delivery, error) {
	return n.endpoints.Deliveries(ctx, scope(ctx), id, before, limit)
}

// errNoDelivery is the fault for a delivery that the webhook does not have.
var errNoDelivery = fault.New(fault.NotFound, "there is no such delivery, or no longer")

// Delivery returns a delivery of a webhook with its attempts, oldest first.
func (n *Notifier) Delivery(ctx context.Context, id, delivery string) (endpoint.Delivery, []endpoint.Attempt, error) {
	d, err := n.endpoints.Delivery(ctx, n.db, scope(ctx), delivery)
	if err == nil && d.EndpointID != id {
		err = errNoDelivery
	}
	if err != nil {
		return endpoint.Delivery{}, nil, err
	}
	attempts, err := n.endpoints.Attempts(ctx, scope(ctx), delivery)
	return d, attempts, err
}

// Replay delivers an event again.
func (n *Notifier) Replay(ctx context.Context, id, delivery string) (d endpoint.Delivery, err error) {
	err = n.store.Noted(ctx, func(tx *db.Tx) (audit.Entry, error) {
		p, err := n.endpoints.Get(ctx, tx, scope(ctx), id)
		if err != nil {
			return audit.Entry{}, err
		}
		if d, err = n.endpoints.Replay(ctx, tx, scope(ctx), delivery); err == nil && d.EndpointID != id {
			err = errNoDelivery
		}
		e := entry("webhook.replay", &p)
		e.Message = d.Event + " " + delivery
		return e, err
	})
	return d, err
}
