package network

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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

// swap replaces the policy of a VM in one transaction, so that each packet is judged by one of them.
// Either may be nil.
func (m *Manager) swap(before, after *enforcement, alive bool) error {
	w, err := newPolicyWriter(m.o)
	if err != nil {
		return err
	}
	switch {
	case len(m.enforced) == 0:
		w.clear()
		w.base()
	case after == nil && len(m.enforced) == 1:
		w.clear()
		return w.flush()
	}
	if before != nil {
		w.unplug(before)
	}
	if after != nil {
		w.enforce(after)
		if !m.filtered(after.bridge) {
			w.add(w.sets.bridges, nftables.SetElement{Key: ifname(after.bridge)})
		}
		w.plug(after, alive && before == nil)
	}
	if before != nil {
		w.discard(before)
		if m.only(before) && (after == nil || after.bridge != before.bridge) {
			w.remove(w.sets.bridges, nftables.SetElement{Key: ifname(before.bridge)})
		}
	}
	return w.flush()
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
	w, err := newPolicyWriter(m.o)
	if err != nil {
		return err
	}
	enforced, bridges := map[string]*enforcement{}, map[string]bool{}
	for vm, l := range m.guarded {
		if e := m.wanted(vm, &l); e != nil {
			enforced[vm], bridges[e.bridge] = e, true
		}
	}
	w.clear()
	if len(enforced) > 0 {
		w.base()
	}
	for bridge := range bridges {
		w.add(w.sets.bridges, nftables.SetElement{Key: ifname(bridge)})
	}
	for _, e := range enforced {
		w.enforce(e)
		w.plug(e, false)
	}
	if err := w.flush(); err != nil {
		return err
	}
	m.enforced = enforced
	return m.filterAll()
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
		if stands, err := tableStands(c, m.o.policyTable(family)); !stands || err != nil {
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
	t := m.o.policyTable(nftables.TableFamilyBridge)
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

// canFilter returns a fault.Unavailable if the kernel cannot pass bridged packets to connection
// tracking. The module is not loaded here: when it is, it filters all bridges of the host.
func canFilter() error {
	if _, err := os.Stat("/proc/sys/net/bridge"); errors.Is(err, fs.ErrNotExist) {
		return unavailable(err, "network policies take the kernel module br_netfilter; load it (modprobe br_netfilter) "+
			"and set net.bridge.bridge-nf-call-iptables and -ip6tables to 0, so that it filters only bridges of VMs with policies")
	}
	return nil
}

// filter passes the packets of one bridge to connection tracking. The setting of the host for all
// bridges stays as it is.
func (m *Manager) filter(bridge string) error {
	link, err := findLink(bridge)
	if err != nil || link == nil {
		return err
	}
	if has, err := filters(link); has || err != nil {
		return err
	}
	m.switched[bridge] = true
	m.o.Log.Info("bridged packets now pass connection tracking, for the network policies of VMs", "bridge", bridge)
	return setFilter(link, 1)
}

// filterAll calls filter for the bridges of VMs that have policies.
func (m *Manager) filterAll() error {
	done := map[string]bool{}
	for _, e := range m.enforced {
		if done[e.bridge] {
			continue
		}
		done[e.bridge] = true
		if err := m.filter(e.bridge); err != nil {
			return err
		}
	}
	return nil
}

// settleFilter undoes filter when no VM of the bridge has a policy any more. On a bridge of the
// operator's, it undoes only what this process did.
func (m *Manager) settleFilter(bridge string) error {
	if m.filtered(bridge) || bridge != m.o.Bridge && !m.switched[bridge] {
		return nil
	}
	delete(m.switched, bridge)
	link, err := findLink(bridge)
	if err != nil || link == nil {
		return err
	}
	return setFilter(link, 0)
}

const callIPTables, callIP6Tables = 36, 37 // IFLA_BR_NF_CALL_IPTABLES, IFLA_BR_NF_CALL_IP6TABLES

// setFilter sets nf_call_iptables and nf_call_ip6tables of a bridge.
func setFilter(bridge netlink.Link, on byte) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(bridge.Attrs().Index) //nolint:gosec // the kernel's indexes have 32 bits
	request.AddData(message)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, []byte("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(callIPTables, []byte{on})
	data.AddRtAttr(callIP6Tables, []byte{on})
	request.AddData(info)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return unavailable(err, "this kernel has no br_netfilter, which network policies take")
	}
	return kernel(err)
}

// filters reports whether both settings of a bridge are on.
func filters(bridge netlink.Link) (bool, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(bridge.Attrs().Index) //nolint:gosec // the kernel's indexes have 32 bits
	request.AddData(message)
	replies, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil || len(replies) == 0 {
		return false, kernel(err)
	}
	on := 0
	attributes, err := nl.ParseRouteAttr(replies[0][unix.SizeofIfInfomsg:])
	for _, a := range attributes {
		if a.Attr.Type&^unix.NLA_F_NESTED != unix.IFLA_LINKINFO || err != nil {
			continue
		}
		var inside, data []syscall.NetlinkRouteAttr
		if inside, err = nl.ParseRouteAttr(a.Value); err != nil {
			continue
		}
		for _, i := range inside {
			if i.Attr.Type&^unix.NLA_F_NESTED != nl.IFLA_INFO_DATA {
				continue
			}
			if data, err = nl.ParseRouteAttr(i.Value); err != nil {
				continue
			}
			for _, d := range data {
				if (d.Attr.Type == callIPTables || d.Attr.Type == callIP6Tables) && bytes.Equal(d.Value, []byte{1}) {
					on++
				}
			}
		}
	}
	return on == 2, kernel(err)
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
