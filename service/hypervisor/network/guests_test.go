//go:build linux

package network

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/netlab"
)

func TestGuestsGetTheirAddressesByDHCPAndReachEachOtherAndTheWorld(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{MTU: 1400})
	s.run()
	s.must(s.host.Sysctl("net/ipv4/ip_forward", "0"))
	a := s.attach(Port{VM: "vm-a", MAC: hw(1), Hostname: "first"})
	b := s.attach(Port{VM: "vm-b", MAC: hw(2), IP: netip.MustParseAddr("10.87.3.4")})
	ga, gb := s.guest("a", hw(1), a), s.guest("b", hw(2), b)
	told := dhcp(t, ga)
	for k, want := range map[string]string{
		"ip": a.IP.String(), "mask": "16", "router": "10.87.0.1", "dns": "192.0.2.53", "mtu": "1400", "hostname": "first", "lease": "3600",
	} {
		if told[k] != want {
			t.Errorf("%s is %q, want %q", k, told[k], want)
		}
	}
	if told := dhcp(t, gb); told["ip"] != "10.87.3.4" || b.IP.String() != "10.87.3.4" {
		t.Errorf("told %s, attached %s", told["ip"], b.IP)
	}
	if got := s.m.Addresses("vm-a"); len(got) != 1 || got[0] != a.IP {
		t.Errorf("addresses %v, want %s", got, a.IP)
	}
	s.must(ping(ga, b.IP.String(), 5))
	s.must(ping(ga, "10.87.0.1", 5))

	world := s.world()
	s.must(ping(gb, worldIP, 5)) // the world has no way back: this takes NAT
	if err := ping(world, "10.87.3.4", 1); err == nil {
		t.Error("the world begins a connection to a guest")
	}
}

const worldIP = "192.0.2.9"

// world is a host beside this one, that knows a way to the guests by way of it only if
// told so.
func (s *site) world() *netlab.Host {
	s.t.Helper()
	w, err := s.lab.Host("world")
	s.must(err)
	s.must(netlab.Join(s.host, "up0", w, "eth0"))
	s.must(s.host.Address("up0", netip.MustParsePrefix("192.0.2.1/24")))
	s.must(w.Address("eth0", netip.MustParsePrefix(worldIP+"/24")))
	return w
}

// static gives a guest its address without DHCP.
func static(s *site, h *netlab.Host, ip netip.Addr) {
	s.t.Helper()
	s.must(h.Address("eth0", netip.PrefixFrom(ip, 16)))
	s.must(h.Route(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.87.0.1")))
}

func TestWithoutNATTheWayIsTheOperators(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{NoNAT: true})
	a := s.attach(Port{VM: "a", MAC: hw(1)})
	g := s.guest("a", hw(1), a)
	static(s, g, a.IP)
	s.must(s.host.Sysctl("net/ipv4/ip_forward", "1"))
	w := s.world()
	if err := ping(g, worldIP, 1); err == nil {
		t.Error("there is a way back, without NAT")
	}
	s.must(w.Route(netip.MustParsePrefix("10.87.0.0/16"), netip.MustParseAddr("192.0.2.1")))
	s.must(ping(g, worldIP, 5))
	s.must(ping(w, a.IP.String(), 5))
}

func TestIsolatedGuestsReachOnlyTheGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Isolate: true})
	a, b := s.attach(Port{VM: "a", MAC: hw(1)}), s.attach(Port{VM: "b", MAC: hw(2)})
	ga, gb := s.guest("a", hw(1), a), s.guest("b", hw(2), b)
	static(s, ga, a.IP)
	static(s, gb, b.IP)
	s.must(ping(ga, "10.87.0.1", 5))
	if err := ping(ga, b.IP.String(), 1); err == nil {
		t.Error("isolated guests reach each other")
	}
}

func listen(h *netlab.Host, address string) (l net.Listener, err error) {
	err = h.Do(func() (err error) { l, err = net.Listen("tcp4", address); return err })
	return l, err
}

func dial(h *netlab.Host, address string, within time.Duration) error {
	return h.Do(func() error {
		c, err := net.DialTimeout("tcp4", address, within)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

func TestTheHostsServicesAreClosedToGuests(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	a := s.attach(Port{VM: "a", MAC: hw(1)})
	g := s.guest("a", hw(1), a)
	static(s, g, a.IP)
	s.must(s.host.Address("lo", netip.MustParsePrefix("169.254.169.254/32"), netip.MustParsePrefix("192.0.2.7/32")))
	for _, address := range []string{"10.87.0.1:53", "10.87.0.1:8080", "192.0.2.7:8080"} {
		l, err := listen(s.host, address)
		s.must(err)
		defer l.Close()
	}
	l, err := listen(g, a.IP.String()+":22")
	s.must(err)
	defer l.Close()

	s.must(dial(g, "10.87.0.1:53", patience))
	s.must(dial(s.host, a.IP.String()+":22", patience)) // the answers of guests come in
	closed := []string{"10.87.0.1:8080", "192.0.2.7:8080"}
	for _, address := range closed {
		if err := dial(g, address, 500*time.Millisecond); err == nil {
			t.Errorf("a guest reaches %s", address)
		}
	}
	s.nft("delete table inet " + s.m.o.tableName())
	for _, address := range closed { // so that it was the rules that closed them
		s.must(dial(g, address, patience))
	}
}

func TestGuestsDoNotReachTheCredentialsOfTheCloud(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	a := s.attach(Port{VM: "a", MAC: hw(1)})
	g := s.guest("a", hw(1), a)
	static(s, g, a.IP)
	w := s.world()
	s.must(w.Address("eth0", netip.MustParsePrefix("169.254.169.254/32")))
	s.must(s.host.Route(netip.MustParsePrefix("169.254.0.0/16"), netip.MustParseAddr(worldIP)))
	for _, port := range []int{53, 80} {
		l, err := listen(w, fmt.Sprintf("169.254.169.254:%d", port))
		s.must(err)
		defer l.Close()
	}
	s.must(dial(s.host, "169.254.169.254:80", patience))
	s.must(dial(g, "169.254.169.254:53", patience))
	if err := dial(g, "169.254.169.254:80", 500*time.Millisecond); err == nil {
		t.Error("a guest reaches the metadata service")
	}
	s.nft("flush chain inet " + s.m.o.tableName() + " forward")
	s.must(dial(g, "169.254.169.254:80", patience))
}

func TestABridgeOfTheOperatorsGetsOnlyAPort(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	if _, err := s.tryAttach(Port{VM: "a", MAC: hw(1), Bridge: "lan0"}); !fault.Is(err, fault.Invalid) ||
		len(s.m.book.all()) != 0 {
		t.Fatalf("a bridge that is not there: %v, %v", err, s.m.book.all())
	}
	s.must(s.host.Run("ip", "link", "add", "lan0", "type", "bridge"))
	s.must(s.host.Run("ip", "link", "set", "lan0", "up"))
	a := s.attach(Port{VM: "a", MAC: hw(1), Bridge: "lan0"})
	if a.IP.IsValid() || a.Gateway.IsValid() || a.Bridge != "lan0" {
		t.Errorf("%+v", a)
	}
	if link, err := s.link(DefaultBridge); link != nil || err != nil {
		t.Errorf("the managed bridge was made, for nobody: %v %v", link, err)
	}
	tap, err := s.link(a.Tap)
	s.must(err)
	lan, err := s.link("lan0")
	s.must(err)
	if tap.Attrs().MasterIndex != lan.Attrs().Index {
		t.Error("the tap is not on the bridge")
	}
	// It may have any address there.
	s.must(s.host.Address("lan0", netip.MustParsePrefix("198.51.100.1/24")))
	g := s.guest("a", hw(1), a)
	s.must(g.Address("eth0", netip.MustParsePrefix("198.51.100.77/24")))
	s.must(ping(g, "198.51.100.1", 5))
}
