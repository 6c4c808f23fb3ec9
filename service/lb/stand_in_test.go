package lb

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/service/lb/bgp"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// memoryPlane is a Plane, and its Hops, without a kernel.
type memoryPlane struct {
	states  map[datapath.VIPKey]map[datapath.BackendKey]datapath.State
	changed chan struct{}
	links   chan struct{}

	mu          sync.Mutex
	applied     []datapath.VIP
	applies     int
	openErr     error
	applyErr    error
	dialErr     error
	counters    datapath.Counters
	countersErr error
	followErr   error
	hops        map[netip.Addr]datapath.NextHop // nil: all are known
	wanted      []Target
	closed      bool
	dialed      []string
}

// errBreaks as the error of Apply has it panic.
var errBreaks = errors.New("it panics")

func newMemoryPlane() *memoryPlane {
	return &memoryPlane{changed: make(chan struct{}, 1), links: make(chan struct{}, 1)}
}

func (p *memoryPlane) Apply(vips []datapath.VIP) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applies++
	if p.applyErr == errBreaks {
		panic("boom")
	}
	if p.applyErr != nil {
		return p.applyErr
	}
	p.applied = slices.Clone(vips)
	return nil
}

func (p *memoryPlane) Counters() (datapath.Counters, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters, p.countersErr
}

func (p *memoryPlane) Follow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.followErr
}

func (p *memoryPlane) Explain(f datapath.Flow) (datapath.Explanation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.applied {
		if v.Address == f.VIP.Addr() && v.Port <= f.VIP.Port() && f.VIP.Port() <= v.LastPort &&
			v.Protocol == f.Protocol {
			return datapath.Explanation{
				VIP:     v.VIPKey,
				Backend: v.Backends[0].BackendKey,
				Reason:  datapath.ByHash,
				Slot:    7,
				Slots:   65537,
				Hashed:  v.Backends[0].BackendKey,
			}, nil
		}
	}
	return datapath.Explanation{Reason: datapath.NoVIP}, nil
}

func (p *memoryPlane) Interfaces() []string { return []string{"eth0"} }
func (p *memoryPlane) AttachedMode() string { return "generic" }

func (p *memoryPlane) States() map[datapath.VIPKey]map[datapath.BackendKey]datapath.State {
	return p.states
}

func (p *memoryPlane) DialProbe(
	_ context.Context, vip datapath.VIPKey, b datapath.BackendKey, port uint16,
) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialed = append(p.dialed, vip.String()+" "+b.String()+" "+netip.AddrPortFrom(vip.Address, port).String())
	if p.dialErr != nil {
		return nil, p.dialErr
	}
	return nil, errors.New("no network here")
}

func (p *memoryPlane) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

func (p *memoryPlane) Want(targets []Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = targets
}

func (p *memoryPlane) Lookup(t Target) datapath.NextHop {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hops == nil {
		return datapath.NextHop{Interface: 1, Destination: datapath.MAC{2}}
	}
	return p.hops[t.Address]
}

func (p *memoryPlane) Changed() <-chan struct{} { return p.changed }

func (p *memoryPlane) Links() <-chan struct{} { return p.links }

func (p *memoryPlane) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// set changes the plane, and wakes the controller up.
func (p *memoryPlane) set(change func()) {
	p.mu.Lock()
	change()
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// memorySpeaker is a Speaker without peers.
type memorySpeaker struct {
	mu        sync.Mutex
	cfg       *bgp.Config
	announced []netip.Addr
	calls     int
	closed    bool
}

func (s *memorySpeaker) Configure(cfg *bgp.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg = cfg
	return nil
}

func (s *memorySpeaker) Announce(addresses []netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced, s.calls = slices.Clone(addresses), s.calls+1
	return nil
}

func (s *memorySpeaker) Sessions() []bgp.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	sessions := []bgp.Session{}
	if s.cfg != nil {
		for _, p := range s.cfg.Peers {
			sessions = append(sessions, bgp.Session{Peer: p.Address, ASN: p.ASN, State: bgp.Established})
		}
	}
	return sessions
}

func (s *memorySpeaker) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced, s.closed = nil, true
	return nil
}

// memoryProber notes what it shall probe; tests say what it finds.
type memoryProber struct {
	mu     sync.Mutex
	checks map[probe.ID]probe.Check
	sets   int
}

func (p *memoryProber) Set(checks []probe.Check) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checks, p.sets = map[probe.ID]probe.Check{}, p.sets+1
	for _, c := range checks {
		if err := c.Validate(); err != nil {
			return err
		}
		p.checks[c.ID] = c
	}
	return nil
}

func (p *memoryProber) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (p *memoryProber) known() map[probe.ID]probe.Check {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.checks)
}

// bench is a controller with nothing real around it. Use it inside of
// synctest.Test, where synctest.Wait is when it has settled.
type bench struct {
	*testing.T
	*controller
	plane   *memoryPlane
	speaker *memorySpeaker
	prober  *memoryProber
	opened  []PlaneOptions
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, plane: newMemoryPlane(), speaker: &memorySpeaker{}, prober: &memoryProber{}}
	b.controller = &controller{
		log:     slog.New(slog.DiscardHandler),
		prober:  b.prober,
		speaker: b.speaker,
		metrics: newMetrics(prometheus.NewRegistry()),
	}
	b.controller.open = func(_ context.Context, o PlaneOptions) (Plane, Hops, error) {
		b.plane.mu.Lock()
		defer b.plane.mu.Unlock()
		b.opened = append(b.opened, o)
		if b.plane.openErr != nil {
			return nil, nil, b.plane.openErr
		}
		return b.plane, b.plane, nil
	}
	b.init()
	return b
}

// start runs the controller until the test ends.
func (b *bench) start(text string) *bench {
	b.Helper()
	b.load(text)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return b
}

func (b *bench) load(text string) {
	b.Helper()
	if err := b.adopt(parsed(b.T, text), false); err != nil {
		b.Fatal(err)
	}
}

func parsed(t *testing.T, text string) *configfile.Config {
	t.Helper()
	cfg, err := configfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// found tells the controller what a probe found. VIP and backend are by their names.
func (b *bench) found(vip, backend string, healthy bool) {
	b.Helper()
	for id := range b.prober.known() {
		if id.VIP.String() == vip && id.Backend.String() == backend {
			b.healthChanged(id, healthy, "test")
			return
		}
	}
	b.Fatalf("%s of %s is not probed", backend, vip)
}

// states are the states of the kernel's backends, as VIP BACKEND STATE WEIGHT.
func (b *bench) states() []string {
	b.plane.mu.Lock()
	defer b.plane.mu.Unlock()
	var out []string
	for _, v := range b.plane.applied {
		for _, e := range v.Backends {
			out = append(out, v.VIPKey.String()+" "+e.BackendKey.String()+" "+e.State.String())
		}
	}
	return out
}

// kernel is what was applied last, and how often anything was.
func (b *bench) kernel() (vips []datapath.VIP, applies int) {
	b.plane.mu.Lock()
	defer b.plane.mu.Unlock()
	return slices.Clone(b.plane.applied), b.plane.applies
}

// routes are the addresses that are announced.
func (b *bench) routes() []netip.Addr {
	b.speaker.mu.Lock()
	defer b.speaker.mu.Unlock()
	return slices.Clone(b.speaker.announced)
}
