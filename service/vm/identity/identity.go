package identity

import (
	"context"
	"embed"
	"io/fs"
	"log/slog"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/service/vm/pam"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the tables of this package, for db.DB.Migrate.
func Migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }

// Purpose is what the Sealer of Config is for.
const Purpose = "second factors"

// The lifetime of tokens, and the fewest bytes of the secret that signs them.
const (
	DefaultLifetime = 24 * time.Hour
	MinLifetime     = time.Hour
	MinSecret       = 32
)

// Config holds the settings and dependencies of a Service. Those without a remark are required.
type Config struct {
	DB *db.DB
	// Sealer encrypts the secrets of second factors. Replicas share its key.
	Sealer *auth.Sealer
	// Secret signs tokens. It is random and has at least MinSecret bytes. Replicas share it.
	Secret []byte
	// Lifetime is how long a token is valid. 0 means DefaultLifetime, and less than MinLifetime is
	// raised to it.
	Lifetime time.Duration
	// Issuer is what authenticator apps show beside the username. Empty means "Mainstay".
	Issuer string
	// Host checks the host's accounts. Nil means that only local accounts may sign in.
	Host Authenticator
	// HostOnly keeps local accounts from signing in, and ends their tokens. It takes Host.
	HostOnly bool
	// Hasher hashes passwords. Nil means one with the default parameters, two at a time.
	Hasher *auth.Hasher
	Now    func() time.Time
	Log    *slog.Logger
	// Record writes the audit entry of a change in the transaction of the change, and may run again
	// with it. Nil means none.
	Record func(ctx context.Context, tx *db.Tx, e Event) error
	// Deny records a refused attempt. Nil means that none is recorded.
	Deny func(ctx context.Context, e Event) error
}

// Authenticator checks accounts of the host. *pam.Client implements it and documents the errors.
type Authenticator interface {
	Authenticate(ctx context.Context, username, password string) (pam.Account, error)
	Lookup(ctx context.Context, username string) (pam.Account, error)
}

// Event is something to be recorded in the audit log.
type Event struct {
	// By is who acted. Only its Username is set for a refused login.
	By Caller
	// Action is noun.verb, such as "account.update". Target is a username.
	Action, Target, Tenant, Message string
	Detail                          map[string]any
}

// Service knows who may sign in. It is safe for concurrent use.
type Service struct {
	cfg      Config
	db       *db.DB
	now      func() time.Time
	sessions *auth.Sessions
	gate     *gate
	current  *cache[account] // by username
	revoked  *cache[bool]    // by token id
	reading  singleflight.Group
}

// New returns a Service. A secret that is too short is a fault of kind Invalid.
func New(cfg Config) (*Service, error) {
	if len(cfg.Secret) < MinSecret {
		return nil, fault.InvalidField("jwt_secret",
			"must have at least %d bytes, not %d; make one with: openssl rand -hex 32", MinSecret, len(cfg.Secret))
	}
	if cfg.HostOnly && cfg.Host == nil {
		return nil, fault.New(fault.Invalid, "only accounts of the host may sign in, and there is no way to check them")
	}
	if cfg.Lifetime == 0 {
		cfg.Lifetime = DefaultLifetime
	}
	cfg.Lifetime = max(cfg.Lifetime, MinLifetime)
	if cfg.Issuer == "" {
		cfg.Issuer = "Mainstay"
	}
	if cfg.Record == nil {
		cfg.Record = func(context.Context, *db.Tx, Event) error { return nil }
	}
	if cfg.Deny == nil {
		cfg.Deny = func(context.Context, Event) error { return nil }
	}
	if cfg.Hasher == nil {
		var err error
		if cfg.Hasher, err = auth.NewHasher(auth.DefaultPasswordParams(), 2); err != nil {
			return nil, err
		}
	}
	s := &Service{
		cfg: cfg, db: cfg.DB, now: cfg.Now, gate: newGate(),
		current: newCache[account](cfg.Now), revoked: newCache[bool](cfg.Now),
	}
	var err error
	s.sessions, err = auth.NewSessions(cfg.Now, s.isRevoked, cfg.Secret)
	return s, err
}

// Reseal seals the secrets of second factors again with the current key of sealer, for a rotation
// of the service's key. See keyring.Reseal.
func Reseal(ctx context.Context, tx *db.Tx, sealer *auth.Sealer) (resealed, unreadable int, err error) {
	return keyring.Reseal(ctx, tx, sealer, "second_factors", "account_id")
}

// lock makes the transaction the only one of all replicas that holds the lock, until it ends.
func lock(ctx context.Context, tx *db.Tx, name string) error {
	var found string
	return tx.Get(ctx, &found, "SELECT name FROM identity_locks WHERE name = ?"+tx.ForUpdate(), name)
}
