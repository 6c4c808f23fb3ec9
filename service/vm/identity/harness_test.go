package identity_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
	"github.com/mainstay-infra/mainstay/service/vm/pam"
	"github.com/mainstay-infra/mainstay/service/vm/pam/pamtest"
)

func TestMain(m *testing.M) { pamtest.Main(m) }

const password = "correct horse"

var (
	migrations = dbtest.Migrations{"identity": identity.Migrations()}
	secret     = bytes.Repeat([]byte("j"), 32)
)

// clock is a clock that tests set.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time            { return time.Unix(0, c.at.Load()).UTC() }
func (c *clock) advance(d time.Duration)   { c.at.Add(int64(d)) }
func (c *clock) code(secret string) string { return must(totp.GenerateCode(secret, c.now())) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// world is a Service with its surroundings.
type world struct {
	*testing.T
	*identity.Service
	*clock
	db   *db.DB
	host *host

	mu     sync.Mutex
	events []identity.Event
	broken error // what Record returns
}

// open opens a Service on a database. A replica has another's database, clock and host.
func open(t *testing.T, d *db.DB, change ...func(*identity.Config)) *world {
	t.Helper()
	w := &world{T: t, clock: newClock(), db: d, host: &host{accounts: map[string]hostAccount{}}}
	w.Service = w.start(change...)
	return w
}

func (w *world) start(change ...func(*identity.Config)) *identity.Service {
	w.Helper()
	cfg := identity.Config{
		DB: w.db, Sealer: must(auth.NewSealer(secret, identity.Purpose)), Secret: secret, Host: w.host, Now: w.now,
		Hasher: must(auth.NewHasher(auth.PasswordParams{Memory: 8, Passes: 1, Lanes: 1}, 4)),
		Log:    slog.New(slog.DiscardHandler),
		Record: func(_ context.Context, tx *db.Tx, e identity.Event) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			tx.OnCommit(func() { w.event(e) })
			return w.broken
		},
		Deny: func(_ context.Context, e identity.Event) error {
			e.Message = "denied: " + e.Message
			w.event(e)
			return nil
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := identity.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) event(e identity.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// engines runs a test on both engines.
func engines(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, migrations, func(t *testing.T, d *db.DB) { test(open(t, d)) })
}

// replicas runs a test with two Services on one PostgreSQL, each with connections of its own.
func replicas(t *testing.T, test func(w *world, other *identity.Service)) {
	t.Helper()
	t.Parallel()
	url := dbtest.PostgresURL(t)
	w := open(t, dbtest.Open(t, db.Config{URL: url, Schema: "vm"}, migrations))
	second := dbtest.Open(t, db.Config{URL: url, Schema: "vm"}, migrations)
	test(w, w.start(func(cfg *identity.Config) { cfg.DB = second }))
}

// add creates a local account with the password.
func (w *world) add(username string, role identity.Role, tenant string) identity.Account {
	w.Helper()
	a, err := w.Create(w.Context(), identity.System, identity.NewAccount{
		Username: username, Source: identity.Local, Password: password, Role: role, Tenant: tenant,
	})
	if err != nil {
		w.Fatal(err)
	}
	return a
}

// login signs in, and must.
func (w *world) login(username string) identity.Session {
	w.Helper()
	s, err := w.Login(w.Context(), username, password, "")
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// caller signs in, and returns who holds the token.
func (w *world) caller(username string) identity.Caller {
	w.Helper()
	c, err := w.Check(w.Context(), w.login(username).Token)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// refused reports a test error unless err has the kind and the message.
func (w *world) refused(what string, err error, kind fault.Kind, message string) {
	w.Helper()
	if !fault.Is(err, kind) || message != "" && fault.From(err).Message != message {
		w.Errorf("%s: %v", what, err)
	}
}

const (
	badLogin = "Invalid credentials"
	noToken  = "Authentication required"
	tooMany  = "Too many login attempts, try again later"
	noCode   = "Two-factor code required"
	badCode  = "Invalid two-factor code"
)

// host stands in for the host's stack where a test needs it to change, to hang or to break at a
// moment; host_test.go has the real one.
type host struct {
	mu       sync.Mutex
	accounts map[string]hostAccount // by what is typed
	broken   error
	asked    atomic.Int64
	before   func(typed string) // runs before an answer
}

type hostAccount struct {
	pam.Account
	password string
}

func (h *host) set(username string, uid int, groups ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.accounts[username] = hostAccount{pam.Account{Username: username, UID: uid, Groups: groups}, password}
}

func (h *host) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = err
}

func (h *host) remove(username string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.accounts, username)
}

var errNo = fault.New(fault.Unauthenticated, "no")

func (h *host) Authenticate(_ context.Context, username, typed string) (pam.Account, error) {
	h.asked.Add(1)
	if h.before != nil {
		h.before(typed)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if a, known := h.accounts[username]; h.broken == nil && (!known || a.password != typed) {
		return pam.Account{}, errNo
	}
	return h.accounts[username].Account, h.broken
}

func (h *host) Lookup(_ context.Context, username string) (pam.Account, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.accounts[username]; h.broken == nil && !known {
		return pam.Account{}, errNo
	}
	return h.accounts[username].Account, h.broken
}

// unanswered is what a pam.Client returns if the stack was asked and crashed.
var unanswered = fault.New(fault.Unavailable, "away").WithCode("host_accounts_unavailable")

// unasked is what it returns if the stack was not asked.
var unasked = fault.Wrap(fault.Unavailable, fmt.Errorf("%w: gone", pam.ErrNotAsked), "away").
	WithCode("host_accounts_unavailable")
