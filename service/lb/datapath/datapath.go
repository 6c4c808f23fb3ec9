//go:build linux

package datapath

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// How the program can be attached.
const (
	// Generic works on every interface: the kernel runs the program on its own packets.
	Generic = "generic"
	// Native runs it in the interface's driver, which is faster, if the driver can.
	Native = "native"
	// Auto is Native where that works, and Generic where not.
	Auto = "auto"
)

// Options say where and how to balance.
type Options struct {
	// Interface is the one that clients' packets come in on.
	Interface string
	// More are other interfaces that packets of clients or backends come in on.
	More []string
	Mode string // Generic, Native or Auto
	// The sources of tunnels to backends of each family.
	TunnelSource, TunnelSource6 netip.Addr
	// Dir is where the kernel's BPF file system is, or shall be, mounted. If it is empty,
	// nothing outlives this process.
	Dir string
	// Flows is how many flows of each family are remembered; 0 and less are DefaultFlows.
	Flows int
	// Sources are addresses of this node that SNAT gives packets as their source, at most
	// MaxSources of each family. Without one of a backend's family, it is the address that the
	// node's routes say.
	Sources []netip.Addr
	// Transmit is how packets leave by the interface that they came in on.
	Transmit Transmit
	Log      *slog.Logger
}

// Transmit is how a packet leaves by the interface that it came in on.
type Transmit uint8

// The ways.
const (
	// TransmitAuto is TransmitRedirect in native mode on a veth device, whose peer
	// takes frames sent with XDP_TX only if it has a program itself, and else
	// TransmitBack.
	TransmitAuto     Transmit = iota
	TransmitBack              // XDP_TX
	TransmitRedirect          // bpf_redirect
)

// Datapath is the program on the interfaces. Its methods may be called from several
// goroutines.
type Datapath struct {
	log     *slog.Logger
	options Options
	pins    string   // folder of the pinned maps and link; empty if they are not pinned
	lock    *os.File // of the folder; nil if there is none
	objects programObjects
	table   *ebpf.MapSpec // of a VIP's hash table
	node    *netlab.Host  // the namespace that the interface is in
	stop    context.CancelFunc
	stopped sync.WaitGroup

	replaced []replaced // while it opens

	mu      sync.Mutex
	ports   []*port
	mode    string // Generic or Native
	known   *state
	probing *probeNet // nil until it is needed
	found   map[VIPKey]map[BackendKey]State

	paths map[programAddress]uint16 // what routers said of the ways to tunnels' ends, in bytes

	sweeping sync.Mutex    // taken before mu
	counted  [2]tableCount // flows of IPv4 and IPv6
}

// Open loads the program and attaches it. Where an earlier process left a program
// and its maps, they are taken over: packets are balanced all the while, by the old
// program until the new one is in its place.
func Open(ctx context.Context, o Options) (*Datapath, error) {
	d := &Datapath{log: o.Log, options: o}
	if o.Flows <= 0 {
		d.options.Flows = DefaultFlows
	}
	var err error
	if d.node, err = netlab.Here(); err != nil {
		return nil, err
	}
	for _, name := range append([]string{o.Interface}, o.More...) {
		p := &port{name: name}
		if p.device, err = findDevice(d.node, name); err != nil {
			return nil, d.fail(err)
		}
		d.ports = append(d.ports, p)
	}
	if d.pins, err = pinFolder(o.Dir, o.Interface); err != nil {
		d.log.Warn("connections will not survive a restart, since maps cannot be pinned", "error", err)
	}
	if d.pins != "" {
		if d.lock, err = lockFolder(d.pins, o.Interface); err != nil {
			return nil, d.fail(err)
		}
	}
	if err := d.load(); err != nil {
		return nil, d.fail(err)
	}
	if err := d.restore(); err != nil {
		return nil, d.fail(err)
	}
	if err := d.provideSources(); err != nil {
		return nil, d.fail(err)
	}
	if err := d.followOwn(); err != nil {
		return nil, d.fail(err)
	}
	if err := d.attach(); err != nil {
		return nil, d.fail(err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.stopped.Go(func() { routine.Keep(life, d.log, "flow tables", d.keepTending) })
	return d, nil
}

func (d *Datapath) fail(err error) error {
	_ = errors.Join(d.closeReplaced(), d.closePorts(), d.objects.Close(), d.node.Close(), d.unlock()) // err says more
	return err
}

func (d *Datapath) closePorts() error {
	var errs []error
	for _, p := range d.ports {
		if p.link != nil {
			errs = append(errs, p.link.Close())
		}
		if p != d.ports[0] { // whose program is one of d.objects
			errs = append(errs, p.program.Close())
		}
	}
	return errors.Join(errs...)
}

// Interfaces are the names of the interfaces that the program is on.
func (d *Datapath) Interfaces() []string {
	return append([]string{d.options.Interface}, d.options.More...)
}

// AttachedMode is Generic or Native.
func (d *Datapath) AttachedMode() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode
}

// States are the backends that the kernel had when the datapath was opened.
func (d *Datapath) States() map[VIPKey]map[BackendKey]State { return d.found }

// Close lets go of the program, which stays attached and keeps balancing, unless
// nothing could be pinned.
func (d *Datapath) Close() error {
	d.stop()
	d.stopped.Wait()
	if d.pins == "" {
		d.log.Warn(
			"packets are no longer balanced, since the program could not be pinned", "interfaces", d.Interfaces(),
		)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := []error{d.closePorts()}
	if d.probing != nil {
		errs = append(errs, d.probing.Close())
	}
	return errors.Join(append(errs, d.objects.Close(), d.node.Close(), d.unlock())...)
}

func (d *Datapath) unlock() error {
	if d.lock == nil {
		return nil
	}
	return unlock(d.lock)
}
