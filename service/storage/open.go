package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/alert"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/kit/operation"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/storage/backend"
	"github.com/mainstay-infra/mainstay/service/storage/backup"
	"github.com/mainstay-infra/mainstay/service/storage/bucket"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/dr"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/gate"
	"github.com/mainstay-infra/mainstay/service/storage/httpapi"
	"github.com/mainstay-infra/mainstay/service/storage/job"
	"github.com/mainstay-infra/mainstay/service/storage/monitor"
	"github.com/mainstay-infra/mainstay/service/storage/osd"
	"github.com/mainstay-infra/mainstay/service/storage/provision"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/schedule"
)

// Migrations returns all migrations of the service, in the order in which to apply them.
func Migrations() []db.Migration {
	return []db.Migration{
		{Owner: "audit", Files: audit.Migrations()},
		{Owner: "jobs", Files: jobs.Migrations()},
		{Owner: "operation", Files: operation.Migrations()},
		{Owner: "alert", Files: alert.Migrations()},
		{Owner: "keyring", Files: keyring.Migrations()},
		{Owner: "session", Files: session.Migrations()},
		{Owner: "storage", Files: record.Migrations()},
	}
}

// DatabaseFile returns the path of the SQLite database in the data folder.
func DatabaseFile(folder string) string { return filepath.Join(folder, "storage.db") }

// databaseReserve is kept for deletions on a full disk, in bytes: room for thousands of small changes.
const databaseReserve = 4 << 20

func openDatabase(ctx context.Context, cfg Config) (*db.DB, error) {
	if err := os.MkdirAll(cfg.Data, 0o711); err != nil { //nolint:gosec // users of volumes pass
		return nil, err
	}
	d, err := db.Open(ctx, db.Config{
		URL: cfg.Database, Path: DatabaseFile(cfg.Data), Schema: "storage", Reserve: databaseReserve,
	})
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
	secrets, err := s.openKeys(ctx, deps)
	if err != nil {
		return err
	}
	if s.folders, err = s.cfg.folders(); err != nil {
		return err
	}
	if s.datasets, err = parseDatasets(s.cfg.ZFSDatasets); err != nil {
		return err
	}
	if s.kubernetes, err = parseKubernetes(s.cfg.KubernetesClusters); err != nil {
		return err
	}
	for _, target := range s.kubernetes {
		warnReadable(s.log, target.Kubeconfig)
	}
	if s.inventories, err = parsePaths("inventories", s.cfg.Inventories); err != nil {
		return err
	}
	if s.ceph, err = parseClusters(s.cfg.CephClusters); err != nil {
		return err
	}
	if err := s.openGateways(); err != nil {
		return err
	}
	s.store = record.New(s.db, s.audit, s.now)
	s.jobs = job.New(job.Config{
		Store: s.store, DB: s.db, Log: s.log, Registry: deps.Registry, Now: s.now, Ending: s.ending,
	})
	s.backends = backend.New(backend.Config{
		Store: s.store, Log: s.log, Now: s.now, Ending: s.ending, Open: s.connect, Check: s.check,
	})
	s.volumes = provision.New(provision.Config{
		Store: s.store, Jobs: s.jobs, Backends: s.backends, Log: s.log, Now: s.now,
	})
	s.buckets = bucket.New(bucket.Config{
		Store: s.store, Jobs: s.jobs, Backends: s.backends, Sealer: s.sealer, Singles: s.singles,
	})
	keys, err := openBackupKeys(s.log, s.cfg.BackupKeys)
	if err != nil {
		return err
	}
	s.backups = backup.New(backup.Config{
		Store: s.store, Jobs: s.jobs, Backends: s.backends, Buckets: s.buckets, Keys: keys,
		Cache: filepath.Join(s.cfg.Data, "backup-cache"), Log: s.log, Now: s.now,
	})
	tokens, err := s.openTokens()
	if err != nil {
		return err
	}
	s.dr = dr.New(dr.Config{
		Store: s.store, Jobs: s.jobs, Backends: s.backends, Tokens: tokens, Log: s.log, Now: s.now,
	})
	s.schedules = schedule.New(schedule.Config{
		Store: s.store, Volumes: s.volumes, Backups: s.backups, Log: s.log,
	})
	if s.monitor, err = monitor.New(monitor.Config{
		DB: s.db, Store: s.store, Audit: s.audit, Log: s.log, Now: s.now, URL: s.cfg.AlertWebhookURL,
		Secret: s.cfg.AlertWebhookSecret,
	}); err != nil {
		return err
	}
	s.cfg.AlertWebhookSecret = ""
	if err := s.begin(caller.ByItself(ctx)); err != nil {
		return err
	}
	var verifier *auth.Verifier
	if s.cfg.AuthRequired {
		if verifier, err = auth.NewVerifier(s.now, secrets...); err != nil {
			return fmt.Errorf("jwt-secret: %w", err)
		}
	}
	s.gate = &gate.Gate{Tokens: verifier, Store: s.store, Low: s.db.Low}
	cookies, err := auth.NewSealer(s.keys.Current, purposeCookies, s.keys.Accepted...)
	if err != nil {
		return err
	}
	workspace, err := session.OpenWorkspace(deps.Workspace, s.cfg.Workspace)
	if err != nil {
		return err
	}
	s.api, err = httpapi.New(httpapi.Config{
		Log: s.log, Registry: deps.Registry, Tracer: deps.Tracer, Console: deps.Console, Now: s.now,
		AccessLog: s.cfg.AccessLog, MaxInFlight: s.cfg.MaxInFlight, Ending: s.ending, Version: deps.Version, Gate: s.gate,
		Cookies: cookies, Ended: session.InDatabase(s.db, s.now), Workspace: workspace,
		Ping:  func(ctx context.Context) (string, error) { return s.db.Engine().String(), s.db.Ping(ctx) },
		Store: s.store, Jobs: s.jobs, Backends: s.backends, Volumes: s.volumes, Monitor: s.monitor,
		OSDs: osd.New(osd.Config{Store: s.store, Jobs: s.jobs, Backends: s.backends}), Buckets: s.buckets,
		Backups: s.backups, DR: s.dr,
	})
	return err
}

// begin makes what a new installation has: the backend local on the folder of that name, and policies for its volumes.
func (s *Service) begin(ctx context.Context) error {
	if _, ok := s.folders[LocalBackend]; !ok {
		return nil
	}
	b, made, err := s.store.FirstBackend(ctx, record.Backend{
		Name: LocalBackend, Type: typeNFS, Mode: record.External, ConnectionRef: LocalBackend,
	})
	if err != nil || !made {
		return err
	}
	for _, p := range []record.Policy{
		{Name: record.DefaultPolicy, Kind: driver.Block, Description: "Block volumes in a folder of this host"},
		{Name: record.SharedPolicy, Kind: driver.Filesystem, Description: "Volumes for files in a folder of this host"},
	} {
		p.BackendID = b.ID
		if _, err := s.store.PutPolicy(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// The purposes of the keys that are derived from the secret key.
const (
	purposeAudit   = "storage audit head"
	purposeTokens  = "storage tokens"
	purposeKeys    = "storage keys of buckets"
	purposeCookies = "storage console sessions"
)

// openKeys opens the secret key and the audit log. It returns the secrets that tokens are signed with.
func (s *Service) openKeys(ctx context.Context, deps Deps) (tokens [][]byte, err error) {
	if s.keys, err = keyring.SecretKeys(ctx, s.db, keyring.Config{
		Configured: s.cfg.SecretKey, Accepted: s.cfg.AcceptedSecretKey, Data: s.cfg.Data, Log: s.log,
		Replace: s.cfg.ReplaceLostKeys,
		// Databases of this service have had a fingerprint from the beginning.
		Fits: func(context.Context, []byte) (used, fits bool, err error) { return false, true, nil },
	}); err != nil {
		return nil, err
	}
	if tokens = [][]byte{[]byte(s.cfg.JWTSecret)}; s.cfg.JWTSecret == "" {
		current, accepted, err := s.keys.Derive(purposeTokens)
		if err != nil {
			return nil, err
		}
		tokens = append([][]byte{current}, accepted...)
	}
	if s.sealer, err = auth.NewSealer(s.keys.Current, purposeKeys, s.keys.Accepted...); err != nil {
		return nil, err
	}
	seed, accepted, err := s.keys.Derive(purposeAudit)
	if err != nil {
		return nil, err
	}
	checkpoints := s.cfg.AuditCheckpoints
	if checkpoints == "" {
		checkpoints = filepath.Join(s.cfg.Data, "audit-checkpoints.jsonl")
	}
	s.audit, err = audit.Open(ctx, audit.Config{
		DB: s.db, Seed: seed, Accepted: accepted, Now: s.now, Log: s.log, Registry: deps.Registry, Checkpoints: checkpoints,
		Send: audit.Endpoint{URL: s.cfg.AuditCheckpointURL, Secret: s.cfg.AuditCheckpointSecret},
	})
	if err != nil {
		return nil, err
	}
	s.cfg.SecretKey, s.cfg.AcceptedSecretKey, s.cfg.JWTSecret, s.cfg.AuditCheckpointSecret = "", "", "", ""
	return tokens, s.keys.Settle(ctx, s.db, func(tx *db.Tx, rotated bool) (int, error) {
		return s.renew(ctx, tx, rotated)
	})
}

// renew seals the keys of buckets with the current secret key where they are not. If the key was rotated, it lets the
// audit log continue with the new one, too.
func (s *Service) renew(ctx context.Context, tx *db.Tx, rotated bool) (unreadable int, err error) {
	unreadable, err = record.ResealBuckets(ctx, tx, s.sealer)
	if err != nil || !rotated {
		return unreadable, err
	}
	if err := s.audit.Rotate(ctx, tx); err != nil {
		return unreadable, err
	}
	e := caller.System.Entry(audit.Entry{Action: "secret-key.rotate", Message: "the secret key was rotated"})
	return unreadable, s.audit.Append(ctx, tx, e, nil)
}
