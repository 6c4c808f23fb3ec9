package network

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

// Manager manages the networks of a host's VMs. It is safe for concurrent use. It works in the
// network namespace of the calling thread.
type Manager struct {
	o    Options
	book *book

	mu    sync.Mutex // held while the host is changed
	ready bool       // the rules were rebuilt since the start
	// guarded are the ports that have rules in the kernel.
	guarded map[string]lease
	numbers numbers // of tenants
	// policies are those of VMs, attached or not, and enforced those in the kernel.
	policies   map[string]*netpolicy.Compiled
	enforced   map[string]*enforcement
	retired    map[string]*enforcement // by tap: the ones before, whose last records may still come
	tables     int                     // the number of the tables of policies in force
	generation int                     // the last of an enforcement
	switched   map[string]bool         // bridges on which this process turned br_netfilter on

	serverMu sync.Mutex
	server   interface{ wake() } // of the DHCP server, while it listens
	bridged  chan struct{}       // receives a value after the managed bridge was created
}

// New reads the lease file. It changes nothing on the host and needs no privileges.
func New(o Options) (*Manager, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b, strange, err := openBook(o)
	if err != nil {
		return nil, err
	}
	for _, l := range strange {
		o.Log.Warn(
			"the address of a VM is not in the guests' network; it gets another when it starts", "vm", l.VM, "ip",
			l.IP, "network", o.Address.Masked(),
		)
	}
	return &Manager{
		o:       o,
		book:    b,
		guarded: map[string]lease{},
		numbers: numbers{},
		bridged: make(chan struct{}, 1),

		policies: map[string]*netpolicy.Compiled{},
		enforced: map[string]*enforcement{},
		retired:  map[string]*enforcement{},
		switched: map[string]bool{},
	}, nil
}

// Check returns a fault.Unavailable if the host lacks what networks of VMs need.
func (m *Manager) Check() error {
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return unavailable(err, "this host has no /dev/net/tun; load the kernel module tun (modprobe tun)")
	}
	_, err := rulesStand(m.o)
	return err
}

// Attach connects a VM to its bridge: it creates the tap and sets up address and rules. It is
// idempotent, so it can be called for a running VM. If it fails, the port is as it was before.
func (m *Manager) Attach(ctx context.Context, p Port) (Attached, error) {
	l, err := m.o.lease(p)
	if err != nil {
		return Attached{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Attached{}, err
	}
	a := Attached{Tap: m.o.tapName(l.VM), Bridge: l.Bridge, MTU: m.o.MTU}
	if l.Bridge != m.o.Bridge {
		if a.MTU, err = operatorsBridge(l.Bridge); err != nil {
			return Attached{}, err
		}
	}
	if err := m.prepare(); err != nil {
		return Attached{}, err
	}
	before, known := m.book.of(l.VM)
	if l, err = m.book.grant(l); err != nil {
		return Attached{}, err
	}
	if err := m.connect(l, p.OwnerUID, p.Limits); err != nil {
		undo := func() error { return m.book.remove(l.VM) }
		if known {
			undo = func() error { return m.book.put(before) }
		}
		if failed := undo(); failed != nil {
			m.o.Log.Error("the address of a VM that was not attached cannot be given back", "vm", l.VM, "error", failed)
		}
		return Attached{}, err
	}
	if a.IP = l.IP; l.Bridge == m.o.Bridge {
		a.Gateway = m.o.Address
	}
	m.o.Log.Info("attached a VM to its network", "vm", l.VM, "tap", a.Tap, "bridge", l.Bridge, "mac", l.MAC, "ip", l.IP)
	return a, nil
}

// connect creates the devices and rules of a port. The tap is added to the bridge last, so that no
// traffic passes before everything is in place.
func (m *Manager) connect(l lease, owner uint32, limits Limits) error {
	mtu := m.o.MTU
	if l.Bridge == m.o.Bridge {
		if err := m.ensureBridge(); err != nil {
			return err
		}
	} else {
		var err error
		if mtu, err = operatorsBridge(l.Bridge); err != nil {
			return err
		}
	}
	tap, made, err := ensureTap(m.o, l, owner)
	if err != nil {
		return err
	}
	var before *lease
	if g, has := m.guarded[l.VM]; has {
		before = &g
	}
	if err = m.guard(l.VM, &l); err == nil {
		err = m.enforce(l.VM, &l, !made)
	}
	if err == nil {
		err = m.limit(tap, limits)
	}
	if err == nil {
		err = plug(tap, l.Bridge, mtu, m.o.Isolate && l.Bridge == m.o.Bridge)
	}
	if err == nil {
		return nil
	}
	undo := func() error { return m.guard(l.VM, before) }
	if made {
		undo = func() error { return m.detach(l.VM) }
	}
	if undo := undo(); undo != nil {
		m.o.Log.Error(
			"what was made of a port cannot be removed; the next start of the daemon does", "vm", l.VM, "error", undo,
		)
	}
	return err
}

func (m *Manager) ensureBridge() error {
	made, err := ensureBridge(m.o)
	if err != nil {
		return err
	}
	if made {
		m.o.Log.Info("made the bridge of the guests", "bridge", m.o.Bridge, "address", m.o.Address)
		m.wakeServer()
	}
	if m.o.NoNAT {
		return nil
	}
	const forward = "net/ipv4/ip_forward"
	if was, err := os.ReadFile("/proc/sys/" + forward); err == nil && string(was) == "0\n" {
		m.o.Log.Info("turning net.ipv4.ip_forward on: this host is now a router for its guests")
	}
	return sysctl(forward, "1")
}

// prepare rebuilds the rules on first use: those of an earlier daemon may be from another version
// or other settings.
func (m *Manager) prepare() error {
	if m.ready {
		return nil
	}
	if err := m.rebuild(); err != nil {
		return err
	}
	m.ready = true
	return nil
}

// rebuild replaces all rules with those for the existing known taps.
func (m *Manager) rebuild() error {
	there, err := taps(m.o)
	if err != nil {
		return err
	}
	guarded := map[string]lease{}
	for _, l := range m.book.all() {
		if there[m.o.tapName(l.VM)] == l.VM {
			guarded[l.VM] = l
		}
	}
	leases := make([]lease, 0, len(guarded))
	for _, l := range guarded {
		leases = append(leases, l)
	}
	if err := rebuildRules(m.o, m.numbers, leases); err != nil {
		return err
	}
	m.guarded = guarded
	return m.rebuildPolicies()
}

// guard changes the rules of one VM; nil removes them.
func (m *Manager) guard(vm string, l *lease) error {
	var before *lease
	if g, has := m.guarded[vm]; has {
		before = &g
	}
	if before == nil && l == nil {
		return nil
	}
	if err := changeRules(m.o, m.numbers, before, l); err != nil {
		// Another program changed or removed our tables. They are rebuilt, with this VM's rules if
		// its tap exists.
		m.o.Log.Warn("the rules of the guests were changed by another; making them anew", "error", err)
		return m.rebuild()
	}
	if l == nil {
		delete(m.guarded, vm)
	} else {
		m.guarded[vm] = *l
	}
	return nil
}

// Detach removes the tap and the rules of a VM whose process has ended. The VM keeps its address.
// It is not an error if the VM has no tap.
func (m *Manager) Detach(ctx context.Context, vm string) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.detach(vm)
}

func (m *Manager) detach(vm string) error {
	if err := removeLink(m.o.tapName(vm)); err != nil {
		return err
	}
	return errors.Join(m.guard(vm, nil), m.enforce(vm, nil, false), m.dropSendLimits(func(tap string) bool {
		return tap == m.o.tapName(vm)
	}))
}

// Release calls Detach and frees the address of a VM that is deleted.
func (m *Manager) Release(ctx context.Context, vm string) error {
	if err := m.Detach(ctx, vm); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.book.remove(vm)
}

// Addresses returns the addresses assigned to a VM, attached or not. It returns none for an unknown
// VM, or on an operator's bridge that assigns addresses itself.
func (m *Manager) Addresses(vm string) []netip.Addr { return m.book.addresses(vm) }

// Sweep removes taps, rules and addresses of VMs that no longer exist, as a killed daemon leaves
// them, and rebuilds the rules of the others. keep reports whether a VM exists. Call it on start,
// before the first Attach.
func (m *Manager) Sweep(ctx context.Context, keep func(vm string) bool) (Swept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s Swept
	there, err := taps(m.o)
	if err != nil {
		return s, err
	}
	guarded, err := guardedTaps(m.o)
	if err != nil {
		return s, err
	}
	kept := map[string]bool{}
	for name, vm := range there {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		if vm != "" && m.o.tapName(vm) == name && keep(vm) {
			kept[name] = true
			continue
		}
		if err := removeLink(name); err != nil {
			return s, err
		}
		s.Taps++
	}
	var gone []string
	for _, l := range m.book.all() {
		if !keep(l.VM) {
			gone = append(gone, l.VM)
		}
	}
	if err := m.book.remove(gone...); err != nil {
		return s, err
	}
	s.Leases = len(gone)
	if len(kept) == 0 {
		// The next Attach makes the rules.
		if err := removeRules(m.o); err != nil {
			return s, err
		}
		m.enforced = map[string]*enforcement{}
		if err := m.settleFilter(m.o.Bridge); err != nil {
			return s, err
		}
	} else {
		if err := m.rebuild(); err != nil {
			return s, err
		}
		m.ready = true
	}
	if err := m.dropSendLimits(func(tap string) bool { return !kept[tap] }); err != nil {
		return s, err
	}
	slices.Sort(guarded)
	for _, name := range slices.Compact(guarded) {
		if !kept[name] {
			s.Rules++
		}
	}
	return s, nil
}

// leave removes the rules if no VM needs them. The kernel limits the chains at a hook (noRules), and
// the chains of daemons whose folders were deleted would stay until the host restarts.
func (m *Manager) leave() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ready {
		return nil
	}
	there, err := taps(m.o)
	if err != nil || len(there) > 0 {
		return err
	}
	m.ready, m.guarded, m.enforced = false, map[string]lease{}, map[string]*enforcement{}
	return removeRules(m.o)
}
