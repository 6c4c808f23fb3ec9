package endpoint

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/glob"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/kit/mail"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/kit/webhook"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the tables of this package, for db.DB.Migrate.
func Migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }

// Limits of the configuration.
const (
	MaxEndpoints   = 100 // per org
	MaxPatterns    = 50
	maxPattern     = 128  // bytes
	maxDescription = 1000 // bytes
	maxDeliveries  = 1000 // per page
)

// Endpoint is a configured target of events.
type Endpoint struct {
	ID          string            `db:"id"`
	OrgID       string            `db:"org_id"` // empty: it gets the events of all orgs
	Description string            `db:"description"`
	URL         string            `db:"url"`
	Format      Format            `db:"format"`
	Events      db.JSON[[]string] `db:"events"` // patterns, in which * matches any run of characters
	// Tags restrict it to events with one of these tags; none: all.
	Tags           db.JSON[[]string] `db:"tags"`
	Enabled        bool              `db:"enabled"`
	DisabledReason string            `db:"disabled_reason"` // why it was disabled automatically
	Secret         string            `db:"secret"`          // sealed; empty: none
	CreatedAt      db.Time           `db:"created_at"`
	UpdatedAt      db.Time           `db:"updated_at"`
}

// Input is the configurable part of an endpoint.
type Input struct {
	Description string
	URL         string
	Format      Format
	Events      []string
	Tags        []string
	Enabled     bool
	// Secret signs the requests; empty: Create makes one. For Gotify it is a token, for Email the
	// password of the URL's user. Chats have none, and Update ignores it.
	Secret string
}

// Config holds the dependencies of Endpoints.
type Config struct {
	DB     *db.DB // with Migrations applied
	Jobs   *jobs.Runner
	Queue  string // of Jobs
	Client *webhook.Client
	Guard  webhook.Guard // the same as Client's
	Mail   mail.Sender   // with the same Guard
	Sealer *auth.Sealer
	Now    func() time.Time
	Rand   func() float64 // in [0, 1); safe for concurrent use
}

// Endpoints manages the endpoints of a service. It is safe for concurrent use.
type Endpoints struct {
	cfg      Config
	breakers breakers
}

// New returns the Endpoints of a service. It registers their job, so call it before Jobs runs.
func New(cfg Config) *Endpoints {
	e := &Endpoints{cfg: cfg}
	jobs.Register(cfg.Jobs, cfg.Queue, jobKind, e.deliver)
	return e
}

func (e *Endpoints) check(in Input) error {
	if !in.Format.known() {
		return fault.InvalidField("format", "must be standard, slack, teams, discord, gotify or email")
	}
	if err := e.checkURL(in); err != nil {
		return err
	}
	if in.Secret != "" {
		if err := checkSecret(in); err != nil {
			return err
		}
	}
	if len(in.Description) > maxDescription {
		return fault.InvalidField("description", "is longer than %d bytes", maxDescription)
	}
	if err := text.Check("description", in.Description); err != nil {
		return err
	}
	if len(in.Events) == 0 || len(in.Events) > MaxPatterns {
		return fault.InvalidField("events", "must name 1 to %d events", MaxPatterns)
	}
	for _, pattern := range in.Events {
		if pattern == "" || len(pattern) > maxPattern {
			return fault.InvalidField("events", "must have 1 to %d bytes each", maxPattern)
		}
		if err := text.Check("events", pattern); err != nil {
			return err
		}
	}
	if len(in.Tags) > MaxPatterns {
		return fault.InvalidField("tags", "must be at most %d", MaxPatterns)
	}
	for _, tag := range in.Tags {
		if tag == "" || len(tag) > maxPattern {
			return fault.InvalidField("tags", "must have 1 to %d bytes each", maxPattern)
		}
		if err := text.Check("tags", tag); err != nil {
			return err
		}
	}
	return nil
}

func (e *Endpoints) checkURL(in Input) error {
	if in.Format == Email {
		_, err := mail.Parse(e.cfg.Guard, in.URL)
		return err
	}
	u, err := e.cfg.Guard.CheckURL(in.URL)
	if err != nil {
		f := fault.From(err)
		return fault.InvalidField("url", "%s", strings.TrimPrefix(f.Message, f.Field+": ")).WithCode(f.Code)
	}
	if in.Format == Gotify && u.RawQuery != "" {
		return fault.InvalidField("url", "must be that of the server, without a token")
	}
	return nil
}

func checkSecret(in Input) error {
	switch in.Format {
	case Standard:
		_, err := webhook.ParseSecret(in.Secret)
		return err
	case Gotify, Email:
		if len(in.Secret) > maxPattern || strings.ContainsFunc(in.Secret, unicode.IsControl) {
			return fault.InvalidField("secret", "must be one line of at most %d bytes", maxPattern)
		}
		return nil
	case Slack, Teams, Discord:
	}
	return fault.InvalidField("secret", "is for signed requests; those to a chat are not signed")
}

// checkNew checks what Update cannot change.
func (e *Endpoints) checkNew(in Input) error {
	switch in.Format {
	case Gotify:
		if in.Secret == "" {
			return fault.InvalidField("secret", "must be the token of an application of the Gotify server")
		}
	case Email:
		if t, err := mail.Parse(e.cfg.Guard, in.URL); err == nil && (t.User == "") != (in.Secret == "") {
			return fault.InvalidField("secret", "must be the password of the user in the URL, and belongs to no URL without one")
		}
	case Standard, Slack, Teams, Discord:
	}
	return nil
}

// Create creates an endpoint of an org. It returns the secret that signs its requests, which cannot
// be read again later; formats other than Standard have none of the kind.
func (e *Endpoints) Create(
	ctx context.Context, tx *db.Tx, orgID string, in Input,
) (made Endpoint, secret string, err error) {
	if err := errors.Join(e.check(in), e.checkNew(in)); err != nil {
		return made, "", err
	}
	var n int
	if err := tx.Get(ctx, &n, "SELECT count(*) FROM webhook_endpoints WHERE org_id = ?", orgID); err != nil {
		return made, "", err
	}
	if n >= MaxEndpoints {
		return made, "", fault.New(fault.Conflict, "there are %d endpoints already, and no more are allowed", n)
	}
	now := db.At(e.cfg.Now())
	made = Endpoint{ID: newID(), OrgID: orgID, CreatedAt: now}
	made.set(in, now)
	if in.Format == Standard {
		in.Secret = cmp.Or(in.Secret, webhook.NewSecret())
		secret = in.Secret
	}
	if in.Secret != "" {
		made.Secret = e.cfg.Sealer.Seal([]byte(in.Secret), made.ID)
	}
	return made, secret, tx.Insert(ctx, "webhook_endpoints", made)
}

func (p *Endpoint) set(in Input, now db.Time) {
	p.Description, p.URL, p.Format, p.Enabled, p.UpdatedAt = in.Description, in.URL, in.Format, in.Enabled, now
	p.Events.V, p.Tags.V = in.Events, in.Tags
	if in.Enabled {
		p.DisabledReason = ""
	}
}

// wants reports whether the endpoint subscribes to an event.
func (p *Endpoint) wants(ev *Event) bool {
	tagged := func(tag string) bool { return slices.Contains(ev.Tags, tag) }
	if len(p.Tags.V) > 0 && !slices.ContainsFunc(p.Tags.V, tagged) {
		return false
	}
	for _, pattern := range p.Events.V {
		if glob.Match(pattern, ev.Type) {
			return true
		}
	}
	return false
}

// Get returns one endpoint. If it is outside the scope, Get returns a NotFound fault.
func (e *Endpoints) Get(ctx context.Context, q db.Querier, scope db.Scope, id string) (Endpoint, error) {
	condition, args := scope.And("id = ?", id).SQL()
	var found Endpoint
	err := q.Get(ctx, &found, "SELECT * FROM webhook_endpoints WHERE "+condition, args...)
	return found, db.NotFound(err, "no webhook %s", id)
}

// List returns endpoints in the order of their ids, starting after an id.
func (e *Endpoints) List(ctx context.Context, scope db.Scope, after string, limit int) ([]Endpoint, error) {
	condition, args := scope.And("id > ?", after).SQL()
	endpoints := []Endpoint{}
	err := e.cfg.DB.Select(
		ctx, &endpoints, "SELECT * FROM webhook_endpoints WHERE "+condition+" ORDER BY id LIMIT ?",
		append(args, limit)...)
	return endpoints, err
}

// Update changes an endpoint. The format cannot change, since the secret depends on it.
func (e *Endpoints) Update(ctx context.Context, tx *db.Tx, scope db.Scope, id string, in Input) (Endpoint, error) {
	if err := e.check(in); err != nil {
		return Endpoint{}, err
	}
	p, err := e.Get(ctx, tx, scope, id)
	if err != nil {
		return p, err
	}
	if in.Format != p.Format {
		return p, fault.InvalidField("format", "is %s, and cannot change; make another webhook", p.Format)
	}
	if err := p.keepsSecret(in.URL); err != nil {
		return p, err
	}
	p.set(in, db.At(e.cfg.Now()))
	_, err = tx.Exec(
		ctx,
		`UPDATE webhook_endpoints SET description = ?, url = ?, events = ?, tags = ?, enabled = ?, disabled_reason = ?, updated_at = ?
		WHERE id = ?`,
		p.Description, p.URL, p.Events, p.Tags, p.Enabled, p.DisabledReason, p.UpdatedAt, id,
	)
	return p, err
}

// keepsSecret refuses a URL that would send a stored password or token to somebody else.
func (p *Endpoint) keepsSecret(raw string) error {
	if p.Format != Gotify && p.Format != Email {
		return nil
	}
	before, err := url.Parse(p.URL)
	if err != nil {
		return err
	}
	after, err := url.Parse(raw)
	if err != nil {
		return err
	}
	if before.Scheme != after.Scheme || before.Host != after.Host || before.User.Username() != after.User.Username() {
		return fault.InvalidField("url", "must keep the server and the user, to whom the secret belongs; make another webhook")
	}
	return nil
}

// Delete deletes an endpoint with its deliveries. A request that is being sent may still arrive.
func (e *Endpoints) Delete(ctx context.Context, tx *db.Tx, scope db.Scope, id string) error {
	condition, args := scope.And("id = ?", id).SQL()
	n, err := tx.Exec(ctx, "DELETE FROM webhook_endpoints WHERE "+condition, args...)
	if err == nil && n == 0 {
		err = fault.New(fault.NotFound, "no webhook %s", id)
	}
	return err
}

// DeleteOrg deletes all endpoints of an org that is removed, so that they do not get the events of
// another one with its name.
func DeleteOrg(ctx context.Context, tx *db.Tx, orgID string) error {
	_, err := tx.Exec(ctx, "DELETE FROM webhook_endpoints WHERE org_id = ?", orgID)
	return err
}

// Reseal seals the secrets of all endpoints again with the sealer's current key, where they are
// stale, for a service that rotates its secret key (package keyring).
func Reseal(ctx context.Context, tx *db.Tx, sealer *auth.Sealer) (resealed, unreadable int, err error) {
	return keyring.Reseal(ctx, tx, sealer, "webhook_endpoints", "id")
}

// newID returns an id that sorts by creation time.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
