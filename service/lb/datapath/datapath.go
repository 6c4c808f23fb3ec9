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
	"github.com/cilium/ebpf/link"

	"github.com/mainstay-infra/mainstay/kit/netlab"
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

// DefaultFlows is how many flows of each IP family are remembered by default.
const DefaultFlows = 262144

// Options say where and how to balance.
type Options struct {
	Interface string
	Mode      string // Generic, Native or Auto
	// The sources of tunnels to backends of each family.
	TunnelSource, TunnelSource6 netip.Addr
	// Dir is where the kernel's BPF file system is, or shall be, mounted. If it is empty,
	// nothing outlives this process.
	Dir string
	// Flows is how many flows of each family are remembered; 0 and less are DefaultFlows. A
	// change drops all flows, since the kernel's tables cannot grow.
	Flows int
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

// Datapath is the program on one interface. Its methods may be called from several
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

	mu      sync.Mutex
	device  device
	mode    string // Generic or Native
	link    link.Link
	known   *state
	probing *probeNet // nil until it is needed
	found   map[VIPKey]map[BackendKey]State

	sweeping sync.Mutex
	swept    sweepResult
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
	if d.device, err = findDevice(d.node, o.Interface); err != nil {
		return nil, d.fail(err)
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
	if err := d.attach(); err != nil {
		return nil, d.fail(err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.stopped.Go(func() { d.keepSweeping(life) })
	return d, nil
}

func (d *Datapath) fail(err error) error {
	_ = errors.Join(d.objects.Close(), d.node.Close(), d.unlock()) // err says more
	return err
}

// Interface is the name of the interface that the program is on.
func (d *Datapath) Interface() string { return d.options.Interface }

// AttachedMode is Generic or Native.
func (d *Datapath) AttachedMode() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mode
}

// States are the backends that the kernel had when the datapath was opened.
func (d *Datapath) States() map[VIPKey]map[BackendKey]State { return d.found }

// Close lets go of the program, which stays attached and goes on balancing, unless
// nothing could be pinned.
func (d *Datapath) Close() error {
	d.stop()
	d.stopped.Wait()
	if d.pins == "" {
		d.log.Warn("packets are no longer balanced, since the program could not be pinned", "interface", d.options.Interface)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	if d.link != nil {
		errs = append(errs, d.link.Close())
	}
	if d.probing != nil {
		errs = append(errs, d.probing.Close())
	}
	return errors.Join(append(errs, d.objects.Close(), d.node.Close(), d.unlock())...)
}

func (d *Datapath) unlock() error {
	if d.lock == nil {
		return nil
	}
	return d.lock.Close()
}
