package hypervisor

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
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
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/cgroup"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
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

// openFolders makes the data's folder. VMs that run under own uids pass through it.
func (s *Service) openFolders() error {
	if err := os.MkdirAll(s.data, 0o711); err != nil { //nolint:gosec // what is in it keeps its own permissions
		return fault.Wrap(fault.Invalid, err, "data: cannot make the folder %s", s.data)
	}
	for name, mode := range map[string]os.FileMode{"vms": 0o711, "backups": 0o700, "bases": 0o711, "state": 0o700} {
		if err := os.MkdirAll(filepath.Join(s.data, name), mode); err != nil {
			return fault.Wrap(fault.Invalid, err, "data: cannot make a folder in %s", s.data)
		}
	}
	if !s.doc.Jailer.Enabled {
		return nil
	}
	if os.Geteuid() != 0 {
		return fault.New(fault.Invalid, "jailer.enabled: running VMs under uids of their own takes root")
	}
	for dir := s.data; dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fault.New(fault.Invalid, "jailer.enabled: VMs under uids of their own cannot pass through %s: chmod o+x %s", dir, dir)
		}
	}
	return nil
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

func (s *Service) openPools() {
	s.pools = map[string]storage.Pool{storage.Dir: storage.DirPool{}}
	st := &s.doc.Storage
	if st.LVMVolumeGroup != "" {
		s.pools[storage.LVMThin] = storage.LVMPool{Group: st.LVMVolumeGroup, Thin: st.LVMThinPool}
	}
	if st.NBDServer != "" {
		s.pools[storage.NBD] = storage.NBDPool{Server: st.NBDServer}
	}
	if st.CephPool != "" {
		s.pools[storage.CephRBD] = storage.RBDPool{Pool: st.CephPool, User: st.CephUser, Conf: st.CephConf}
		s.pools[storage.CephRBDInPlace] = storage.RBDPool{Pool: st.CephPool, User: st.CephUser, Conf: st.CephConf, InPlace: true}
	}
}

// openGroups looks whether the host grants control groups, where VMs are confined.
func (s *Service) openGroups() error {
	if !s.doc.Jailer.Enabled {
		return nil
	}
	name := sha256.Sum256([]byte(s.data))
	groups, err := cgroup.Open(fmt.Sprintf("mainstay-%x", name[:4]))
	if err != nil {
		if s.doc.Jailer.Enforce {
			return fault.New(fault.Invalid, "jailer.enforce: %s", fault.From(err).Message)
		}
		s.log.Warn("VMs run without limits by control groups", "reason", fault.From(err).Message)
		return nil
	}
	s.groups = groups
	return nil
}

// openNetwork looks at nothing but its own file: VMs without a bridge need no more.
func (s *Service) openNetwork() error {
	subnet, err := netip.ParsePrefix(s.doc.Network.Subnet)
	if err != nil {
		return err
	}
	o := network.Options{Log: s.log, Owner: s.data, ShareBridge: s.doc.Network.ShareBridge, LeaseFile: filepath.Join(s.data, "state", "leases.json"), Bridge: s.doc.Network.Bridge, Address: netip.PrefixFrom(subnet.Addr().Next(), subnet.Bits()), NoNAT: s.doc.Network.DisableNAT}
	for _, server := range s.doc.Network.DNS {
		addr, err := netip.ParseAddr(server)
		if err != nil {
			return err
		}
		o.DNS = append(o.DNS, addr)
	}
	manager, err := network.New(o)
	if err != nil {
		return err
	}
	if err := manager.Check(); err != nil {
		s.log.Info("VMs can have no network of mode bridge or tap here", "reason", fault.From(err).Message)
		return nil
	}
	s.network = manager
	return nil
}

func (s *Service) openBackends(given map[string]backend.Backend) {
	if given == nil {
		given = s.localBackends()
	}
	s.backends = given
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
