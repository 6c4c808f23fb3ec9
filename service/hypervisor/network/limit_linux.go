package network

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What a guest receives is sent by the host through its tap: a queue of the tap (tbf) delays what is too much.
// What it sends arrives at the host, where there is no queue: a rule at the tap drops what is too much. Both let
// a burst pass, which has room for the largest packets of a guest.

// limitTable is the table of the rules that limit what guests send: a chain for each tap, with its name.
func (o Options) limitTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyNetdev, Name: o.tableName()}
}

// burst returns how many bytes may pass at once at a rate in bytes a second: what passes in an eighth of a second.
func burst(rate int64) int64 { return min(max(rate/8, 256<<10), 64<<20) }

// SetLimits limits what a VM receives and sends from now on. It does nothing without a tap.
func (m *Manager) SetLimits(ctx context.Context, vm string, l Limits) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	tap, err := findLink(m.o.tapName(vm))
	if err != nil || tap == nil {
		return err
	}
	return m.limit(tap, l)
}

// limit limits a tap. The caller holds m.mu.
func (m *Manager) limit(tap netlink.Link, l Limits) error {
	return errors.Join(limitReceiving(tap, l.Receive/8), m.limitSending(tap.Attrs().Name, l.Send/8))
}

// limitReceiving limits what the host sends through a tap, in bytes a second; 0: no limit.
func limitReceiving(tap netlink.Link, rate int64) error {
	if rate == 0 {
		return unlimitReceiving(tap)
	}
	const longest = 20 // how many of a second a packet may wait
	size := burst(rate)
	return kernel(netlink.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: tap.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		},
		Rate: uint64(rate), //nolint:gosec // it is positive
		// The kernel takes the time that the burst takes.
		Buffer: uint32(min(float64(size)/float64(rate)*1e6*netlink.TickInUsec(), 1<<32-1)),
		Limit:  uint32(min(rate/longest+size, 1<<31)), //nolint:gosec // it fits
	}))
}

func unlimitReceiving(tap netlink.Link) error {
	all, err := netlink.QdiscList(tap)
	if err != nil {
		return kernel(err)
	}
	for _, q := range all {
		if _, ours := q.(*netlink.Tbf); ours && q.Attrs().Parent == netlink.HANDLE_ROOT {
			return kernel(netlink.QdiscDel(q))
		}
	}
	return nil
}

// limitSending limits what arrives from a tap, in bytes a second; 0: no limit.
func (m *Manager) limitSending(tap string, rate int64) error {
	if err := m.dropSendLimits(func(name string) bool { return name == tap }); err != nil || rate == 0 {
		return err
	}
	c, err := connect()
	if err != nil {
		return noRules(err)
	}
	t := c.AddTable(m.o.limitTable())
	chain := c.AddChain(&nftables.Chain{
		Name: tap, Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookIngress,
		Priority: nftables.ChainPriorityFilter, Device: tap,
	})
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: rule([]expr.Any{&expr.Limit{
		Type: expr.LimitTypePktBytes, Rate: uint64(rate), Unit: expr.LimitTimeSecond, //nolint:gosec // it is positive
		Burst: uint32(burst(rate)), Over: true, //nolint:gosec // it fits
	}, &expr.Counter{}}, drop())})
	if err := c.Flush(); err != nil {
		return noRules(fmt.Errorf("limit what %s sends: %w", tap, err))
	}
	return nil
}

// dropSendLimits removes the limits of taps, also of those that are gone.
func (m *Manager) dropSendLimits(of func(tap string) bool) error {
	c, err := connect()
	if err != nil {
		return noRules(err)
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyNetdev)
	if errors.Is(err, unix.EPERM) {
		return nil // who may not list them has made none
	}
	if err != nil {
		return noRules(err)
	}
	found := false
	for _, chain := range chains {
		if chain.Table.Name == m.o.tableName() && of(chain.Name) {
			c.FlushChain(chain)
			c.DelChain(chain)
			found = true
		}
	}
	if !found {
		return nil
	}
	return noRules(c.Flush())
}
