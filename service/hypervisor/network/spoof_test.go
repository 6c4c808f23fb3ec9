//go:build linux

package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (s *site) link(name string) (l netlink.Link, err error) {
	err = s.do(func() (err error) { l, err = findLink(name); return err })
	return l, err
}

// trial is a frame that guest a (52:54:00:00:00:01) sends and that another guest of
// its bridge must see, or must not.
type trial struct {
	name  string
	frame []byte
	seen  bool
}

func question(of net.HardwareAddr) []byte {
	q, err := dhcpv4.NewDiscovery(of)
	if err != nil {
		panic(err)
	}
	return q.ToBytes()
}

// fragment makes a later fragment of a UDP packet.
func fragment(f []byte) []byte {
	f = slices.Clone(f)
	f[21] = 64 // 512 bytes from the beginning
	f[24], f[25] = 0, 0
	binary.BigEndian.PutUint16(f[24:], ^sum(uint32(0), f[14:34]))
	return f
}

func trials(own string) []trial {
	me, other := hw(1), hw(2)
	vlan := ethernet(everybody, me, unix.ETH_P_8021Q, 0, 7)
	return []trial{
		{"own IPv4", udp(me, own, 9, 9, []byte("hello")), true},
		{"fragment of own IPv4", fragment(udp(me, own, 9, 9, []byte("hello"))), true},
		{"another's Ethernet address", udp(other, own, 9, 9, nil), false},
		{"another's IPv4", udp(me, "10.87.0.99", 9, 9, nil), false},
		{"the gateway's IPv4", udp(me, "10.87.0.1", 9, 9, nil), false},
		{"no IPv4", udp(me, "0.0.0.0", 9, 9, nil), false},
		{"own ARP", arp(me, me, own, "10.87.0.50"), true},
		{"ARP probe", arp(me, me, "0.0.0.0", "10.87.0.50"), true},
		{"ARP with another's IPv4", arp(me, me, "10.87.0.1", "10.87.0.50"), false},
		{"ARP with another's Ethernet address inside", arp(me, other, own, "10.87.0.50"), false},
		{"ARP probe with another's Ethernet address inside", arp(me, other, "0.0.0.0", "10.87.0.50"), false},
		{"DHCP question", udp(me, "0.0.0.0", 68, 67, question(me)), true},
		{"DHCP question with own IPv4", udp(me, own, 68, 67, question(me)), true},
		{"DHCP question for another", udp(me, "0.0.0.0", 68, 67, question(other)), false},
		{"DHCP question for another with own IPv4", udp(me, own, 68, 67, question(other)), false},
		{"DHCP answer", udp(me, own, 67, 68, question(me)), false},
		{"IPv6", ip6(me, unix.IPPROTO_UDP, 0, 9, 0, 9, 0, 8, 0, 0), false},
		{"IPv6 router advertisement", ip6(me, unix.IPPROTO_ICMPV6, make([]byte, 16)...), false},
		{"VLAN tag", append(vlan, udp(me, own, 9, 9, nil)[12:]...), false},
		{"another protocol", ethernet(everybody, me, 0x88cc, 1, 2, 3), false},
	}
}

// try sends a frame and behind it one that gets through, and reports whether the first
// was seen.
func try(t *testing.T, from, at wire, tr trial, mark []byte) (seen bool) {
	t.Helper()
	from.send(t, tr.frame)
	from.send(t, mark)
	before, _ := at.await(t, func(f []byte) bool { return bytes.HasPrefix(f, mark) })
	return slices.ContainsFunc(before, func(f []byte) bool {
		return bytes.HasPrefix(f, tr.frame[:min(len(f), len(tr.frame))]) && len(f) >= len(tr.frame)
	})
}

func TestAGuestCannotPretendToBeAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	_ = s.host.Sysctl(
		"net/bridge/bridge-nf-call-iptables", "0",
	) // which keeps fragments until all are there; not every kernel has it
	a, b := s.attach(Port{VM: "a", MAC: hw(1)}), s.attach(Port{VM: "b", MAC: hw(2)})
	from, at := open(t, s.host, a.Tap), open(t, s.host, b.Tap)
	join(t, from, at, arp(hw(1), hw(1), a.IP.String(), "10.87.201.1"))
	mark := arp(hw(1), hw(1), a.IP.String(), "10.87.200.1")
	for _, tr := range trials(a.IP.String()) {
		if got := try(t, from, at, tr, mark); got != tr.seen {
			t.Errorf("%s: seen %v, want %v", tr.name, got, tr.seen)
		}
	}
	// Without the rules all of them pass, so that it was the rules that stopped them.
	s.nft("delete table bridge " + s.m.o.tableName())
	for _, tr := range trials(a.IP.String()) {
		if !try(t, from, at, tr, mark) {
			t.Errorf("%s: not seen without the rules", tr.name)
		}
	}
}

func TestOnABridgeOfTheOperatorsOnlyAnswersOfRoutersAreForbidden(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	s.must(s.host.Run("ip", "link", "add", "lan0", "type", "bridge", "mcast_snooping", "0"))
	s.must(s.host.Run("ip", "link", "set", "lan0", "up"))
	a := s.attach(Port{VM: "a", MAC: hw(1), Bridge: "lan0"})
	b := s.attach(Port{VM: "b", MAC: hw(2), Bridge: "lan0", IP: netip.MustParseAddr("198.51.100.5")})
	from, at := open(t, s.host, a.Tap), open(t, s.host, b.Tap)
	me, other := hw(1), hw(2)
	icmp := func(kind byte) []byte { return ip6(me, unix.IPPROTO_ICMPV6, kind, 0, 0, 0, 0, 0, 0, 0) }
	hidden := append([]byte{unix.IPPROTO_ICMPV6, 0, 0, 8, 0, 0, 0, 1}, make([]byte, 8)...)
	join(t, from, at, arp(me, me, "198.51.100.9", "198.51.100.201"))
	mark := arp(me, me, "198.51.100.9", "198.51.100.200")
	for _, tr := range []trial{
		{"any IPv4", udp(me, "203.0.113.8", 9, 9, nil), true},
		{"another's Ethernet address", udp(other, "203.0.113.8", 9, 9, nil), false},
		{"ARP with any IPv4", arp(me, me, "203.0.113.8", "198.51.100.1"), true},
		{"DHCP answer", udp(me, "203.0.113.8", 67, 68, question(me)), false},
		{"IPv6 neighbour solicitation", icmp(135), true},
		{"IPv6 UDP", ip6(me, unix.IPPROTO_UDP, 0, 9, 0, 9, 0, 8, 0, 0), true},
		{"IPv6 router advertisement", icmp(134), false},
		{"IPv6 redirect", icmp(137), false},
		{"IPv6 DHCP answer", ip6(me, unix.IPPROTO_UDP, 2, 35, 2, 34, 0, 8, 0, 0), false},
		{"later fragment of ICMPv6", ip6(me, unix.IPPROTO_FRAGMENT, hidden...), false},
		{"router advertisement behind an option header", ip6(me, unix.IPPROTO_HOPOPTS, 58, 0, 1, 4, 0, 0, 0, 0, 134, 0, 0, 0, 0, 0, 0, 0), false},
	} {
		if got := try(t, from, at, tr, mark); got != tr.seen {
			t.Errorf("%s: seen %v, want %v", tr.name, got, tr.seen)
		}
	}
	// b was given an address, so it has that and no other.
	mark = arp(other, other, "198.51.100.5", "198.51.100.200")
	for _, tr := range []trial{
		{"the given IPv4", udp(other, "198.51.100.5", 9, 9, nil), true},
		{"another IPv4", udp(other, "198.51.100.6", 9, 9, nil), false},
		{"ARP with another IPv4", arp(other, other, "198.51.100.6", "198.51.100.1"), false},
	} {
		if got := try(t, at, from, tr, mark); got != tr.seen {
			t.Errorf("with an address, %s: seen %v, want %v", tr.name, got, tr.seen)
		}
	}
}

func TestAFloodOfQuestionsIsBoundedForEachGuest(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	a, b, c := s.attach(Port{VM: "a", MAC: hw(1)}), s.attach(
		Port{VM: "b", MAC: hw(2)},
	), s.attach(Port{VM: "c", MAC: hw(3)})
	from, quiet, at := open(t, s.host, a.Tap), open(t, s.host, b.Tap), open(t, s.host, c.Tap)
	flood := udp(hw(1), "0.0.0.0", 68, 67, question(hw(1)))
	join(t, from, at, arp(hw(1), hw(1), a.IP.String(), "10.87.201.1"))
	join(t, quiet, at, arp(hw(2), hw(2), b.IP.String(), "10.87.201.2"))
	const sent = 300
	for range sent {
		from.send(t, flood)
	}
	other := udp(hw(2), "0.0.0.0", 68, 67, question(hw(2)))
	quiet.send(t, other)
	passed, _ := at.await(t, func(f []byte) bool { return bytes.HasPrefix(f, other) })
	passed = slices.DeleteFunc(passed, func(f []byte) bool { return !bytes.HasPrefix(f, flood) })
	// The burst, and what the seconds of sending allow.
	if n := len(passed); n < questionsBurst || n > sent/2 {
		t.Errorf("%d of %d questions passed", n, sent)
	}
}

func TestATapThatIsNotKnownMaySendNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	a, b := s.attach(Port{VM: "a", MAC: hw(1)}), s.attach(Port{VM: "b", MAC: hw(2)})
	stranger := s.m.o.tapPrefix() + "odd"
	from := open(t, s.host, stranger)
	s.must(s.host.Run("ip", "link", "set", stranger, "master", DefaultBridge, "up"))
	at, own := open(t, s.host, b.Tap), open(t, s.host, a.Tap)
	join(t, own, at, arp(hw(1), hw(1), a.IP.String(), "10.87.201.1"))
	asked := arp(hw(1), hw(1), a.IP.String(), "10.87.0.50")
	from.send(t, asked)
	mark := arp(hw(1), hw(1), a.IP.String(), "10.87.200.1")
	own.send(t, mark)
	before, _ := at.await(t, func(f []byte) bool { return bytes.HasPrefix(f, mark) })
	if slices.ContainsFunc(before, func(f []byte) bool { return bytes.HasPrefix(f, asked) }) {
		t.Error("seen")
	}
	s.nft("delete table bridge " + s.m.o.tableName())
	join(t, from, at, asked) // it was the rules
}

func TestRulesThatAnotherProgramFlushesAreMadeAnew(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	a := s.attach(Port{VM: "a", MAC: hw(1)})
	flush := func() { s.nft("flush ruleset") }
	flush()
	if len(s.guarded()) != 0 {
		t.Fatal("the flush did nothing")
	}
	s.must(s.do(func() error { s.m.repair(); return nil }))
	if got := s.guarded(); !slices.Equal(got, []string{a.Tap}) {
		t.Errorf("after repair: %v", got)
	}
	flush()
	b := s.attach(Port{VM: "b", MAC: hw(2)})
	if got := s.guarded(); len(got) != 2 {
		t.Errorf("after an attachment: %v", got)
	}
	flush()
	s.must(s.do(func() error { return s.m.Detach(context.Background(), "a") }))
	if got := s.guarded(); !slices.Equal(got, []string{b.Tap}) {
		t.Errorf("after a detachment: %v", got)
	}
}
