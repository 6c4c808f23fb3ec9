//go:build linux

package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

func icmp(kind int) netpolicy.Port { return netpolicy.Port{Protocol: "icmp", ICMPType: &kind} }

func TestPingsAreJudgedByTheirTypeAndAnsweredAllTheSame(t *testing.T) {
	t.Parallel()
	s := newPair(t, Options{})
	b := s.b.IP.String()
	s.set("a", policy("deny", "deny", npr("ping", "allow", "", icmp(8))))
	s.must(ping(s.ga, b, 5))
	s.must(ping(s.ga, worldIP, 5))
	s.must(ping(s.ga, "10.87.0.1", 5))
	if ping(s.gb, s.a.IP.String(), 1) == nil || ping(s.host, s.a.IP.String(), 1) == nil {
		t.Error("ingress of ICMP passes")
	}
	s.set("a", policy("deny", "deny", npr("answers", "allow", "", icmp(0)), npr("in-ping", "allow", "", icmp(8))))
	s.must(ping(s.gb, s.a.IP.String(), 5))
	s.must(ping(s.host, s.a.IP.String(), 5))
	if ping(s.ga, b, 1) == nil {
		t.Error("a ping passes where only answers may")
	}
}

func TestErrorsAboutAllowedFlowsPass(t *testing.T) {
	t.Parallel()
	s := newPair(t, Options{})
	s.set("a", policy("deny", "deny", npr("dns", "allow", "", netpolicy.Port{Protocol: "udp", Port: 5353})))
	var c net.Conn
	s.must(s.ga.Do(func() (err error) { c, err = net.Dial("udp4", at(s.b.IP, 5353)); return err }))
	defer c.Close()
	s.must(c.SetDeadline(time.Now().Add(patience)))
	for range 3 { // nobody listens, of which the guest's kernel tells by ICMP
		if _, err := c.Write([]byte("hello")); err != nil {
			return
		}
		if _, err := c.Read(make([]byte, 10)); err != nil {
			if e, is := err.(net.Error); is && e.Timeout() { //nolint:errorlint // of the net package itself
				t.Fatal("the ICMP error does not come")
			}
			return
		}
	}
	t.Error("an answer from nobody")
}

func TestExceptionsDenyNothingAndDenyBeatsAllow(t *testing.T) {
	t.Parallel()
	s := newPair(t, Options{})
	serve(t, s.gb, at(s.b.IP, 80))
	serve(t, s.up, worldIP+":80")
	s.set("a", policy("deny", "deny", npRule{Name: "all-but-guests", Action: "allow", Peers: []netpolicy.Peer{
		{CIDR: "0.0.0.0/0", Except: []string{"10.87.0.0/16"}},
	}}))
	s.reaches(s.ga, worldIP+":80")
	s.misses(s.ga, at(s.b.IP, 80))
	s.set("a", policy("deny", "allow", npr("yes", "allow", worldIP+"/32"), npr("no", "deny", "192.0.2.0/24", tcp(80))))
	s.misses(s.ga, worldIP+":80")
	s.reaches(s.ga, at(s.b.IP, 80))
	// What outsiders send to guests, without NAT.
	s.set("a", nil)
}

// echo answers UDP packets at an address.
func echo(t *testing.T, h *netlab.Host, address string) {
	t.Helper()
	var c net.PacketConn
	if err := h.Do(func() (err error) { c, err = net.ListenPacket("udp", address); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
}

// asks sends a UDP packet of a size and reports whether it comes back.
func asks(t *testing.T, h *netlab.Host, address string, size int, within time.Duration) bool {
	t.Helper()
	var c net.Conn
	if err := h.Do(func() (err error) { c, err = net.Dial("udp", address); return err }); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 1<<16)
	for end := time.Now().Add(within); time.Now().Before(end); {
		if _, err := c.Write(make([]byte, size)); err != nil {
			return false
		}
		_ = c.SetReadDeadline(time.Now().Add(soon))
		if n, err := c.Read(b); err == nil && n == size {
			return true
		}
	}
	return false
}

func TestFragmentsAreJudgedByWhatTheyArePartOf(t *testing.T) {
	t.Parallel()
	s := newPair(t, Options{})
	const large = 6000
	for _, port := range []int{5000, 5001} {
		echo(t, s.gb, at(s.b.IP, port))
		echo(t, s.ga, at(s.a.IP, port))
		echo(t, s.up, fmt.Sprint(worldIP, ":", port))
	}
	in := netpolicy.Port{Protocol: "udp", Port: 5000}
	s.set("a", policy("deny", "deny", npr("out", "allow", "", in), npr("in", "allow", "", in)))
	for _, h := range []struct {
		name string
		from *netlab.Host
		to   string
	}{{"bridge", s.ga, s.b.IP.String()}, {"world", s.ga, worldIP}, {"in", s.gb, s.a.IP.String()}, {"host", s.host, s.a.IP.String()}} {
		if !asks(t, h.from, h.to+":5000", large, patience) {
			t.Errorf("%s: allowed fragments do not pass", h.name)
		}
		if asks(t, h.from, h.to+":5001", large, soon) {
			t.Errorf("%s: forbidden fragments pass", h.name)
		}
	}
}

// summed sets the checksum of a UDP header that ip6 sends.
func summed(header ...byte) []byte {
	addresses := slices.Concat(netip.MustParseAddr("fe80::1").AsSlice(), netip.MustParseAddr("ff02::1").AsSlice())
	check := ^sum(uint32(sum(uint32(unix.IPPROTO_UDP+len(header)), addresses)), header)
	binary.BigEndian.PutUint16(header[6:], check)
	return header
}

func TestFramesThatHideAPacketAreNoWayAroundAPolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	_ = s.host.Sysctl("net/bridge/bridge-nf-call-iptables", "0")
	_ = s.host.Sysctl("net/bridge/bridge-nf-call-ip6tables", "0")
	s.must(s.host.Run("ip", "link", "add", "lan0", "type", "bridge", "mcast_snooping", "0"))
	s.must(s.host.Run("ip", "link", "set", "lan0", "up"))
	a := s.attach(Port{VM: "a", MAC: hw(1), Bridge: "lan0"})
	b := s.attach(Port{VM: "b", MAC: hw(2), Bridge: "lan0"})
	s.must(s.host.Run("ip", "tuntap", "add", "uplink", "mode", "tap", "vnet_hdr"))
	s.must(s.host.Run("ip", "link", "set", "uplink", "master", "lan0", "up"))
	from, atB, uplink := open(t, s.host, a.Tap), open(t, s.host, b.Tap), open(t, s.host, "uplink")
	me, other := hw(1), hw(9)
	mark := func(of net.HardwareAddr) []byte { return arp(of, of, "198.51.100.9", "198.51.100.200") }
	join(t, from, atB, mark(me))
	join(t, uplink, atB, mark(other))
	s.set("b", policy("deny", "allow", npr("in-nine", "allow", "", netpolicy.Port{Protocol: "udp", Port: 9})))

	plain := func(of net.HardwareAddr, port uint16) []byte {
		f := udp(of, "198.51.100.9", 4000, port, []byte("hello"))
		binary.BigEndian.PutUint16(f[24:], 0)
		binary.BigEndian.PutUint16(f[24:], ^sum(uint32(0), f[14:34]))
		return f
	}
	tagged := func(f []byte, kind uint16) []byte {
		return append(ethernet(everybody, f[6:12], kind, 0, 7), f[12:]...)
	}
	pppoe := func(f []byte) []byte {
		return append(ethernet(everybody, f[6:12], unix.ETH_P_PPP_SES, 0x11, 0, 0, 1, 0, byte(len(f)-12), 0, 0x21), f[14:]...)
	}
	udp6 := func(of net.HardwareAddr, port byte) []byte {
		return ip6(of, unix.IPPROTO_UDP, summed(9, 9, 0, port, 0, 8, 0, 0)...)
	}
	hidden := append([]byte{unix.IPPROTO_UDP, 0, 0, 8, 0, 0, 0, 1}, make([]byte, 8)...)
	for _, w := range []struct {
		wire
		of net.HardwareAddr
	}{{from, me}, {uplink, other}} {
		for _, tr := range []trial{
			{"allowed", plain(w.of, 9), true},
			{"forbidden", plain(w.of, 10), false},
			{"later fragment", fragment(plain(w.of, 9)), false},
			{"tag of a VLAN", tagged(plain(w.of, 9), unix.ETH_P_8021Q), false},
			{"tag of a provider's VLAN", tagged(plain(w.of, 9), unix.ETH_P_8021AD), false},
			{"PPPoE", pppoe(plain(w.of, 9)), false},
			{"allowed IPv6", udp6(w.of, 9), true},
			{"forbidden IPv6", udp6(w.of, 10), false},
			{"later fragment of IPv6", ip6(w.of, unix.IPPROTO_FRAGMENT, hidden...), false},
			{"allowed behind an option header", ip6(w.of, unix.IPPROTO_HOPOPTS, append([]byte{17, 0, 1, 4, 0, 0, 0, 0}, summed(9, 9, 0, 9, 0, 8, 0, 0)...)...), true},
			{"behind an option header", ip6(w.of, unix.IPPROTO_HOPOPTS, append([]byte{17, 0, 1, 4, 0, 0, 0, 0}, summed(9, 9, 0, 10, 0, 8, 0, 0)...)...), false},
			{"a cut header", ethernet(everybody, w.of, unix.ETH_P_IP, 0x45, 0, 0), false},
			{"another protocol", ethernet(everybody, w.of, 0x88b5, 1, 2, 3), false},
			{"ARP", arp(w.of, w.of, "198.51.100.9", "198.51.100.1"), true},
		} {
			if got := try(t, w.wire, atB, tr, mark(w.of)); got != tr.seen {
				t.Errorf("from %s, %s: seen %v, want %v", w.of, tr.name, got, tr.seen)
			}
		}
	}
}

func TestIPv6OfAnOperatorsBridgeIsJudged(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	for _, name := range []string{"iptables", "ip6tables"} {
		s.must(s.host.Sysctl("net/bridge/bridge-nf-call-"+name, "0"))
	}
	s.must(s.host.Run("ip", "link", "add", "lan0", "type", "bridge"))
	s.must(s.host.Run("ip", "link", "set", "lan0", "up"))
	s.must(s.host.Address("lan0", netip.MustParsePrefix("fd00:1::1/64")))
	a, b := s.attach(Port{VM: "a", MAC: hw(1), Bridge: "lan0"}), s.attach(Port{VM: "b", MAC: hw(2), Bridge: "lan0"})
	ga, gb := s.guest("a", hw(1), a), s.guest("b", hw(2), b)
	for h, ip := range map[*netlab.Host]string{ga: "fd00:1::a/64", gb: "fd00:1::b/64"} {
		s.must(h.Address("eth0", netip.MustParsePrefix(ip)))
	}
	const large = 6000
	for _, port := range []int{5000, 5001} {
		echo(t, ga, fmt.Sprintf("[fd00:1::a]:%d", port))
		echo(t, gb, fmt.Sprintf("[fd00:1::b]:%d", port))
	}
	if !asks(t, ga, "[fd00:1::b]:5001", 100, patience) {
		t.Fatal("the guests do not reach each other")
	}
	in := netpolicy.Port{Protocol: "udp", Port: 5000}
	s.set("a", policy("deny", "deny", npr("out", "allow", "fd00:1::/64", in), npr("in", "allow", "fd00::/16", in)))
	for name, h := range map[string]struct {
		from *netlab.Host
		to   string
	}{"out": {ga, "[fd00:1::b]"}, "in": {gb, "[fd00:1::a]"}, "host": {s.host, "[fd00:1::a]"}} {
		if !asks(t, h.from, h.to+":5000", 100, patience) {
			t.Errorf("%s: what is allowed does not pass", name)
		}
		if asks(t, h.from, h.to+":5001", 100, soon) {
			t.Errorf("%s: what is forbidden passes", name)
		}
	}
	if !asks(t, s.host, "[fd00:1::a]:5000", large, patience) {
		t.Error("fragments of the host's do not pass")
	}
	s.set("a", nil)
	if link, err := s.link("lan0"); err != nil {
		t.Error(err)
	} else if err := s.do(func() error {
		if on, err := filters(link); on || err != nil {
			return fmt.Errorf("the bridge stays filtered: %v %w", on, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestPoliciesAndFlowsSurviveTheDaemon(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.json")
	s := newPair(t, Options{LeaseFile: file})
	for _, port := range []int{80, 443} {
		serve(t, s.gb, at(s.b.IP, port))
	}
	p := policy("deny", "deny", npr("web", "allow", "", tcp(80)))
	s.set("a", p)
	c := s.talk(s.ga, at(s.b.IP, 80))
	if !c.goes(patience) {
		t.Fatal("no connection")
	}
	// The daemon is gone, and its rules stay.
	s.misses(s.ga, at(s.b.IP, 443))
	s.reaches(s.ga, at(s.b.IP, 80))

	compiled, err := netpolicy.Compile(p)
	s.must(err)
	s.m = s.manager(Options{LeaseFile: file})
	s.m.LoadPolicies(map[string]*netpolicy.Compiled{"a": compiled})
	s.sweep(func(string) bool { return true })
	if !c.goes(patience) {
		t.Error("an allowed connection did not survive")
	}
	s.misses(s.ga, at(s.b.IP, 443))
	if state := s.state("a"); !state.Enforced || time.Since(state.Since) > patience {
		t.Errorf("%+v", state)
	}
	// Another program's flush.
	s.nft("flush ruleset")
	s.must(s.do(func() error { s.m.repair(); return nil }))
	s.misses(s.ga, at(s.b.IP, 443))
	if !c.goes(patience) {
		t.Error("an allowed connection did not survive a repair")
	}
	// A tap gets its policy with its first packet.
	s.must(s.do(func() error { return s.m.Detach(t.Context(), "b") }))
	s.set("b", policy("deny", "allow"))
	if s.state("b").Attached {
		t.Error("attached without a tap")
	}
	s.b = s.attach(Port{VM: "b", MAC: hw(2)})
	if state := s.state("b"); !state.Enforced {
		t.Errorf("%+v", state)
	}
}

func TestDecisionsAreRecordedWithinLimits(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var flows []Flow
	s := newPair(t, Options{OnFlow: func(f Flow) {
		mu.Lock()
		defer mu.Unlock()
		flows = append(flows, f)
	}})
	s.run()
	serve(t, s.gb, at(s.b.IP, 80))
	s.set("a", policy("deny", "allow", npr("web", "allow", "", tcp(80)), npr("ping", "deny", "", icmp(8))))
	those := func(fits func(Flow) bool) []Flow {
		mu.Lock()
		defer mu.Unlock()
		return slices.DeleteFunc(slices.Clone(flows), func(f Flow) bool { return !fits(f) })
	}
	await := func(name string, fits func(Flow) bool) Flow {
		t.Helper()
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if found := those(fits); len(found) > 0 {
				return found[0]
			}
		}
		t.Fatalf("%s is not recorded", name)
		return Flow{}
	}
	c := s.talk(s.ga, at(s.b.IP, 80))
	f := await("web", func(f Flow) bool { return f.Rule == "web" })
	if f.VM != "a" || f.Ingress || !f.Allowed || f.Protocol != 6 || f.Source.Addr() != s.a.IP || f.Source.Port() == 0 ||
		f.Destination.String() != at(s.b.IP, 80) || f.ICMPType != -1 || f.PeerVM != "b" {
		t.Errorf("%+v", f)
	}
	for range 20 {
		if !c.goes(patience) {
			t.Fatal("the connection breaks")
		}
	}
	_ = ping(s.ga, s.b.IP.String(), 1)
	if f := await("ping", func(f Flow) bool { return f.Rule == "ping" }); f.Allowed || f.ICMPType != 8 || f.Protocol != 1 {
		t.Errorf("%+v", f)
	}
	s.misses(s.gb, at(s.a.IP, 22))
	f = await("ingress", func(f Flow) bool { return f.Ingress && f.PeerVM == "b" })
	if f.Allowed || f.Rule != "" || f.Destination.String() != at(s.a.IP, 22) {
		t.Errorf("%+v", f)
	}
	web := len(those(func(f Flow) bool { return f.Rule == "web" }))
	if web > 3 { // the connection has begun once; SYN may have been repeated
		t.Errorf("%d records of one connection", web)
	}
	var u net.Conn
	s.must(s.ga.Do(func() (err error) { u, err = net.Dial("udp4", worldIP+":9"); return err }))
	defer u.Close()
	const sent = 3000
	for range sent {
		_, _ = u.Write([]byte("flood"))
	}
	await("flood", func(f Flow) bool { return f.Protocol == 17 })
	_ = ping(s.ga, "10.87.0.1", 1)
	if n := len(those(func(f Flow) bool { return f.Protocol == 17 })); n > sent/2 {
		t.Errorf("%d of %d packets are recorded", n, sent)
	}
}

func TestAThousandRulesAreSwappedAtOnce(t *testing.T) {
	t.Parallel()
	s := newPair(t, Options{})
	serve(t, s.gb, at(s.b.IP, 80))
	serve(t, s.gb, at(s.b.IP, 443))
	many := func(port int) *np {
		p := policy("deny", "deny", npr("web", "allow", "", tcp(port)))
		for i := range netpolicy.MaxRules - 1 {
			p.Egress.Rules = append(p.Egress.Rules, npr(fmt.Sprint("r", i), "allow",
				fmt.Sprintf("10.%d.%d.0/24", i/200, i%200), tcp(1000+i)))
		}
		return p
	}
	first, second := many(80), many(80)
	s.set("a", first)
	c := s.talk(s.ga, at(s.b.IP, 80))
	for i := range 4 {
		start := time.Now()
		s.set("a", []*np{second, first}[i%2])
		t.Logf("a swap of 1,000 rules takes %s", time.Since(start))
		if !c.goes(patience) {
			t.Fatal("an allowed connection is cut")
		}
	}
	s.misses(s.ga, at(s.b.IP, 443))
	s.set("a", many(443))
	s.reaches(s.ga, at(s.b.IP, 443))
	if c.goes(soon) {
		t.Error("a forbidden connection goes on")
	}
	if n := len(s.state("a").Egress.Rules); n != netpolicy.MaxRules {
		t.Errorf("%d counters", n)
	}
	s.set("a", nil)
}

func TestWithoutAnyRuleAGuestStillGetsItsAddressAndNamesFromTheHost(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	_ = s.host.Sysctl("net/bridge/bridge-nf-call-iptables", "0")
	s.run()
	a := s.attach(Port{VM: "a", MAC: hw(1)})
	s.set("a", policy("deny", "deny"))
	g := s.guest("a", hw(1), a)
	if told := dhcp(t, g); told["ip"] != a.IP.String() {
		t.Errorf("%v", told)
	}
	serve(t, s.host, "10.87.0.1:53")
	echo(t, s.host, "10.87.0.1:53")
	s.reaches(g, "10.87.0.1:53")
	if !asks(t, g, "10.87.0.1:53", 40, patience) {
		t.Error("DNS does not pass")
	}
	// Only those of the host.
	w := s.world()
	for _, port := range []int{53, 67} {
		echo(t, w, fmt.Sprint(worldIP, ":", port))
		if asks(t, g, fmt.Sprint(worldIP, ":", port), 40, soon) {
			t.Errorf("port %d of others is reached", port)
		}
	}
	if ping(g, "10.87.0.1", 1) == nil {
		t.Error("a ping passes")
	}
}

func TestARestartWithoutPoliciesLeavesTheBridgeUnfiltered(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.json")
	s := newSite(t, Options{LeaseFile: file})
	s.attach(Port{VM: "a", MAC: hw(1)})
	s.set("a", policy("deny", "deny"))
	filtered := func() (on bool) {
		t.Helper()
		link, err := s.link(DefaultBridge)
		s.must(err)
		s.must(s.do(func() (err error) { on, err = filters(link); return err }))
		return on
	}
	if !filtered() {
		t.Fatal("the bridge is not filtered")
	}
	s.m = s.manager(Options{LeaseFile: file})
	s.sweep(func(string) bool { return true })
	if filtered() {
		t.Error("the bridge stays filtered, for nobody")
	}
}

func FuzzAPacketThatIsRecordedIsReadSafely(f *testing.F) {
	f.Add(uint16(etherIPv4), udp(hw(1), "10.87.0.2", 1, 2, []byte("x"))[14:])
	f.Add(uint16(etherIPv6), ip6(hw(1), unix.IPPROTO_HOPOPTS, 17, 0, 1, 4, 0, 0, 0, 0, 9, 9, 0, 9, 0, 8, 0, 0)[14:])
	f.Add(uint16(etherIPv6), ip6(hw(1), unix.IPPROTO_FRAGMENT, 17, 0, 0, 8, 0, 0, 0, 0)[14:])
	f.Fuzz(func(t *testing.T, kind uint16, packet []byte) {
		flow, ok := parsePacket(kind, packet)
		if ok && (!flow.Source.IsValid() || !flow.Destination.IsValid()) {
			t.Errorf("%+v", flow)
		}
	})
}

func TestNoPacketPassesBetweenTwoPolicies(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	_ = s.host.Sysctl("net/bridge/bridge-nf-call-iptables", "0")
	one, two := Port{VM: "a", MAC: hw(1)}, Port{VM: "b", MAC: hw(2)}
	a, b := s.attach(one), s.attach(two)
	from, atB := open(t, s.host, a.Tap), open(t, s.host, b.Tap)
	join(t, from, atB, arp(hw(1), hw(1), a.IP.String(), "10.87.201.1"))
	join(t, atB, from, arp(hw(2), hw(2), b.IP.String(), "10.87.201.1"))
	// The policies have nothing in common but what they do with these packets.
	port := func(n int) netpolicy.Port { return netpolicy.Port{Protocol: "udp", Port: n} }
	p, q := policy("allow", "deny"), policy("deny", "allow", npr("no", "deny", "", port(9)))
	for i := range 200 {
		p.Egress.Rules = append(p.Egress.Rules, npr(fmt.Sprint("p", i), "allow", fmt.Sprintf("10.99.%d.0/24", i), tcp(i+1)))
		q.Egress.Rules = append(q.Egress.Rules, npr(fmt.Sprint("q", i), "deny", fmt.Sprintf("10.98.%d.0/24", i), tcp(i+1)))
	}
	p.Egress.Rules = append(p.Egress.Rules, npr("yes", "allow", "10.87.0.0/16", port(8)))
	s.set("a", p)

	sent, seen := make(chan int, 1), make(chan [2]int, 1)
	stop := make(chan struct{})
	allowed, forbidden := unicast(one, two, a, b, 4000, 8), unicast(one, two, a, b, 4000, 9)
	last := arp(hw(1), hw(1), a.IP.String(), "10.87.200.1")
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				from.send(t, last)
				sent <- n
				return
			default:
				from.send(t, allowed)
				from.send(t, forbidden)
				time.Sleep(100 * time.Microsecond)
			}
		}
	}()
	go func() {
		var passed [2]int
		buffer := make([]byte, 2048)
		for {
			n, err := atB.f.Read(buffer)
			f := buffer[vnetHeader:max(n, vnetHeader)]
			switch {
			case err != nil, slices.Equal(f[:min(len(f), len(last))], last):
				seen <- passed
				return
			case len(f) == len(allowed) && f[37] == 8:
				passed[0]++
			case len(f) == len(forbidden) && f[37] == 9:
				passed[1]++
			}
		}
	}()
	s.must(atB.f.SetReadDeadline(time.Now().Add(3 * patience)))
	for i := range 10 {
		s.set("a", []*np{q, p}[i%2])
		s.must(s.do(s.m.rebuild)) // as after a restart of the daemon
	}
	close(stop)
	n, passed := <-sent, <-seen
	if passed[1] != 0 {
		t.Errorf("%d forbidden packets of %d passed", passed[1], n)
	}
	if passed[0] < n || n < 100 {
		t.Errorf("%d allowed packets of %d passed", passed[0], n)
	}
}
