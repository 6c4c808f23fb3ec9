package network

import (
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// policySets are the sets that all VMs share.
type policySets struct {
	bridges                      *nftables.Set // of the inet table: those with VMs that have a policy
	egress, ingress              *nftables.Set // maps: tap to its chain
	midstream                    *nftables.Set // taps whose flows are still picked up
	recordedAllowed, recordedNot *nftables.Set // by which records are limited
	ported, typed, known         *nftables.Set // protocols
	neighbours, listeners        *nftables.Set // ICMPv6 types that take the place of ARP
}

func newPolicySets(t, inet *nftables.Table) policySets {
	byTap := func(id uint32, name string) *nftables.Set {
		return &nftables.Set{
			Table: t, ID: id, Name: name, KeyType: nftables.TypeIFName, IsMap: true, DataType: nftables.TypeVerdict,
		}
	}
	meter := func(id uint32, name string) *nftables.Set {
		return &nftables.Set{
			Table: t, ID: id, Name: name, KeyType: nftables.TypeIFName, Dynamic: true, HasTimeout: true,
			Timeout: time.Minute, Size: 1 << 16,
		}
	}
	numbers := func(id uint32, name string) *nftables.Set {
		return &nftables.Set{Table: t, ID: id, Name: name, KeyType: nftables.TypeInetProto}
	}
	return policySets{
		bridges:         &nftables.Set{Table: inet, ID: 1, Name: "bridges", KeyType: nftables.TypeIFName},
		egress:          byTap(2, "egress"),
		ingress:         byTap(3, "ingress"),
		midstream:       &nftables.Set{Table: t, ID: 4, Name: "midstream", KeyType: nftables.TypeIFName, HasTimeout: true},
		recordedAllowed: meter(5, "recorded_allowed"),
		recordedNot:     meter(6, "recorded_denied"),
		ported:          numbers(7, "ported"),
		typed:           numbers(8, "typed"),
		known:           numbers(9, "known"),
		neighbours:      numbers(10, "neighbours"),
		listeners:       numbers(11, "listeners"),
	}
}

// policyWriter adds messages about policies to a transaction.
type policyWriter struct {
	c    *nftables.Conn
	o    Options
	t    *nftables.Table // of the bridge family
	inet *nftables.Table
	sets policySets
	next uint32 // id of the next set
	err  error  // the first one
}

func newPolicyWriter(o Options, number int) (*policyWriter, error) {
	c, err := connectFor(policyTransaction, policyTime)
	if err != nil {
		return nil, noRules(err)
	}
	t := o.policyTable(number, nftables.TableFamilyBridge)
	inet := o.policyTable(number, nftables.TableFamilyINet)
	return &policyWriter{c: c, o: o, t: t, inet: inet, sets: newPolicySets(t, inet), next: 100}, nil
}

// flush sends the transaction.
func (w *policyWriter) flush() error {
	if w.err != nil {
		return w.err
	}
	return noRules(w.c.Flush())
}

func (w *policyWriter) add(s *nftables.Set, elements ...nftables.SetElement) {
	for part := range slices.Chunk(elements, chunk) {
		if w.err == nil {
			w.err = w.c.SetAddElements(s, part)
		}
	}
}

func (w *policyWriter) remove(s *nftables.Set, element nftables.SetElement) {
	if w.err == nil {
		w.err = w.c.SetDeleteElements(s, []nftables.SetElement{element})
	}
}

func (w *policyWriter) set(s *nftables.Set, elements ...nftables.SetElement) *nftables.Set {
	if s.ID == 0 {
		w.next++
		s.ID = w.next
	}
	if w.err == nil {
		w.err = w.c.AddSet(s, nil)
	}
	w.add(s, elements...)
	return s
}

func (w *policyWriter) chain(name string, rules ...[]expr.Any) *nftables.Chain {
	c := w.c.AddChain(&nftables.Chain{Table: w.t, Name: name})
	addRules(w.c, w.t, c, rules...)
	return c
}

// base creates the tables, with what all VMs share.
func (w *policyWriter) base() {
	accepted := nftables.ChainPolicyAccept
	hook := func(
		t *nftables.Table, name string, hook *nftables.ChainHook, priority nftables.ChainPriority,
	) *nftables.Chain {
		return w.c.AddChain(&nftables.Chain{
			Table: t, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &priority, Policy: &accepted,
		})
	}
	inet := w.inet
	w.c.AddTable(w.t)
	w.c.AddTable(inet)
	one := func(numbers ...byte) (all []nftables.SetElement) {
		for _, n := range numbers {
			all = append(all, nftables.SetElement{Key: []byte{n}})
		}
		return all
	}
	s := w.sets
	w.set(s.bridges)
	for _, empty := range []*nftables.Set{s.egress, s.ingress, s.midstream, s.recordedAllowed, s.recordedNot} {
		w.set(empty)
	}
	w.set(s.ported, one(unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP)...)
	w.set(s.typed, one(unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6)...)
	w.set(s.known, one(
		unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6,
	)...)
	w.set(s.neighbours, one(133, 134, 135, 136)...) // RFC 4861
	w.set(s.listeners, one(130, 131, 132, 143)...)  // RFC 2710 and 3810

	// The inet family, after connection tracking (-200).
	stages := w.c.AddChain(&nftables.Chain{Table: inet, Name: "stages"})
	addRules(w.c, inet, stages, stageRules()...)
	addRules(w.c, inet, hook(inet, "prerouting", nftables.ChainHookPrerouting, -190),
		rule(meta(expr.MetaKeyIIFNAME), in(s.bridges), goTo(stages)))
	addRules(w.c, inet, hook(inet, "postrouting", nftables.ChainHookPostrouting, -190),
		rule(meta(expr.MetaKeyOIFNAME), in(s.bridges), goTo(stages)))

	// The bridge family, after br_netfilter (0), which puts fragments together.
	const after = 10
	addRules(w.c, w.t, hook(w.t, "prerouting", nftables.ChainHookPrerouting, after),
		rule(meta(expr.MetaKeyIIFNAME), chainOf(s.egress)))
	addRules(w.c, w.t, hook(w.t, "forward", nftables.ChainHookForward, after),
		rule(meta(expr.MetaKeyOIFNAME), chainOf(s.ingress)))
	addRules(w.c, w.t, hook(w.t, "output", nftables.ChainHookOutput, after),
		// The host sends later fragments only behind the first one, which is judged: without that they are
		// of no use.
		rule(etherType(unix.ETH_P_IP), laterFragment(), accept()),
		rule(etherType(unix.ETH_P_IPV6), laterFragmentIPv6(), accept()),
		rule(meta(expr.MetaKeyOIFNAME), chainOf(s.ingress)))
	// The host's routing must not see the mark.
	addRules(w.c, w.t, hook(w.t, "input", nftables.ChainHookInput, after),
		rule(stage(expr.CmpOpNeq, stageNew), setStage(stageNew)))
}

// chainOf continues at the chain of a map for the value in r1.
func chainOf(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: r1, IsDestRegSet: true, SetName: s.Name, SetID: s.ID}}
}

func laterFragment() []expr.Any {
	return rule(load(expr.PayloadBaseNetworkHeader, 6, 2, r1),
		[]expr.Any{&expr.Bitwise{
			SourceRegister: r1, DestRegister: r1, Len: 2, Mask: []byte{0x1f, 0xff}, Xor: []byte{0, 0},
		}}, compare(expr.CmpOpNeq, []byte{0, 0}))
}

func laterFragmentIPv6() []expr.Any {
	return rule(
		[]expr.Any{&expr.Exthdr{
			DestRegister: r1, Type: unix.IPPROTO_FRAGMENT, Offset: 2, Len: 2, Op: expr.ExthdrOpIpv6,
		}},
		[]expr.Any{&expr.Bitwise{
			SourceRegister: r1, DestRegister: r1, Len: 2, Mask: []byte{0xff, 0xf8}, Xor: []byte{0, 0},
		}}, compare(expr.CmpOpNeq, []byte{0, 0}))
}
