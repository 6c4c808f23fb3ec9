package hypervisor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/httpapi"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

func policyOf(doc *configfile.Config, data string) *admission.Policy {
	p := &doc.Policy
	out := &admission.Policy{
		MaxVCPUs: p.MaxVCPUs, MaxMemoryMiB: p.MaxMemoryMiB, MaxDiskGiB: p.MaxDiskGiB,
		MaxTTL:          time.Duration(p.MaxTTLSeconds) * time.Second,
		AllowedBackends: p.AllowedBackends, AllowedImageDirs: p.AllowedImageDirs,
		AllowedShareDirs: p.AllowedShareDirs, OwnDirs: []string{data},
	}
	if jails := doc.Jailer.ChrootBaseDir; jails != "" {
		out.OwnDirs = append(out.OwnDirs, jails)
	}
	for _, text := range p.AllowedForwards {
		if r, err := configfile.ParsePortRange(text); err == nil { // the document was checked
			out.AllowedForwards = append(out.AllowedForwards, admission.PortRange(r))
		}
	}
	for _, t := range p.Tenants {
		out.Tenants = append(out.Tenants, admission.Tenant{
			Name: t.Tenant, MaxVCPUs: t.MaxVCPUsTotal, MaxMemoryMiB: t.MaxMemoryMiBTotal, MaxVMs: t.MaxVMsTotal,
		})
	}
	return out
}

func openDatabase(ctx context.Context, data string) (*db.DB, error) {
	// The state of this host is always in a local database: see docs/decisions/0023.
	d, err := db.Open(ctx, db.Config{Path: filepath.Join(data, "state", "hypervisor.db"), CacheKiB: 16 << 10})
	if errors.Is(err, durable.ErrLocked) {
		// Package db's error for a held lock recommends PostgreSQL, which this service does not
		// use.
		return nil, fault.New(fault.Unavailable, "data: another process uses %s; "+
			"one daemon runs a host's VMs: stop the other one, or choose another data folder", data)
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

// openKeys opens the audit log and returns the sealers of the guest agents' secrets and of the
// console's cookies.
func (s *Service) openKeys(
	ctx context.Context, registry *prometheus.Registry,
) (sealer, cookies *auth.Sealer, err error) {
	keys, err := keyring.SecretKeys(ctx, s.db, keyring.Config{
		Configured: s.cfg.SecretKey, Accepted: s.cfg.AcceptedSecretKey, Data: s.data, Log: s.log,
		Replace: s.cfg.ReplaceLostKeys,
		Fits: func(ctx context.Context, key []byte) (used, fits bool, err error) {
			return record.KeyFits(ctx, s.db, key)
		},
	})
	if err != nil {
		return nil, nil, err
	}
	s.cfg.SecretKey, s.cfg.AcceptedSecretKey, s.cfg.Token = "", "", ""
	sealer, err = record.NewSealer(keys.Current, keys.Accepted...)
	if err != nil {
		return nil, nil, err
	}
	if cookies, err = auth.NewSealer(keys.Current, "hypervisor console sessions", keys.Accepted...); err != nil {
		return nil, nil, err
	}
	seed, acceptedSeeds, err := keys.Derive("hypervisor audit head")
	if err != nil {
		return nil, nil, err
	}
	checkpoints := s.cfg.AuditCheckpoints
	if checkpoints == "" {
		checkpoints = filepath.Join(s.data, "audit-checkpoints.jsonl")
	}
	s.audit, err = audit.Open(ctx, audit.Config{
		DB: s.db, Seed: seed, Accepted: acceptedSeeds, Now: s.now, Log: s.log, Registry: registry, Checkpoints: checkpoints,
		Send: audit.Endpoint{URL: s.cfg.AuditCheckpointURL, Secret: s.cfg.AuditCheckpointSecret},
	})
	s.cfg.AuditCheckpointSecret = ""
	if err != nil {
		return nil, nil, err
	}
	return sealer, cookies, keys.Settle(ctx, s.db, func(tx *db.Tx, rotated bool) (int, error) {
		return record.RenewSeals(ctx, tx, sealer, s.audit, rotated)
	})
}

// openSignOn returns the console's login at the document's OIDC provider, or nil if there is none.
func (s *Service) openSignOn(doc *configfile.Config, sealer *auth.Sealer) (*auth.OIDC, error) {
	c := s.cfg.SignOn
	s.cfg.SignOn.ClientSecret = ""
	if c.ClientID == "" {
		return nil, nil
	}
	return session.OpenOIDC(auth.OIDCConfig{
		Issuer: doc.Auth.OIDC.Issuer, ClientID: c.ClientID, ClientSecret: c.ClientSecret, RedirectURL: c.RedirectURL,
		Person: httpapi.SignOnRole(doc.Auth.OIDC),
	}, session.CallbackPath, sealer, s.now)
}

// agentProgram returns the path of the guest agent's program, or "" if there is none.
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
