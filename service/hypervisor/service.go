package hypervisor

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/console"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/cgroup"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// Deps is what the service needs besides its settings.
type Deps struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Now      func() time.Time
	Console  fs.FS // the built web console; nil: none
	// Backends are those that run VMs; nil: all that there are.
	Backends map[string]backend.Backend
}

// Service is the daemon of one host.
type Service struct {
	cfg  Config
	doc  *configfile.Config
	data string // absolute
	log  *slog.Logger
	now  func() time.Time

	db       *db.DB
	audit    *audit.Log
	jobs     *jobs.Runner
	secrets  *auth.Sealer
	contents *catalog.Store
	policy   admission.Policy
	backends map[string]backend.Backend
	pools    map[string]storage.Pool
	network  *network.Manager  // nil: networks of mode bridge and tap are not to be had
	groups   *cgroup.Hierarchy // nil: VMs are not confined, or the host grants none
	gate     *gate
	tickets  *tickets
	machines machines
	probes   probes
	fleet    *fleet.Registry
	reporter *fleet.Reporter // nil: this host is in no fleet
	// url is where this daemon answers, once it listens.
	url atomic.Pointer[string]

	admission sync.Mutex   // held while a request is held against what is there already
	cleaning  sync.RWMutex // held for reading by who uses contents that no VM stands on yet

	// watchers are the goroutines that follow VMs, until leaving is closed.
	watchers sync.WaitGroup
	leaving  chan struct{}
	leave    sync.Once
	restored chan struct{}   // closed when what was there before is brought back; operations wait for it
	ending   context.Context // as leaving, for who waits with a context
	end      context.CancelFunc

	contract *contract.Contract
	registry *prometheus.Registry
	console  *console.Console // nil: none
	render   httpserve.ErrorRenderer
	limit    func(http.Handler) http.Handler
	metrics  *metrics
}

// Contract loads the service's contract.
func Contract() (*contract.Contract, error) {
	return contract.Load(hypervisorapi.Document, hypervisorapi.BasePath, AccessClasses)
}

// New opens the database and everything else that can fail at start. It starts no VM.
// Close must be called when it succeeded.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Service, err error) {
	doc, err := configfile.Load(cfg.ConfigFile)
	if err != nil {
		return nil, err
	}
	if err := cfg.Validate(doc); err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, doc: doc, log: deps.Log, now: deps.Now, registry: deps.Registry, render: renderer(deps.Log),
		policy: policyOf(doc), gate: newGate(&cfg, &doc.Auth, deps.Now), tickets: newTickets(deps.Now),
		machines: machines{byID: map[string]*machine{}}, probes: probes{answers: map[string]probed{}}, leaving: make(chan struct{}), restored: make(chan struct{}),
	}
	s.ending, s.end = context.WithCancel(context.Background())
	s.limit = s.rateLimit()
	if s.contract, err = Contract(); err != nil {
		return nil, err
	}
	if deps.Console != nil {
		if s.console, err = console.New(deps.Console); err != nil {
			return nil, err
		}
	}
	if s.data, err = filepath.Abs(cfg.Data); err != nil {
		return nil, err
	}
	if err := s.openFolders(); err != nil {
		return nil, err
	}
	if s.db, err = openDatabase(ctx, s.data); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	if err := s.openSecrets(); err != nil {
		return nil, err
	}
	if s.contents, err = catalog.Open(filepath.Join(s.data, "images"), int64(doc.Images.MaxGiB)*gib); err != nil {
		return nil, err
	}
	s.openPools()
	if err := s.openNetwork(); err != nil {
		return nil, err
	}
	if err := s.openGroups(); err != nil {
		return nil, err
	}
	s.openBackends(deps.Backends)
	s.jobs = jobs.New(jobs.Config{DB: s.db, Queues: map[string]int{queue: 2}, Lease: 10 * time.Second, Worker: newID(), Log: s.log, Registry: deps.Registry, Now: s.now, Rand: mathrand.Float64})
	s.operations()
	s.metrics = newMetrics(deps.Registry, s)
	return s, s.openFleet()
}

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

func policyOf(doc *configfile.Config) admission.Policy {
	p := &doc.Policy
	out := admission.Policy{MaxVCPUs: p.MaxVCPUs, MaxMemoryMiB: p.MaxMemoryMiB, MaxDiskGiB: p.MaxDiskGiB, MaxTTL: time.Duration(p.MaxTTLSeconds) * time.Second,
		AllowedBackends: p.AllowedBackends, AllowedImageDirs: p.AllowedImageDirs}
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

func (s *Service) openSecrets() error {
	key, err := auth.SecretKey(s.cfg.SecretKey, s.data)
	if err != nil {
		return err
	}
	s.cfg.SecretKey, s.cfg.Token = "", ""
	if s.secrets, err = auth.NewSealer(key, "hypervisor guest secrets"); err != nil {
		return err
	}
	seed, err := hkdf.Key(sha256.New, key, nil, "hypervisor audit head", 32)
	if err != nil {
		return fmt.Errorf("derive audit key: %w", err)
	}
	s.audit = audit.NewLog(seed, s.now)
	return nil
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
	o := network.Options{Log: s.log, LeaseFile: filepath.Join(s.data, "state", "leases.json"), Bridge: s.doc.Network.Bridge, Address: netip.PrefixFrom(subnet.Addr().Next(), subnet.Bits()), NoNAT: s.doc.Network.DisableNAT}
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

// Close gives back what New opened. Run must have ended.
func (s *Service) Close() error { return s.db.Close() }

// Run brings back the VMs that there are, and keeps them, until ctx ends. The VMs go on.
func (s *Service) Run(ctx context.Context) error {
	// It is not broken off: half of the VMs brought back is no state to leave.
	if err := s.restore(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	close(s.restored)
	s.watchers.Go(func() { s.autostart(ctx) })
	var work sync.WaitGroup
	var jobsErr error
	work.Go(func() { jobsErr = s.jobs.Run(ctx) })
	if s.network != nil {
		work.Go(func() {
			if err := s.network.Run(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("guests get no addresses: the DHCP server ended", "error", err)
			}
		})
	}
	work.Go(func() { s.keepTime(ctx) })
	if s.reporter != nil {
		work.Go(func() { s.reporter.Run(ctx) })
	}
	work.Go(func() {
		jobs.Every(ctx, jobs.Periodic{Name: "forget operations", Interval: time.Hour, Run: s.expireOperations, Log: s.log})
	})
	work.Wait()
	s.depart()
	return jobsErr
}

// depart has all who follow VMs let go of them.
func (s *Service) depart() {
	s.leave.Do(func() {
		close(s.leaving)
		s.end()
	})
	s.watchers.Wait()
}

// keepTime deletes VMs when their time is over.
func (s *Service) keepTime(ctx context.Context) {
	const longest = 30 * time.Second
	for ctx.Err() == nil {
		if err := s.expire(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("VMs whose time is over are not deleted", "error", err)
		}
		timer := time.NewTimer(max(s.untilNextExpiry(ctx, longest), time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// StandsOn says what VMs are run by.
func (s *Service) StandsOn(ctx context.Context) string {
	text := ""
	for _, name := range []string{backend.QEMU, backend.CloudHypervisor, backend.Firecracker, backend.Sandbox} {
		if s.backends[name] == nil {
			continue
		}
		if info := s.probe(ctx, name); info.Available {
			if text != "" {
				text += ", "
			}
			text += name + " " + info.Version
		}
	}
	if text == "" {
		return "nothing that runs VMs: apt-get install qemu-system-x86 qemu-utils"
	}
	return text
}

// Serve listens where the configuration says and answers requests until ctx ends. ready
// is called with the URL once the service can be reached.
func (s *Service) Serve(ctx context.Context, ready func(url string)) error {
	server, err := httpserve.Listen(s.cfg.server(), s.Handler(), s.log)
	if err != nil {
		return err
	}
	s.url.Store(ref(server.URL()))
	background, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() {
		err := s.Run(background)
		stop()
		done <- err
	}()
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(background, cancel) // what cannot run does not serve
	// Those who wait for something are told to come back, so that the server can drain.
	stopWaiting := context.AfterFunc(serving, func() {
		s.leave.Do(func() {
			close(s.leaving)
			s.end()
		})
	})
	defer stopWaiting()
	ready(server.URL())
	err = server.Run(serving)
	stop()
	return errors.Join(err, <-done)
}
