package vm

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/endpoint"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/vm/backup"
	"github.com/mainstay-infra/mainstay/service/vm/billing"
	"github.com/mainstay-infra/mainstay/service/vm/browse"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/compliance"
	"github.com/mainstay-infra/mainstay/service/vm/dataplane"
	"github.com/mainstay-infra/mainstay/service/vm/httpapi"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/life"
	"github.com/mainstay-infra/mainstay/service/vm/notify"
	"github.com/mainstay-infra/mainstay/service/vm/pam"
	"github.com/mainstay-infra/mainstay/service/vm/record"
	"github.com/mainstay-infra/mainstay/service/vm/snapshot"
	"github.com/mainstay-infra/mainstay/service/vm/watch"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns all migrations of the service, in the order in which to apply them.
func Migrations() []db.Migration {
	return []db.Migration{
		{Owner: "audit", Files: audit.Migrations()},
		{Owner: "jobs", Files: jobs.Migrations()},
		{Owner: "operation", Files: operation.Migrations()},
		{Owner: "keyring", Files: keyring.Migrations()},
		{Owner: "session", Files: session.Migrations()},
		{Owner: "identity", Files: identity.Migrations()},
		{Owner: "endpoint", Files: endpoint.Migrations()},
		{Owner: "vm", Files: db.EmbeddedMigrations(migrationFiles)},
	}
}

// DatabaseFile returns the path of the SQLite database in the data folder.
func DatabaseFile(folder string) string { return filepath.Join(folder, "vm.db") }

// replicaID returns the id of the replica that a data folder belongs to, which it makes the first time.
func replicaID(folder string) (string, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(folder, "replica-id")
	if err := durable.Create(path, []byte(strings.ToLower(rand.Text())+"\n"), 0o600); err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

func openDatabase(ctx context.Context, cfg Config) (*db.DB, error) {
	d, err := db.Open(ctx, db.Config{URL: cfg.Database, Path: DatabaseFile(cfg.Data), Schema: "vm"})
	if err != nil {
		return nil, err
	}
	for _, m := range Migrations() {
		if err := d.Migrate(ctx, m.Owner, m.Files); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// openRooms creates the rooms, dependencies first.
func (s *Service) openRooms(ctx context.Context, deps Deps) error {
	sealers, err := s.openKeys(ctx, deps)
	if err != nil {
		return err
	}
	workspace, err := session.OpenWorkspace(deps.Workspace, s.cfg.Workspace)
	if err != nil {
		return err
	}
	s.store = record.New(s.db, s.audit, s.now)
	s.notifier = notify.New(notify.Config{
		DB: s.db, Store: s.store, Sealer: sealers.webhooks, AllowPrivate: s.cfg.AllowPrivateTargets, Log: s.log, Now: s.now,
	})
	if err := s.openIdentity(ctx, sealers); err != nil {
		return err
	}
	s.jobs = job.New(job.Config{
		Store: s.store, DB: s.db, Log: s.log, Registry: deps.Registry, Now: s.now, Ending: s.ending,
	})
	hosts, err := dataplane.ParseHosts(s.cfg.HostAddresses)
	if err != nil {
		return err
	}
	s.dataplane = dataplane.New(dataplane.Config{Store: s.store, Driver: s.driver, Log: s.log, Now: s.now, Hosts: hosts})
	s.life = life.New(life.Config{
		Store: s.store, Driver: s.driver, Jobs: s.jobs, Sealer: sealers.settings, Log: s.log, Now: s.now,
		Guard: s.dataplane.Apply,
	})
	s.snapshots = snapshot.New(s.store, s.driver, s.log)
	if s.backups, err = backup.New(backup.Config{
		Store: s.store, Driver: s.driver, Jobs: s.jobs, Life: s.life, Repository: s.cfg.repository(),
		BootInterval: s.cfg.BackupBootInterval, Log: s.log, Now: s.now,
	}); err != nil {
		return err
	}
	s.cfg.BackupPassphrase, s.cfg.BackupSecretKey = "", ""
	s.browser = browse.New(browse.Config{
		Store: s.store, Driver: s.driver, Backups: s.backups, Image: s.cfg.HelperImage, Ending: s.ending,
		Log: s.log, Now: s.now,
	})
	s.scanner = compliance.New(compliance.Config{
		Store: s.store, Driver: s.driver, Jobs: s.jobs, Network: s.dataplane.Effective, Log: s.log, Now: s.now,
	})
	s.billing = billing.New(billing.Config{Store: s.store, Driver: s.driver, Log: s.log, Now: s.now})
	if err := s.openImages(ctx); err != nil {
		return err
	}
	s.watch = watch.New(s.store, s.driver, s.log)
	s.api, err = httpapi.New(httpapi.Config{
		Log: s.log, Registry: deps.Registry, Tracer: deps.Tracer, Console: deps.Console, Now: s.now,
		AccessLog: s.cfg.AccessLog, MaxInFlight: s.cfg.MaxInFlight, Ending: s.ending,
		Ping:     func(ctx context.Context) (string, error) { return s.db.Engine().String(), s.db.Ping(ctx) },
		Identity: s.identity, Store: s.store, Jobs: s.jobs, Driver: s.driver, Life: s.life, Snapshots: s.snapshots,
		Backups:   s.backups,
		Browser:   s.browser,
		Dataplane: s.dataplane,
		Notifier:  s.notifier,
		Scanner:   s.scanner,
		Billing:   s.billing,
		Tickets:   sealers.tickets,
		Images:    s.images,
		Cookies:   sealers.cookies, Ended: session.InDatabase(s.db, s.now), Workspace: workspace,
	})
	return err
}

// sealers are what stored secrets are sealed with.
type sealers struct {
	settings *auth.Sealer // VMs' settings for cloud-init
	factors  *auth.Sealer // second factors
	webhooks *auth.Sealer // webhooks' secrets
	tickets  *auth.Sealer // tokens behind tickets, for half a minute
	cookies  *auth.Sealer // sessions of the console
	tokens   []byte       // signs tokens
}

// The purposes of the keys that are derived from the secret key.
const (
	purposeSettings = "vm cloud-init settings"
	purposeWebhooks = "vm webhook secrets"
	purposeTickets  = "vm tickets"
	purposeCookies  = "vm console sessions"
	purposeAudit    = "vm audit head"
	purposeTokens   = "vm tokens"
)

// openKeys opens the secret key and the audit log.
func (s *Service) openKeys(ctx context.Context, deps Deps) (out sealers, err error) {
	if s.keys, err = keyring.SecretKeys(ctx, s.db, keyring.Config{
		Configured: s.cfg.SecretKey, Accepted: s.cfg.AcceptedSecretKey, Data: s.cfg.Data, Log: s.log,
		Replace: s.cfg.ReplaceLostKeys,
		// Databases of this service have had a fingerprint from the beginning.
		Fits: func(context.Context, []byte) (used, fits bool, err error) { return false, true, nil },
	}); err != nil {
		return out, err
	}
	for _, seal := range []struct {
		sealer  **auth.Sealer
		purpose string
	}{
		{&out.settings, purposeSettings}, {&out.factors, identity.Purpose}, {&out.webhooks, purposeWebhooks},
		{&out.tickets, purposeTickets}, {&out.cookies, purposeCookies},
	} {
		if *seal.sealer, err = auth.NewSealer(s.keys.Current, seal.purpose, s.keys.Accepted...); err != nil {
			return out, err
		}
	}
	if out.tokens = []byte(s.cfg.JWTSecret); len(out.tokens) == 0 {
		if out.tokens, _, err = s.keys.Derive(purposeTokens); err != nil {
			return out, err
		}
	}
	seed, acceptedSeeds, err := s.keys.Derive(purposeAudit)
	if err != nil {
		return out, err
	}
	checkpoints := s.cfg.AuditCheckpoints
	if checkpoints == "" {
		checkpoints = filepath.Join(s.cfg.Data, "audit-checkpoints.jsonl")
	}
	s.audit, err = audit.Open(ctx, audit.Config{
		DB: s.db, Seed: seed, Accepted: acceptedSeeds, Now: s.now, Log: s.log, Registry: deps.Registry,
		Checkpoints: checkpoints, Send: audit.Endpoint{URL: s.cfg.AuditCheckpointURL, Secret: s.cfg.AuditCheckpointSecret},
	})
	if err != nil {
		return out, err
	}
	s.renew = func(ctx context.Context, tx *db.Tx, rotated bool) (unreadable int, err error) {
		return s.renewSeals(ctx, tx, out, rotated)
	}
	s.cfg.SecretKey, s.cfg.AcceptedSecretKey, s.cfg.JWTSecret, s.cfg.AuditCheckpointSecret = "", "", "", ""
	return out, s.keys.Settle(ctx, s.db, func(tx *db.Tx, rotated bool) (int, error) { return s.renew(ctx, tx, rotated) })
}

// renewSeals seals stored secrets with the current secret key where they are not. If the key was
// rotated, it lets the audit log continue with the new one, too.
func (s *Service) renewSeals(ctx context.Context, tx *db.Tx, with sealers, rotated bool) (unreadable int, err error) {
	resealed, unreadable, err := keyring.Reseal(ctx, tx, with.settings, "vms", "id")
	if err != nil {
		return unreadable, err
	}
	n, bad, err := identity.Reseal(ctx, tx, with.factors)
	resealed, unreadable = resealed+n, unreadable+bad
	if err != nil {
		return unreadable, err
	}
	n, bad, err = endpoint.Reseal(ctx, tx, with.webhooks)
	resealed, unreadable = resealed+n, unreadable+bad
	if err != nil || !rotated {
		return unreadable, err
	}
	if err := s.audit.Rotate(ctx, tx); err != nil {
		return unreadable, err
	}
	e := caller.System.Entry(audit.Entry{Action: "secret-key.rotate", Message: "the secret key was rotated"})
	return unreadable, s.audit.Append(ctx, tx, e, map[string]int{"resealed": resealed, "unreadable": unreadable})
}

// renewLateSeals seals again what other replicas have sealed with an older key.
func (s *Service) renewLateSeals(ctx context.Context) error {
	return s.keys.Renew(ctx, s.db, func(tx *db.Tx, rotated bool) (int, error) { return s.renew(ctx, tx, rotated) })
}

// The values of the setting auth.
const (
	authLocal = "local"
	authPAM   = "pam"
)

// openIdentity opens the users, and adds the configured admin if there is no such user.
func (s *Service) openIdentity(ctx context.Context, with sealers) error {
	var host identity.Authenticator
	local := false
	for _, source := range strings.Split(s.cfg.Auth, ",") {
		switch strings.TrimSpace(source) {
		case authLocal:
			local = true
		case authPAM:
			host = pam.Socket(s.cfg.PAMSocket, s.cfg.PAMService)
			if s.cfg.PAMProgram != "" {
				host = pam.Program(s.cfg.PAMProgram, s.cfg.PAMService, "")
			}
		default:
			return fault.InvalidField("auth", "must be %s, %s, or both, not %q", authLocal, authPAM, s.cfg.Auth)
		}
	}
	var err error
	s.identity, err = identity.New(identity.Config{
		DB: s.db, Sealer: with.factors, Secret: with.tokens, Lifetime: s.cfg.tokenLife(), Host: host,
		HostOnly: !local, Now: s.now, Log: s.log,
		Record: func(ctx context.Context, tx *db.Tx, e identity.Event) error {
			return s.audit.Append(ctx, tx, entryOf(e), e.Detail)
		},
		Deny: func(ctx context.Context, e identity.Event) error {
			return s.store.NoteRefused(ctx, entryOf(e), e.Detail)
		},
	})
	if err != nil || s.cfg.AdminUsername == "" {
		return err
	}
	_, err = s.identity.Create(ctx, identity.System, identity.NewAccount{
		Username: s.cfg.AdminUsername, Source: identity.Local, Password: s.cfg.AdminPassword, Role: identity.Admin,
	})
	s.cfg.AdminPassword = ""
	if fault.Is(err, fault.Conflict) {
		return nil // there is one already, whose password stays
	}
	return err
}

// actions are the audit log's names of what package identity does, where they differ.
var actions = map[string]string{
	"account.create": "user.create", "account.update": "user.update", "account.remove": "user.delete",
}

func entryOf(e identity.Event) audit.Entry {
	action := e.Action
	if name, ok := actions[action]; ok {
		action = name
	}
	by := caller.Caller{Name: e.By.Username, Role: caller.Role(e.By.Role), Tenant: e.By.Tenant}
	if e.By == identity.System {
		by = caller.System
	}
	return by.Entry(audit.Entry{Action: action, Target: e.Target, Tenant: e.Tenant, Message: e.Message})
}
