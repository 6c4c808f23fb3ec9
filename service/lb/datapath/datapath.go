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

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// The modes in which the program can be attached.
const (
	// Generic works on every interface: the kernel runs the program on its own packet buffers.
	Generic = "generic"
	// Native runs the program in the interface's driver. It is faster, but needs support from the
	// driver.
	Native = "native"
	// Auto is Native where that works, and otherwise Generic.
	Auto = "auto"
)

// Options are the options of Open.
type Options struct {
	// Interface is the interface on which packets of clients arrive.
	Interface string
	// More are other interfaces on which packets of clients or backends arrive.
	More []string
	Mode string // Generic, Native or Auto
	// TunnelSource and TunnelSource6 are the source addresses of tunnels to IPv4 and IPv6 backends.
	TunnelSource, TunnelSource6 netip.Addr
	// Dir is the mount point of the kernel's BPF file system, which Open mounts if necessary. If it
	// is empty, nothing outlives this process.
	Dir string
	// Flows is the size of the flow table of each IP family; 0 or less means DefaultFlows.
	Flows int
	// Sources are addresses of this node that SNAT uses as source addresses, at most MaxSources of
	// each IP family. Without one of a backend's family, SNAT uses the address that the node's
	// routes give.
	Sources []netip.Addr
	// Transmit is how packets leave through the interface on which they arrived.
	Transmit Transmit
	Log      *slog.Logger
}

// Transmit is a way in which packets leave through the interface on which they arrived.
type Transmit uint8

// The values of Transmit.
const (
	// TransmitAuto is TransmitRedirect in native mode on a veth device, since its peer accepts
	// frames sent with XDP_TX only if it has a program itself. Otherwise it is TransmitBack.
	TransmitAuto     Transmit = iota
	TransmitBack              // XDP_TX
	TransmitRedirect          // bpf_redirect
)

// Datapath is the attached program with its maps. It is safe for concurrent use.
type Datapath struct {
	log     *slog.Logger
	options Options
	pins    string   // folder of the pinned maps and links; empty if they are not pinned
	lock    *os.File // lock of the folder; nil if there is none
	objects programObjects
	table   *ebpf.MapSpec // type of a VIP's hash table
	node    *netlab.Host  // network namespace of the interfaces
	stop    context.CancelFunc
	stopped sync.WaitGroup

	replaced []replaced // only during Open

	mu      sync.Mutex
	ports   []*port
	mode    string // Generic or Native
	known   *state
	probing *probeNet // nil until it is first used
	found   map[VIPKey]map[BackendKey]State

	paths map[programAddress]uint16 // path MTUs of tunnel endpoints that routers reported, in bytes

	sweeping sync.Mutex    // acquired before mu
	counted  [2]tableCount // flows of IPv4 and IPv6
}

// Open loads the program and attaches it. It takes over the program and maps of an earlier process,
// if there are any. Balancing is not interrupted: the old program runs until the new one replaces
// it.
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
	_ = errors.Join(d.closeReplaced(), d.closePorts(), d.objects.Close(), d.node.Close(), d.unlock()) // err matters more
	return err
}

func (d *Datapath) closePorts() error {
	var errs []error
	for _, p := range d.ports {
		if p.link != nil {
			errs = append(errs, p.link.Close())
		}
		if p != d.ports[0] { // its program is one of d.objects
			errs = append(errs, p.program.Close())
		}
	}
	return errors.Join(errs...)
}

// Interfaces returns the names of the interfaces that the program is attached to.
func (d *Datapath) Interfaces() []string {
	return append([]string{d.options.Interface}, d.options.More...)
}

// AttachedMode returns Generic or Native.
func (d *Datapath) AttachedMode() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode
}

// States returns the states of the backends that the kernel had when the datapath was opened.
func (d *Datapath) States() map[VIPKey]map[BackendKey]State { return d.found }

// Close releases the program, which stays attached and keeps balancing, unless it could not be
// pinned.
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
	return durable.Unlock(d.lock)
}
