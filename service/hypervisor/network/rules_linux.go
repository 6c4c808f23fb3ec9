package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// chunk is the number of elements per message, whose length field has 16 bits.
	chunk = 500
	// transactionSize is the maximum size of a transaction, in bytes. It fits all rules of some ten
	// thousand VMs.
	transactionSize = 8 << 20
	// kernelTime is the timeout for the kernel's response. It is generous, and limits the cost of a
	// lost response.
	kernelTime = 10 * time.Second
	// A client sends a handful of requests when it starts; more than this is dropped.
	questionsPerSecond, questionsBurst = 10, 20
)

// ports are the sets of the bridge table, by which its rules identify taps. A VM has one element in
// some of them.
type ports struct {
	macs    *nftables.Set // tap . Ethernet address: who it is
	senders *nftables.Set // tap . Ethernet address . address: what it may send from
	anyIP   *nftables.Set // taps that may send from any IPv4 address
	foreign *nftables.Set // taps on bridges of the operator's
	tenants *nftables.Set // a map: tap to the number of its tenant, on the managed bridge
	members *nftables.Set // tap . number of its tenant: whose frames it gets
}

func (o Options) bridgeTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyBridge, Name: o.tableName()}
}

func (o Options) inetTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: o.tableName()}
}

// numbers maps tenants to the numbers by which rules identify them.
type numbers map[string]uint32

// of returns the number of a tenant, which never changes.
func (n numbers) of(tenant string) uint32 {
	if n[tenant] == 0 {
		n[tenant] = uint32(len(n)) + 1 //nolint:gosec // there are not so many
	}
	return n[tenant]
}

func newPorts(t *nftables.Table) ports {
	name, hw, ip := nftables.TypeIFName, nftables.TypeEtherAddr, nftables.TypeIPAddr
	// The ids are valid within a transaction. They are set explicitly, since the library would
	// count them in an unsynchronized global variable.
	return ports{
		macs: &nftables.Set{
			Table:         t,
			ID:            1,
			Name:          "macs",
			KeyType:       nftables.MustConcatSetType(name, hw),
			Concatenation: true,
		},
		senders: &nftables.Set{
			Table:         t,
			ID:            2,
			Name:          "senders",
			KeyType:       nftables.MustConcatSetType(name, hw, ip),
			Concatenation: true,
		},
		anyIP:   &nftables.Set{Table: t, ID: 3, Name: "any_ip", KeyType: name},
		foreign: &nftables.Set{Table: t, ID: 4, Name: "foreign", KeyType: name},
		tenants: &nftables.Set{
			Table:    t,
			ID:       6,
			Name:     "tenants",
			KeyType:  name,
			DataType: nftables.TypeMark,
			IsMap:    true,
		},
		members: &nftables.Set{
			Table:         t,
			ID:            7,
			Name:          "members",
			KeyType:       nftables.MustConcatSetType(name, nftables.TypeMark),
			Concatenation: true,
		},
	}
}

func (p ports) sets() []*nftables.Set {
	return []*nftables.Set{p.macs, p.senders, p.anyIP, p.foreign, p.tenants, p.members}
}

// elements returns the elements of one port in the sets.
func (p ports) elements(o Options, n numbers, l lease) map[*nftables.Set]nftables.SetElement {
	tap := ifname(o.tapName(l.VM))
	hw := append(slices.Clone(l.MAC[:]), 0, 0) // a multiple of four bytes
	e := map[*nftables.Set]nftables.SetElement{p.macs: {Key: slices.Concat(tap, hw)}}
	if l.IP.IsValid() {
		e[p.senders] = nftables.SetElement{Key: slices.Concat(tap, hw, l.IP.AsSlice())}
	}
	if l.Bridge == o.Bridge {
		number := binaryutil.NativeEndian.PutUint32(n.of(l.Tenant))
		e[p.tenants] = nftables.SetElement{Key: tap, Val: number}
		e[p.members] = nftables.SetElement{Key: slices.Concat(tap, number)}
		return e
	}
	e[p.foreign] = nftables.SetElement{Key: tap}
	if !l.IP.IsValid() {
		e[p.anyIP] = nftables.SetElement{Key: tap}
	}
	return e
}

// connect opens a connection to nftables for one call, with a timeout for the kernel's response.
func connect() (*nftables.Conn, error) { return connectFor(transactionSize, kernelTime) }

// connectFor opens a connection for transactions of up to size bytes.
func connectFor(size int, timeout time.Duration) (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		if err := c.SetReadBuffer(size); err != nil { // the kernel answers each message
			return err
		}
		return c.SetWriteBuffer(size) // a transaction is written in one piece
	}))
}

// rebuildRules replaces all our tables in one transaction.
func rebuildRules(o Options, n numbers, leases []lease) error {
	c, err := connect()
	if err != nil {
		return noRules(err)
	}
	for _, t := range []*nftables.Table{o.bridgeTable(), o.inetTable()} {
		c.AddTable(t) // so that there is one to delete
		c.DelTable(t)
		c.AddTable(t)
	}
	if err := guardPorts(c, o, n, leases); err != nil {
		return err
	}
	guardHost(c, o)
	return noRules(c.Flush())
}

// removeRules removes all our tables, if there are any.
func removeRules(o Options) error {
	c, err := connect()
	if err != nil {
		return noRules(err)
	}
	policies, err := policyTables(c, o)
	if err != nil {
		return err
	}
	for _, t := range append(policies, o.bridgeTable(), o.inetTable()) {
		c.AddTable(t) // so that there is one to delete
		c.DelTable(t)
	}
	return noRules(c.Flush())
}

// guardPorts creates the bridge table: what guests may send.
func guardPorts(c *nftables.Conn, o Options, n numbers, leases []lease) error {
	t := o.bridgeTable()
	p := newPorts(t)
	asked := &nftables.Set{
		Table:      t,
		ID:         5,
		Name:       "asked",
		KeyType:    nftables.TypeIFName,
		Dynamic:    true,
		HasTimeout: true,
		Timeout:    time.Minute,
		Size:       1 << 16,
	}
	for _, s := range append(p.sets(), asked) {
		if err := c.AddSet(s, nil); err != nil {
			return err
		}
	}
	all := map[*nftables.Set][]nftables.SetElement{}
	for _, l := range leases {
		for set, element := range p.elements(o, n, l) {
			all[set] = append(all[set], element)
		}
	}
	for set, elements := range all {
		for part := range slices.Chunk(elements, chunk) {
			if err := c.SetAddElements(set, part); err != nil {
				return err
			}
		}
	}

	policy := nftables.ChainPolicyAccept
	first := nftables.ChainPriorityRef(-300) // before other tables, and before br_netfilter
	input := c.AddChain(&nftables.Chain{
		Table:    t,
		Name:     "prerouting",
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: first,
		Policy:   &policy,
	})
	arp, ipv4, ipv6 := guardARP(c, t, p), guardIPv4(c, o, p, guardDHCP(c, t, p, asked)), guardIPv6(c, t, p)
	addRules(c, t, input,
		rule(meta(expr.MetaKeyIIFNAME), compare(expr.CmpOpNeq, []byte(o.tapPrefix())), accept()),
		rule(sender(expr.PayloadBaseLLHeader, 6), in(p.macs), etherType(unix.ETH_P_ARP), goTo(arp)),
		rule(sender(expr.PayloadBaseLLHeader, 6), in(p.macs), etherType(unix.ETH_P_IP), goTo(ipv4)),
		rule(sender(expr.PayloadBaseLLHeader, 6), in(p.macs), etherType(unix.ETH_P_IPV6), goTo(ipv6)),
		drop(),
	)
	if !o.ShareBridge {
		guardTenants(c, t, p)
	}
	return nil
}

// guardTenants passes frames between taps of the managed bridge only if both belong to one tenant.
// Frames that leave or enter the bridge pass.
func guardTenants(c *nftables.Conn, t *nftables.Table, p ports) {
	policy := nftables.ChainPolicyAccept
	forward := c.AddChain(&nftables.Chain{
		Table:    t,
		Name:     "forward",
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookForward,
		Priority: nftables.ChainPriorityRef(-300),
		Policy:   &policy,
	})
	number := []expr.Any{
		&expr.Lookup{
			SourceRegister: r1,
			DestRegister:   afterR1,
			IsDestRegSet:   true,
			SetName:        p.tenants.Name,
			SetID:          p.tenants.ID,
		},
	}
	addRules(c, t, forward,
		rule(meta(expr.MetaKeyIIFNAME), number, meta(expr.MetaKeyOIFNAME), in(p.members), accept()),
		// Not the sender's tenant: dropped if both are taps with a tenant.
		rule(meta(expr.MetaKeyOIFNAME), number, meta(expr.MetaKeyIIFNAME), number, drop()),
	)
}

// sender loads the tap from which a packet comes and an Ethernet address in it.
func sender(base expr.PayloadBase, offset uint32) []expr.Any {
	return rule(meta(expr.MetaKeyIIFNAME), load(base, offset, 6, afterR1))
}

// senderIP loads the tap, the frame's source and an IPv4 address in the network header.
func senderIP(offset uint32) []expr.Any {
	return rule(sender(expr.PayloadBaseLLHeader, 6), load(expr.PayloadBaseNetworkHeader, offset, 4, afterMAC))
}

func addRules(c *nftables.Conn, t *nftables.Table, chain *nftables.Chain, rules ...[]expr.Any) {
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: r})
	}
}

// guardARP passes ARP packets with the sender's own addresses. A sender address of zero is a probe
// (RFC 5227) that checks whether an address is in use.
func guardARP(c *nftables.Conn, t *nftables.Table, p ports) *nftables.Chain {
	chain := c.AddChain(&nftables.Chain{Table: t, Name: "arp"})
	const hardware, address = 8, 14                                                   // of the sender
	header := field(expr.PayloadBaseNetworkHeader, 0, expr.CmpOpEq, 0, 1, 8, 0, 6, 4) // IPv4 on Ethernet
	own := rule(header, sender(expr.PayloadBaseNetworkHeader, hardware))
	addRules(c, t, chain,
		rule(own, load(expr.PayloadBaseNetworkHeader, address, 4, afterMAC), in(p.senders), accept()),
		rule(own, in(p.macs), field(expr.PayloadBaseNetworkHeader, address, expr.CmpOpEq, 0, 0, 0, 0), accept()),
		rule(own, in(p.macs), meta(expr.MetaKeyIIFNAME), in(p.anyIP), accept()),
		drop(),
	)
	return chain
}

// guardDHCP passes DHCP requests that a guest sends for itself.
func guardDHCP(c *nftables.Conn, t *nftables.Table, p ports, asked *nftables.Set) *nftables.Chain {
	chain := c.AddChain(&nftables.Chain{Table: t, Name: "dhcp"})
	const hardware = 8 + 28 // of the client, in the message behind the UDP header
	own := rule(sender(expr.PayloadBaseTransportHeader, hardware), in(p.macs))
	addRules(
		c,
		t,
		chain,
		rule(meta(expr.MetaKeyIIFNAME), overRate(asked, questionsPerSecond, questionsBurst), drop()),
		rule(
			own, port(unix.IPPROTO_UDP, sourcePort, expr.CmpOpEq, clientPort),
			field(expr.PayloadBaseNetworkHeader, sourceIP, expr.CmpOpEq, 0, 0, 0, 0), accept(),
		),
		rule(own, senderIP(sourceIP), in(p.senders), accept()),
		rule(own, meta(expr.MetaKeyIIFNAME), in(p.anyIP), accept()),
		drop(),
	)
	return chain
}

func guardIPv4(c *nftables.Conn, o Options, p ports, dhcp *nftables.Chain) *nftables.Chain {
	t := o.bridgeTable()
	chain := c.AddChain(&nftables.Chain{Table: t, Name: "ipv4"})
	if o.Isolate || !o.ShareBridge {
		// Packets for a neighbour must not go through the host, which would forward them.
		router, gateway := bridgeMAC(o), o.Address.Addr().As4()
		addRules(
			c,
			t,
			chain,
			rule(
				meta(expr.MetaKeyIIFNAME), notIn(p.foreign),
				field(expr.PayloadBaseLLHeader, 0, expr.CmpOpEq, router[:]...), within(destinationIP, o.Address),
				field(expr.PayloadBaseNetworkHeader, destinationIP, expr.CmpOpNeq, gateway[:]...), drop(),
			),
		)
	}
	addRules(c, t, chain,
		rule(port(unix.IPPROTO_UDP, sourcePort, expr.CmpOpEq, serverPort), drop()),
		rule(port(unix.IPPROTO_UDP, destinationPort, expr.CmpOpEq, serverPort), goTo(dhcp)),
		rule(senderIP(sourceIP), in(p.senders), accept()),
		rule(meta(expr.MetaKeyIIFNAME), in(p.anyIP), accept()),
		drop(),
	)
	return chain
}

// guardIPv6 lists what may pass, so that unreadable packets do not pass.
func guardIPv6(c *nftables.Conn, t *nftables.Table, p ports) *nftables.Chain {
	chain := c.AddChain(&nftables.Chain{Table: t, Name: "ipv6"})
	const routerAdvertisement, redirect, dhcpv6Server = 134, 137, 547
	icmp := func(op expr.CmpOp, kind byte) []expr.Any {
		return rule(protocol(unix.IPPROTO_ICMPV6), field(expr.PayloadBaseTransportHeader, 0, op, kind))
	}
	addRules(c, t, chain,
		rule(meta(expr.MetaKeyIIFNAME), notIn(p.foreign), drop()),
		rule(icmp(expr.CmpOpEq, routerAdvertisement), drop()),
		rule(icmp(expr.CmpOpNeq, redirect), accept()),
		rule(port(unix.IPPROTO_UDP, sourcePort, expr.CmpOpNeq, dhcpv6Server), accept()),
		rule(protocol(unix.IPPROTO_UDP), drop()),
		rule(protocol(unix.IPPROTO_ICMPV6), drop()),
		rule(meta(expr.MetaKeyL4PROTO), accept()),
		drop(),
	)
	return chain
}

// guardHost creates the inet table: what guests of the managed bridge reach on the host and beyond.
func guardHost(c *nftables.Conn, o Options) {
	t := o.inetTable()
	policy := nftables.ChainPolicyAccept
	base := func(
		name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority,
	) *nftables.Chain {
		return c.AddChain(
			&nftables.Chain{Table: t, Name: name, Type: kind, Hooknum: hook, Priority: priority, Policy: &policy},
		)
	}
	from := interfaceIs(expr.MetaKeyIIFNAME, expr.CmpOpEq, o.Bridge)
	notFrom := interfaceIs(expr.MetaKeyIIFNAME, expr.CmpOpNeq, o.Bridge)
	to := interfaceIs(expr.MetaKeyOIFNAME, expr.CmpOpEq, o.Bridge)
	notTo := interfaceIs(expr.MetaKeyOIFNAME, expr.CmpOpNeq, o.Bridge)

	const dns = 53
	addRules(c, t, base("input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter),
		rule(notFrom, accept()),
		rule(established(), accept()),
		rule(protocol(unix.IPPROTO_ICMP), accept()),
		rule(port(unix.IPPROTO_UDP, destinationPort, expr.CmpOpEq, serverPort), accept()),
		rule(port(unix.IPPROTO_UDP, destinationPort, expr.CmpOpEq, dns), accept()),
		rule(port(unix.IPPROTO_TCP, destinationPort, expr.CmpOpEq, dns), accept()),
		drop(),
	)
	linkLocal := rule(from, ipv4Only(), within(destinationIP, netip.MustParsePrefix("169.254.0.0/16")))
	forward := base("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter)
	addRules(c, t, forward,
		rule(linkLocal, port(unix.IPPROTO_UDP, destinationPort, expr.CmpOpEq, dns), accept()),
		rule(linkLocal, port(unix.IPPROTO_TCP, destinationPort, expr.CmpOpEq, dns), accept()),
		rule(linkLocal, drop()),
	)
	if o.NoNAT {
		return
	}
	addRules(c, t, forward,
		rule(notFrom, to, established(), accept()),
		rule(notFrom, to, drop()),
	)
	addRules(
		c, t,
		base("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource),
		rule(ipv4Only(), within(sourceIP, o.Address), notTo, []expr.Any{&expr.Masq{}}),
	)
}

// changeRules removes the rules of one port and adds those of another in one transaction. Either
// may be nil.
func changeRules(o Options, n numbers, before, after *lease) error {
	c, err := connect()
	if err != nil {
		return noRules(err)
	}
	p := newPorts(o.bridgeTable())
	if before != nil {
		for set, element := range p.elements(o, n, *before) {
			if err := c.SetDeleteElements(set, []nftables.SetElement{element}); err != nil {
				return err
			}
		}
	}
	if after != nil {
		for set, element := range p.elements(o, n, *after) {
			if err := c.SetAddElements(set, []nftables.SetElement{element}); err != nil {
				return err
			}
		}
	}
	return noRules(c.Flush())
}

// guardedTaps returns the names of the taps that have rules in the kernel.
func guardedTaps(o Options) ([]string, error) {
	c, err := connect()
	if err != nil {
		return nil, noRules(err)
	}
	if stands, err := tableStands(c, o.bridgeTable()); !stands || err != nil {
		return nil, err
	}
	elements, err := c.GetSetElements(newPorts(o.bridgeTable()).macs)
	if err != nil {
		return nil, noRules(err)
	}
	var names []string
	for _, e := range elements {
		if len(e.Key) >= 16 {
			names = append(names, strings.TrimRight(string(e.Key[:16]), "\x00"))
		}
	}
	return names, nil
}

// rulesStand reports whether our tables exist: other programs may flush all rules.
func rulesStand(o Options) (bool, error) {
	c, err := connect()
	if err != nil {
		return false, noRules(err)
	}
	for _, t := range []*nftables.Table{o.bridgeTable(), o.inetTable()} {
		if stands, err := tableStands(c, t); !stands || err != nil {
			return false, err
		}
	}
	return true, nil
}

// tableStands reports whether a table has chains. A program that flushed the rules but left the
// chains is assumed to have done so on purpose.
func tableStands(c *nftables.Conn, t *nftables.Table) (bool, error) {
	chains, err := c.ListChainsOfTableFamily(t.Family)
	return slices.ContainsFunc(chains, func(c *nftables.Chain) bool { return c.Table.Name == t.Name }), noRules(err)
}

func noRules(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return lacksRights(err)
	case errors.Is(err, unix.E2BIG):
		return unavailable(
			err, "the kernel allows 1,024 chains at one hook, and they are all in use; remove unused nftables tables "+
				"('nft list tables' shows them)",
		)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT):
		return unavailable(
			err,
			"this kernel has no nftables for bridges; load the modules nf_tables and nft_meta_bridge, or take a kernel that has them",
		)
	}
	return fmt.Errorf("change the rules of nftables: %w", err)
}
