package network

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

// The policies of VMs are in tables of their own, which exist while a VM needs them. Connection
// tracking does not work in the bridge family of every kernel, and taps are not known in the inet
// family, so both work together (docs/decisions/0034): chains of the inet family, which br_netfilter
// calls for bridged packets, write a packet's place in its flow into its mark. Chains of the bridge
// family then judge it: when it comes from the sender's tap, and when it goes to the receiver's.

const (
	// pickUp is how long flows that began before a VM's first policy are recognized. The bridge was
	// not tracked until then, so it is only known that they are not new.
	pickUp = 5 * time.Minute
	// firstEphemeral is the lowest port that programs get for outgoing flows, on Linux. It tells the
	// ends of a flow from the middle apart.
	firstEphemeral = 32768
	// reversedLabel is the label in connection tracking of flows that were picked up by a packet of
	// the end that did not begin them.
	reversedLabel = 97
	// Records of each VM and verdict; what is above is not recorded.
	recordsPerSecond, recordsBurst = 20, 100
	// policyTransaction is the maximum size of a transaction, in bytes: some hundred large policies.
	policyTransaction = 256 << 20
	policyTime        = time.Minute // for the kernel to take it
	// recordBytes of a packet are copied to its record: headers and some options.
	recordBytes = 128
)

// The registers of a lookup: the address in r1, and the three parts of the key.
const (
	classRegister    = afterR1
	protocolRegister = afterR1 + 1
	keyRegister      = afterR1 + 2
)

// enforcement is the policy of a VM as it is in the kernel.
type enforcement struct {
	tap, bridge string
	foreign     bool // the bridge is the operator's
	generation  int  // tells the chains of a VM's old policy from those of the new one
	policy      *netpolicy.Compiled
	since       time.Time
}

func (e *enforcement) name(what string) string {
	return fmt.Sprintf("%s_%d_%s", e.tap, e.generation, what)
}

// policyTable returns the table of policies with a number. A rebuild makes a pair of tables with the next
// number beside the pair in force.
func (o Options) policyTable(number int, family nftables.TableFamily) *nftables.Table {
	return &nftables.Table{Family: family, Name: o.policyPrefix() + strconv.Itoa(number)}
}

func (o Options) policyPrefix() string { return o.tableName() + "_policy_" }

// policyTables returns all tables of policies that exist.
func policyTables(c *nftables.Conn, o Options) (found []*nftables.Table, err error) {
	for _, family := range []nftables.TableFamily{nftables.TableFamilyBridge, nftables.TableFamilyINet} {
		all, err := c.ListTablesOfFamily(family)
		if err != nil {
			return nil, noRules(err)
		}
		for _, t := range all {
			if strings.HasPrefix(t.Name, o.policyPrefix()) {
				found = append(found, &nftables.Table{Family: family, Name: t.Name})
			}
		}
	}
	return found, nil
}

// nextNumber returns a number that none of the tables has.
func (o Options) nextNumber(tables []*nftables.Table) int {
	next := 1
	for _, t := range tables {
		if n, err := strconv.Atoi(strings.TrimPrefix(t.Name, o.policyPrefix())); err == nil && n >= next {
			next = n + 1
		}
	}
	return next
}

// way is a direction of packets, from the view of a VM.
type way struct {
	name         string
	device       expr.MetaKey // of the VM's tap
	peer4, peer6 uint32       // offsets of the address of the other end
}

var (
	outgoing = way{name: "egress", device: expr.MetaKeyIIFNAME, peer4: destinationIP, peer6: 24}
	incoming = way{name: "ingress", device: expr.MetaKeyOIFNAME, peer4: sourceIP, peer6: 8}
)

// tables are the sets of one direction of a VM's policy.
type tables struct {
	ipv4, ipv6, entries *nftables.Set
	fallback            *nftables.Chain
}

// enforce creates the chains of a VM's policy.
func (w *policyWriter) enforce(e *enforcement) {
	unreadable := w.chain(e.name("unreadable"), drop())
	out, into := w.tables(e, outgoing, &e.policy.Egress), w.tables(e, incoming, &e.policy.Ingress)
	for _, d := range []struct {
		way
		own, other tables
	}{{outgoing, out, into}, {incoming, into, out}} {
		first := w.chain(e.name(d.name+"_first"), w.judge(d.way, d.own, false, unreadable)...)
		// An answer is judged as the packet that it answers was, by the rules of the other direction.
		reply := w.chain(e.name(d.name+"_reply"), w.judge(d.way, d.other, true, unreadable)...)
		picked := rule(meta(d.device), in(w.sets.midstream))
		rules := append([][]expr.Any{rule(etherType(unix.ETH_P_ARP), accept())}, w.always(e, d.way)...)
		rules = append(rules,
			rule(stage(expr.CmpOpEq, stageEstablished), goTo(first)),
			rule(stage(expr.CmpOpEq, stageReply), goTo(reply)),
			rule(stage(expr.CmpOpEq, stageNew), goTo(first)),
			rule(stage(expr.CmpOpEq, stageRelated), accept()),
			rule(stage(expr.CmpOpEq, stagePicked), picked, goTo(first)),
			rule(stage(expr.CmpOpEq, stagePickedReply), picked, goTo(reply)),
			goTo(unreadable),
		)
		w.chain(e.name(d.name), rules...)
	}
}

// always are the rules for what passes whatever the policy says.
func (w *policyWriter) always(e *enforcement, d way) [][]expr.Any {
	const dns = 53
	if e.foreign {
		return w.neighbourhood()
	}
	ipv4, gateway := etherType(unix.ETH_P_IP), w.o.Address.Addr().As4()
	peer := field(expr.PayloadBaseNetworkHeader, d.peer4, expr.CmpOpEq, gateway[:]...)
	everybody := field(expr.PayloadBaseNetworkHeader, destinationIP, expr.CmpOpEq, 255, 255, 255, 255)
	side, answer := uint32(destinationPort), []expr.Any(nil)
	dhcp := port(unix.IPPROTO_UDP, destinationPort, expr.CmpOpEq, serverPort)
	rules := [][]expr.Any{rule(ipv4, peer, dhcp, accept()), rule(ipv4, everybody, dhcp, accept())}
	if d.name == incoming.name {
		side, answer = sourcePort, stage(expr.CmpOpEq, stageReply)
		rules = [][]expr.Any{rule(ipv4, peer, port(unix.IPPROTO_UDP, sourcePort, expr.CmpOpEq, serverPort), accept())}
	}
	return append(rules,
		rule(answer, ipv4, peer, port(unix.IPPROTO_UDP, side, expr.CmpOpEq, dns), accept()),
		rule(answer, ipv4, peer, port(unix.IPPROTO_TCP, side, expr.CmpOpEq, dns), accept()),
	)
}

// neighbourhood are the rules for what IPv6 has in place of ARP. Neighbours tell those of their own link
// by the hop limit; who listens to groups is told with 1.
func (w *policyWriter) neighbourhood() (rules [][]expr.Any) {
	const hopLimit = 7
	for set, limit := range map[*nftables.Set]byte{w.sets.neighbours: 255, w.sets.listeners: 1} {
		rules = append(rules, rule(
			etherType(unix.ETH_P_IPV6), protocol(unix.IPPROTO_ICMPV6),
			field(expr.PayloadBaseNetworkHeader, hopLimit, expr.CmpOpEq, limit),
			load(expr.PayloadBaseTransportHeader, 0, 1, r1), in(set), accept(),
		))
	}
	return rules
}

// tables creates the sets and the chains of the rules of one direction.
func (w *policyWriter) tables(e *enforcement, d way, p *netpolicy.Tables) (t tables) {
	chains := make([]*nftables.Chain, len(p.Rules))
	for i, r := range p.Rules {
		chains[i] = w.outcome(e, d, fmt.Sprint(i), r.Action, nil)
	}
	t.fallback = w.outcome(e, d, "default", p.Default, []expr.Any{&expr.Counter{}})
	t.ipv4 = w.intervals(e.name(d.name+"_ipv4"), nftables.TypeIPAddr, p.IPv4)
	t.ipv6 = w.intervals(e.name(d.name+"_ipv6"), nftables.TypeIP6Addr, p.IPv6)
	t.entries = w.set(entriesOf(w.t, e, d))
	elements := make([]nftables.SetElement, len(p.Entries))
	for i, n := range p.Entries {
		elements[i] = nftables.SetElement{
			Key: entryKey(n.FromClass, n.FromProtocol, n.FromKey), KeyEnd: entryKey(n.ToClass, n.ToProtocol, n.ToKey),
			VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chains[n.Rule].Name},
		}
	}
	w.add(t.entries, elements...)
	return t
}

// entriesOf is the map from class, protocol and key to the chain of a rule. The kernel counts what
// each element matches.
func entriesOf(t *nftables.Table, e *enforcement, d way) *nftables.Set {
	return &nftables.Set{
		Table: t, Name: e.name(d.name), IsMap: true, Interval: true, Concatenation: true, Counter: true,
		KeyType:  nftables.MustConcatSetType(nftables.TypeMark, nftables.TypeInetProto, nftables.TypeInetService),
		DataType: nftables.TypeVerdict,
	}
}

func entryKey(class uint32, protocol uint8, key uint16) []byte {
	return slices.Concat(binaryutil.BigEndian.PutUint32(class), []byte{protocol, 0, 0, 0},
		binaryutil.BigEndian.PutUint16(key), []byte{0, 0})
}

// intervals creates the map from an address to its class.
func (w *policyWriter) intervals(name string, key nftables.SetDatatype, all []netpolicy.Interval) *nftables.Set {
	s := &nftables.Set{Table: w.t, Name: name, IsMap: true, Interval: true, KeyType: key, DataType: nftables.TypeMark}
	elements := make([]nftables.SetElement, 0, 2*len(all))
	for _, i := range all {
		elements = append(elements, nftables.SetElement{Key: i.From.AsSlice(), Val: binaryutil.BigEndian.PutUint32(i.Class)})
		if next := i.To.Next(); next.IsValid() {
			elements = append(elements, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
		}
	}
	return w.set(s, elements...)
}

// outcome creates the chain of a rule: it records what begins, and what is denied, and decides.
func (w *policyWriter) outcome(
	e *enforcement, d way, name string, action netpolicy.Action, count []expr.Any,
) *nftables.Chain {
	recorded, limit, end := stage(expr.CmpOpEq, stageNew), w.sets.recordedAllowed, accept()
	if action == netpolicy.Deny {
		recorded, limit, end = stage(expr.CmpOpNeq, stageReply), w.sets.recordedNot, drop()
	}
	mark := recordMark{tap: e.tap, generation: e.generation, direction: d.name, rule: name, action: action}
	return w.chain(e.name(d.name+"_"+name),
		rule(count, recorded, meta(d.device), underRate(limit, recordsPerSecond, recordsBurst), []expr.Any{&expr.Log{
			Key: 1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_PREFIX | 1<<unix.NFTA_LOG_SNAPLEN, Group: w.o.recordGroup(),
			Snaplen: recordBytes, Data: []byte(mark.String()),
		}}),
		end,
	)
}

// underRate is the opposite of overRate.
func underRate(set *nftables.Set, perSecond uint64, burst uint32) []expr.Any {
	all := overRate(set, perSecond, burst)
	all[0].(*expr.Dynset).Exprs[0].(*expr.Limit).Over = false //nolint:forcetypeassert // as overRate makes it
	return all
}

// judge looks a packet up: the class of the other end's address, then the rule. A packet whose
// headers cannot be read gets no verdict but that at the end.
func (w *policyWriter) judge(d way, t tables, answers bool, unreadable *nftables.Chain) (rules [][]expr.Any) {
	number := func(r []expr.Any) []expr.Any {
		return append([]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: protocolRegister}}, r...)
	}
	oneOf := func(s *nftables.Set, not bool) []expr.Any {
		return number([]expr.Any{
			&expr.Lookup{SourceRegister: protocolRegister, SetName: s.Name, SetID: s.ID, Invert: not},
		})
	}
	side := uint32(destinationPort)
	if answers {
		side = sourcePort
	}
	keys := [][]expr.Any{rule(oneOf(w.sets.ported, false), load(expr.PayloadBaseTransportHeader, side, 2, keyRegister))}
	if answers {
		keys = append(keys, answeredMessages()...)
	}
	keys = append(keys,
		rule(oneOf(w.sets.typed, false), load(expr.PayloadBaseTransportHeader, 0, 2, keyRegister)),
		rule(oneOf(w.sets.known, true), []expr.Any{&expr.Immediate{Register: keyRegister, Data: []byte{0, 0}}}),
	)
	for _, family := range []struct {
		kind           uint16
		offset, length uint32
		set            *nftables.Set
	}{{unix.ETH_P_IP, d.peer4, 4, t.ipv4}, {unix.ETH_P_IPV6, d.peer6, 16, t.ipv6}} {
		class := rule(load(expr.PayloadBaseNetworkHeader, family.offset, family.length, r1), []expr.Any{&expr.Lookup{
			SourceRegister: r1, DestRegister: classRegister, IsDestRegSet: true,
			SetName: family.set.Name, SetID: family.set.ID,
		}})
		for _, key := range keys {
			readable := rule(etherType(family.kind), key, class)
			rules = append(rules,
				rule(readable, []expr.Any{&expr.Lookup{
					SourceRegister: classRegister, IsDestRegSet: true, SetName: t.entries.Name, SetID: t.entries.ID,
				}}),
				rule(readable, goTo(t.fallback)),
			)
		}
	}
	return append(rules, goTo(unreadable))
}

// answeredMessages load the key of the message that an ICMP message answers.
func answeredMessages() (keys [][]expr.Any) {
	for _, m := range []struct{ protocol, answer, asks byte }{
		{unix.IPPROTO_ICMP, 0, 8},
		{unix.IPPROTO_ICMP, 14, 13},
		{unix.IPPROTO_ICMP, 16, 15},
		{unix.IPPROTO_ICMP, 18, 17},
		{unix.IPPROTO_ICMPV6, 129, 128},
		{unix.IPPROTO_ICMPV6, 140, 139},
	} {
		keys = append(keys, rule(
			protocol(m.protocol), field(expr.PayloadBaseTransportHeader, 0, expr.CmpOpEq, m.answer),
			[]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: protocolRegister}},
			load(expr.PayloadBaseTransportHeader, 0, 2, keyRegister),
			[]expr.Any{&expr.Bitwise{
				SourceRegister: keyRegister, DestRegister: keyRegister, Len: 2, Mask: []byte{0, 0xff},
				Xor: []byte{m.asks, 0},
			}},
		))
	}
	return keys
}

// plug directs the packets of a VM to its chains. midstream also lets flows from before go on.
func (w *policyWriter) plug(e *enforcement, midstream bool) {
	tap := ifname(e.tap)
	for s, d := range map[*nftables.Set]way{w.sets.egress: outgoing, w.sets.ingress: incoming} {
		w.add(s, nftables.SetElement{
			Key: tap, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.name(d.name)},
		})
	}
	if midstream {
		w.add(w.sets.midstream, nftables.SetElement{Key: tap, Timeout: pickUp})
	}
}

// unplug is the opposite of plug.
func (w *policyWriter) unplug(e *enforcement) {
	for s, d := range map[*nftables.Set]way{w.sets.egress: outgoing, w.sets.ingress: incoming} {
		w.remove(s, nftables.SetElement{
			Key: ifname(e.tap), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.name(d.name)},
		})
	}
}

// discard removes the chains of a policy that is unplugged.
func (w *policyWriter) discard(e *enforcement) {
	names := []string{"unreadable"}
	for d, p := range map[string]*netpolicy.Tables{outgoing.name: &e.policy.Egress, incoming.name: &e.policy.Ingress} {
		names = append(names, d, d+"_first", d+"_reply", d+"_default")
		for i := range p.Rules {
			names = append(names, fmt.Sprint(d, "_", i))
		}
	}
	for _, name := range names {
		w.c.FlushChain(&nftables.Chain{Table: w.t, Name: e.name(name)})
	}
	for _, d := range []string{outgoing.name, incoming.name} {
		for _, s := range []string{d, d + "_ipv4", d + "_ipv6"} {
			w.c.DelSet(&nftables.Set{Table: w.t, Name: e.name(s)})
		}
	}
	for _, name := range names {
		w.c.DelChain(&nftables.Chain{Table: w.t, Name: e.name(name)})
	}
}
