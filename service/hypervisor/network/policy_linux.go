package network

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

// LoadPolicies replaces the known policies, by the ids of the VMs. Call it before Sweep, which
// enforces them.
func (m *Manager) LoadPolicies(all map[string]*netpolicy.Compiled) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policies = all
}

// SetPolicy sets the policy of a VM, nil for none. If the VM is attached, it is enforced when
// SetPolicy returns; else when the VM is attached, before its first packet. If it fails, the policy is
// what it was.
func (m *Manager) SetPolicy(ctx context.Context, vm string, p *netpolicy.Compiled) error {
	if err := checkVM(vm); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	before := m.policies[vm]
	m.remember(vm, p)
	l, attached := m.guarded[vm]
	if !attached {
		if p == nil {
			delete(m.retired, m.o.tapName(vm))
		}
		return nil
	}
	err := m.enforce(vm, &l, true)
	if err != nil {
		m.remember(vm, before)
	}
	return err
}

func (m *Manager) remember(vm string, p *netpolicy.Compiled) {
	if p == nil {
		delete(m.policies, vm)
	} else {
		m.policies[vm] = p
	}
}

// enforce makes the kernel's policy of a VM the known one, in one transaction. l is nil if the VM has
// no tap any more. alive says that the VM may have flows from before, of which nothing is known.
func (m *Manager) enforce(vm string, l *lease, alive bool) error {
	before, after := m.enforced[vm], m.wanted(vm, l)
	if before == nil && after == nil {
		return nil
	}
	if after != nil {
		if err := canFilter(); err != nil {
			return err
		}
	}
	if err := m.swap(before, after, alive); err != nil {
		if after != nil && errors.Is(err, unix.ENOMEM) {
			return unavailable(err, "the kernel has not enough memory for this policy")
		}
		m.o.Log.Warn("the policies of the guests were changed by another; making them anew", "error", err)
		if err := m.rebuildPolicies(); err != nil {
			return err
		}
		after = m.enforced[vm]
	}
	m.retired[m.o.tapName(vm)] = before
	if after == nil {
		delete(m.enforced, vm)
		return m.settleFilter(before.bridge)
	}
	m.enforced[vm] = after
	if err := m.filter(after.bridge); err != nil {
		return errors.Join(err, m.swapBack(vm, before, after))
	}
	return nil
}

// wanted returns what is to be in the kernel for a VM, or nil.
func (m *Manager) wanted(vm string, l *lease) *enforcement {
	p := m.policies[vm]
	if p == nil || l == nil {
		return nil
	}
	m.generation++
	return &enforcement{
		tap: m.o.tapName(vm), bridge: l.Bridge, foreign: l.Bridge != m.o.Bridge, generation: m.generation, policy: p,
		since: time.Now(),
	}
}

// swap replaces the policy of a VM. The new one is made first, where no packet comes: the kernel fills
// its tables only after the end of a transaction. One transaction then directs the packets to it, so
// that each is judged by one of both. Either may be nil.
func (m *Manager) swap(before, after *enforcement, alive bool) error {
	if after == nil && len(m.enforced) == 1 {
		return removePolicies(m.o)
	}
	if len(m.enforced) == 0 {
		return m.replaceTables([]*enforcement{after}, alive)
	}
	if after != nil {
		if err := m.write(func(w *policyWriter) { w.enforce(after) }); err != nil {
			return err
		}
	}
	err := m.write(func(w *policyWriter) {
		if before != nil {
			w.unplug(before)
		}
		if after != nil {
			if !m.filtered(after.bridge) {
				w.add(w.sets.bridges, nftables.SetElement{Key: ifname(after.bridge)})
			}
			w.plug(after, alive && before == nil)
		}
		if before != nil && m.only(before) && (after == nil || after.bridge != before.bridge) {
			w.remove(w.sets.bridges, nftables.SetElement{Key: ifname(before.bridge)})
		}
	})
	useless := before
	if err != nil {
		useless = after
	}
	if useless != nil {
		if failed := m.write(func(w *policyWriter) { w.discard(useless) }); failed != nil {
			m.o.Log.Warn("chains of a policy that is not in force are not removed; the next rebuild does", "error", failed)
		}
	}
	return err
}

// write sends one transaction about the tables in force.
func (m *Manager) write(what func(*policyWriter)) error {
	w, err := newPolicyWriter(m.o, m.tables)
	if err != nil {
		return err
	}
	what(w)
	return w.flush()
}

// replaceTables makes new tables with these policies, and replaces those in force in one transaction.
func (m *Manager) replaceTables(all []*enforcement, alive bool) error {
	c, err := connect()
	if err != nil {
		return noRules(err)
	}
	old, err := policyTables(c, m.o)
	if err != nil {
		return err
	}
	before := m.tables
	m.tables = m.o.nextNumber(old)
	err = m.write(func(w *policyWriter) {
		w.base()
		for _, e := range all {
			w.enforce(e)
		}
	})
	if err == nil {
		err = m.write(func(w *policyWriter) {
			bridges := map[string]bool{}
			for _, e := range all {
				if !bridges[e.bridge] {
					w.add(w.sets.bridges, nftables.SetElement{Key: ifname(e.bridge)})
				}
				bridges[e.bridge] = true
				w.plug(e, alive)
			}
			for _, t := range old {
				w.c.DelTable(t)
			}
		})
	}
	if err != nil {
		m.tables = before
	}
	return err
}

// removePolicies removes all tables of policies.
func removePolicies(o Options) error {
	c, err := connect()
	if err != nil {
		return noRules(err)
	}
	old, err := policyTables(c, o)
	if err != nil || len(old) == 0 {
		return err
	}
	for _, t := range old {
		c.DelTable(t)
	}
	return noRules(c.Flush())
}

// swapBack removes the first policy of a VM, on a bridge that cannot be filtered.
func (m *Manager) swapBack(vm string, before, after *enforcement) error {
	if before != nil {
		return nil // it was filtered before
	}
	err := m.swap(after, nil, false)
	delete(m.enforced, vm)
	return err
}

// only reports whether no other VM of the bridge has a policy in the kernel.
func (m *Manager) only(e *enforcement) bool {
	for _, other := range m.enforced {
		if other != e && other.bridge == e.bridge {
			return false
		}
	}
	return true
}

// filtered reports whether a VM of the bridge has a policy in the kernel.
func (m *Manager) filtered(bridge string) bool {
	for _, e := range m.enforced {
		if e.bridge == bridge {
			return true
		}
	}
	return false
}

// rebuildPolicies replaces the policies of all VMs that have taps, in one transaction.
func (m *Manager) rebuildPolicies() error {
	enforced, all := map[string]*enforcement{}, []*enforcement(nil)
	for vm, l := range m.guarded {
		if e := m.wanted(vm, &l); e != nil {
			enforced[vm] = e
			all = append(all, e)
		}
	}
	replace := func() error { return removePolicies(m.o) }
	if len(all) > 0 {
		replace = func() error { return m.replaceTables(all, false) }
	}
	if err := replace(); err != nil {
		return err
	}
	m.enforced = enforced
	return errors.Join(m.filterAll(), m.settleFilter(m.o.Bridge))
}

// policiesStand reports whether the tables of policies exist, or are not needed.
func (m *Manager) policiesStand() (bool, error) {
	if len(m.enforced) == 0 {
		return true, nil
	}
	c, err := connect()
	if err != nil {
		return false, noRules(err)
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyBridge, nftables.TableFamilyINet} {
		if stands, err := tableStands(c, m.o.policyTable(m.tables, family)); !stands || err != nil {
			return false, err
		}
	}
	return true, nil
}

// PolicyState returns the state of a VM's policy, with counters if it is enforced.
func (m *Manager) PolicyState(vm string) (s PolicyState, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, s.Attached = m.guarded[vm]
	e := m.enforced[vm]
	if e == nil {
		return s, nil
	}
	s.Enforced, s.Since = true, e.since
	c, err := connect()
	if err != nil {
		return s, noRules(err)
	}
	t := m.o.policyTable(m.tables, nftables.TableFamilyBridge)
	if s.Egress, err = counted(c, t, e, outgoing, &e.policy.Egress); err == nil {
		s.Ingress, err = counted(c, t, e, incoming, &e.policy.Ingress)
	}
	return s, noRules(err)
}

func counted(
	c *nftables.Conn, t *nftables.Table, e *enforcement, d way, p *netpolicy.Tables,
) (all PolicyCounters, err error) {
	all.Rules = make([]Traffic, len(p.Rules))
	rules := make(map[string]int, len(p.Entries))
	for _, n := range p.Entries {
		rules[string(entryKey(n.FromClass, n.FromProtocol, n.FromKey))] = n.Rule
	}
	elements, err := c.GetSetElements(entriesOf(t, e, d))
	if err != nil {
		return all, err
	}
	for _, element := range elements {
		if i, has := rules[string(element.Key)]; has && element.Counter != nil {
			all.Rules[i].Packets += int64(element.Counter.Packets) //nolint:gosec // nobody sends so much
			all.Rules[i].Bytes += int64(element.Counter.Bytes)     //nolint:gosec // nobody sends so much
		}
	}
	list, err := c.GetRules(t, &nftables.Chain{Table: t, Name: e.name(d.name + "_default")})
	if err != nil {
		return all, err
	}
	for _, r := range list {
		for _, x := range r.Exprs {
			if counter, is := x.(*expr.Counter); is {
				all.Default.Packets += int64(counter.Packets) //nolint:gosec // nobody sends so much
				all.Default.Bytes += int64(counter.Bytes)     //nolint:gosec // nobody sends so much
			}
		}
	}
	return all, nil
}

// attribute adds the VM and the name of the rule to a flow. It reports whether both are known.
func (m *Manager) attribute(f *Flow, mark recordMark) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.retired[mark.tap]
	for vm, current := range m.enforced {
		if current.tap == mark.tap {
			if f.VM = vm; current.generation == mark.generation {
				e = current
			}
		}
	}
	if f.VM == "" || e == nil || e.generation != mark.generation {
		return false
	}
	t, peer := &e.policy.Egress, f.Destination
	if f.Ingress {
		t, peer = &e.policy.Ingress, f.Source
	}
	if i, err := strconv.Atoi(mark.rule); err == nil && i >= 0 && i < len(t.Rules) {
		f.Rule = t.Rules[i].Name
	}
	if !e.foreign {
		f.PeerVM = m.book.holder(peer.Addr())
	}
	return true
}
