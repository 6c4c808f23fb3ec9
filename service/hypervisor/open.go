package hypervisor

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// openFleet makes this daemon a registry, which every one is that is asked to be, and a
// node of the fleet that the settings name.
func (s *Service) openFleet() (err error) {
	token := s.cfg.FleetToken
	s.cfg.FleetToken = ""
	if s.fleet, err = fleet.New(fleet.Config{DB: s.db, Token: token, Log: s.log, Now: s.now, Interval: s.cfg.HeartbeatInterval, CAFile: s.cfg.FleetCA}); err != nil {
		return err
	}
	if s.cfg.Registry == "" {
		return nil
	}
	s.reporter, err = fleet.NewReporter(fleet.ReporterConfig{Registry: s.cfg.Registry, Name: s.cfg.NodeName, Token: token, Report: s.heartbeat, Interval: s.cfg.HeartbeatInterval, CAFile: s.cfg.FleetCA, Log: s.log})
	return err
}

// advertised is where the registry reaches this daemon.
func (s *Service) advertised() string {
	if s.cfg.Advertise != "" {
		return s.cfg.Advertise
	}
	if url := s.url.Load(); url != nil {
		return *url
	}
	return ""
}

func policyOf(doc *configfile.Config, data string) admission.Policy {
	p := &doc.Policy
	out := admission.Policy{MaxVCPUs: p.MaxVCPUs, MaxMemoryMiB: p.MaxMemoryMiB, MaxDiskGiB: p.MaxDiskGiB, MaxTTL: time.Duration(p.MaxTTLSeconds) * time.Second,
		AllowedBackends: p.AllowedBackends, AllowedImageDirs: p.AllowedImageDirs, OwnDirs: []string{data}}
	if jails := doc.Jailer.ChrootBaseDir; jails != "" {
		out.OwnDirs = append(out.OwnDirs, jails)
	}
	for _, t := range p.Tenants {
		out.Tenants = append(out.Tenants, admission.Tenant{Name: t.Tenant, MaxVCPUs: t.MaxVCPUsTotal, MaxMemoryMiB: t.MaxMemoryMiBTotal, MaxVMs: t.MaxVMsTotal})
	}
	return out
}

func openDatabase(ctx context.Context, data string) (*db.DB, error) {
	// What this host has is told by this host alone: see docs/decisions/0023.
	d, err := db.Open(ctx, db.Config{Path: filepath.Join(data, "state", "hypervisor.db"), CacheKiB: 16 << 10})
	if errors.Is(err, syscall.EWOULDBLOCK) {
		// What package db says of the lock recommends PostgreSQL, which this service does not use.
		return nil, fault.New(fault.Unavailable, "data: another process uses %s; one daemon runs a host's VMs: stop the other one, or choose another data folder", data)
	}
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

func (s *Service) openSecrets(ctx context.Context) error {
	key, _, err := keyring.SecretKey(ctx, s.db, keyring.Config{Configured: s.cfg.SecretKey, Data: s.data, Replace: s.cfg.ReplaceLostKeys, Fits: func(ctx context.Context, key []byte) (used, fits bool, err error) {
		return record.KeyFits(ctx, s.db, key)
	}})
	if err != nil {
		return err
	}
	s.cfg.SecretKey, s.cfg.Token = "", ""
	sealer, err := record.NewSealer(key)
	if err != nil {
		return err
	}
	seed, err := hkdf.Key(sha256.New, key, nil, "hypervisor audit head", 32)
	if err != nil {
		return fmt.Errorf("derive audit key: %w", err)
	}
	checkpoints := s.cfg.AuditCheckpoints
	if checkpoints == "" {
		checkpoints = filepath.Join(s.data, "audit-checkpoints.jsonl")
	}
	s.audit, err = audit.Open(ctx, audit.Config{DB: s.db, Seed: seed, Now: s.now, Log: s.log, Registry: s.registry, Checkpoints: checkpoints,
		Send: audit.Endpoint{URL: s.cfg.AuditCheckpointURL, Secret: s.cfg.AuditCheckpointSecret}})
	s.cfg.AuditCheckpointSecret = ""
	s.store = record.New(record.Config{DB: s.db, Audit: s.audit, Sealer: sealer, Policy: &s.policy, Now: s.now})
	s.machines = machine.NewSet(s.store, s.log)
	return err
}

// agentProgram is the path of the guest agent's program; empty if there is none.
func (s *Service) agentProgram() string {
	if s.cfg.GuestAgent != "" {
		path, err := filepath.Abs(s.cfg.GuestAgent)
		if err != nil {
			return ""
		}
		return path
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "mainstay-guest")
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	if found, err := exec.LookPath("mainstay-guest"); err == nil {
		return found
	}
	return ""
}
