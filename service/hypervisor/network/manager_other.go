//go:build !linux

package network

import (
	"context"
	"net/netip"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

// Manager manages the networks of a host's VMs, which requires Linux.
type Manager struct{ book *book }

// New reads the lease file.
func New(o Options) (*Manager, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b, _, err := openBook(o)
	return &Manager{book: b}, err
}

// Check always fails, since this is not Linux.
func (m *Manager) Check() error {
	return fault.New(fault.Unavailable, "networks of VMs take Linux; use network mode user or none")
}

// Attach always fails.
func (m *Manager) Attach(context.Context, Port) (Attached, error) { return Attached{}, m.Check() }

// Detach does nothing.
func (m *Manager) Detach(context.Context, string) error { return nil }

// Release does nothing.
func (m *Manager) Release(context.Context, string) error { return nil }

// Addresses returns the addresses assigned to a VM.
func (m *Manager) Addresses(vm string) []netip.Addr { return m.book.addresses(vm) }

// Sweep does nothing.
func (m *Manager) Sweep(context.Context, func(string) bool) (Swept, error) { return Swept{}, nil }

// SetLimits does nothing.
func (m *Manager) SetLimits(context.Context, string, Limits) error { return nil }

// LoadPolicies does nothing.
func (m *Manager) LoadPolicies(map[string]*netpolicy.Compiled) {}

// SetPolicy does nothing.
func (m *Manager) SetPolicy(context.Context, string, *netpolicy.Compiled) error { return nil }

// PolicyState returns that the VM is not attached.
func (m *Manager) PolicyState(string) (PolicyState, error) { return PolicyState{}, nil }

// Run waits until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
