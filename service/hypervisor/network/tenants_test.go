//go:build linux

package network

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/netlab"
)

func TestGuestsReachThoseOfTheirOwnTenantOnly(t *testing.T) {
	t.Parallel()
	for _, share := range []bool{false, true} {
		s := newSite(t, Options{ShareBridge: share})
		ports := map[string]Attached{}
		guests := map[string]*netlab.Host{}
		for i, name := range []string{"acme-1", "acme-2", "bolt-1", "own-1"} {
			tenant, _, _ := strings.Cut(name, "-")
			if tenant == "own" {
				tenant = "" // an admin's
			}
			ports[name] = s.attach(Port{VM: name, MAC: hw(byte(1 + i)), Tenant: tenant})
			guests[name] = s.guest(name, hw(byte(1+i)), ports[name])
			static(s, guests[name], ports[name].IP)
		}
		for from := range ports {
			for to := range ports {
				if from == to {
					continue
				}
				own := strings.HasPrefix(to, from[:3])
				err := ping(guests[from], ports[to].IP.String(), 1)
				if own || share {
					err2 := err
					if err2 != nil {
						err2 = ping(guests[from], ports[to].IP.String(), 5)
					}
					if err2 != nil {
						t.Errorf("shared %v: %s does not reach %s: %v", share, from, to, err2)
					}
				} else if err == nil {
					t.Errorf("shared %v: %s reaches %s", share, from, to)
				}
			}
			s.must(ping(guests[from], "10.87.0.1", 5))
		}
		if share {
			continue
		}
		// By way of the host: the neighbour's address is said to be at the host's Ethernet address.
		router := bridgeMAC(s.m.o)
		s.must(s.host.Sysctl("net/ipv4/ip_forward", "1"))
		s.must(
			guests["bolt-1"].Run(
				"ip", "neighbour", "replace", ports["acme-1"].IP.String(), "lladdr", router.String(), "dev", "eth0",
			),
		)
		s.must(
			guests["acme-1"].Run(
				"ip", "neighbour", "replace", ports["bolt-1"].IP.String(), "lladdr", router.String(), "dev", "eth0",
			),
		)
		if err := ping(guests["bolt-1"], ports["acme-1"].IP.String(), 1); err == nil {
			t.Error("a guest reaches one of another tenant by way of the host")
		}
		s.nft("flush chain bridge " + s.m.o.tableName() + " ipv4")
		s.nft("add rule bridge " + s.m.o.tableName() + " ipv4 accept")
		if err := ping(guests["bolt-1"], ports["acme-1"].IP.String(), 5); err != nil {
			t.Errorf("it was not the rules that stopped it: %v", err)
		}
	}
}

func TestTheTenantOfAVMThatIsMadeAnewCounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	a, b := s.attach(Port{VM: "a", MAC: hw(1), Tenant: "acme"}), s.attach(Port{VM: "b", MAC: hw(2), Tenant: "acme"})
	ga, gb := s.guest("a", hw(1), a), s.guest("b", hw(2), b)
	static(s, ga, a.IP)
	static(s, gb, b.IP)
	s.must(ping(ga, b.IP.String(), 5))
	s.attach(Port{VM: "b", MAC: hw(2), Tenant: "bolt"})
	if err := ping(ga, b.IP.String(), 1); err == nil {
		t.Error("a VM that is another tenant's now is still reached")
	}
}

// Two daemons with data folders of their own, as a production one and one that somebody tries.
func TestDaemonsOfOneHostLeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	s := newSite(t, Options{Owner: first, LeaseFile: filepath.Join(first, "leases.json")})
	a := s.attach(Port{VM: "a", MAC: hw(1)})
	ga := s.guest("a", hw(1), a)
	static(s, ga, a.IP)
	s.must(ping(ga, "10.87.0.1", 5))
	mine := s.m

	// The other one cannot take the bridge, and says whose it is.
	s.m = s.manager(Options{Owner: second, LeaseFile: filepath.Join(second, "leases.json")})
	if swept := s.sweep(func(string) bool { return false }); swept != (Swept{}) {
		t.Errorf("the other daemon swept %+v", swept)
	}
	if _, err := s.tryAttach(
		Port{VM: "b", MAC: hw(2)},
	); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), first) ||
		!strings.Contains(err.Error(), "network.subnet") {
		t.Errorf("on the same bridge: %v", err)
	}
	// With a bridge of its own both work, whatever the other does.
	s.m = s.manager(Options{
		Owner:     second,
		LeaseFile: filepath.Join(second, "leases.json"),
		Bridge:    "other0",
		Address:   netip.MustParsePrefix("10.86.0.1/24"),
	})
	b := s.attach(Port{VM: "b", MAC: hw(2)})
	gb := s.guest("b", hw(2), b)
	s.must(gb.Address("eth0", netip.PrefixFrom(b.IP, 24)))
	s.must(ping(gb, "10.86.0.1", 5))
	s.must(ping(ga, "10.87.0.1", 5))
	theirs := s.m
	s.m = mine
	if swept := s.sweep(func(vm string) bool { return vm == "a" }); swept != (Swept{}) {
		t.Errorf("the first daemon swept %+v", swept)
	}
	s.must(ping(gb, "10.86.0.1", 5))
	s.m = theirs
	if swept := s.sweep(func(string) bool { return false }); swept.Taps != 1 {
		t.Errorf("the second daemon swept %+v of its own", swept)
	}
	s.must(ping(ga, "10.87.0.1", 5))
}

func TestABridgeWhoseDaemonIsGoneIsTakenOver(t *testing.T) {
	t.Parallel()
	gone, here := filepath.Join(t.TempDir(), "gone"), t.TempDir()
	s := newSite(t, Options{Owner: gone, LeaseFile: filepath.Join(here, "1.json")})
	s.attach(Port{VM: "a", MAC: hw(1)})
	s.m = s.manager(Options{Owner: here, LeaseFile: filepath.Join(here, "2.json")})
	s.attach(Port{VM: "b", MAC: hw(2)})
	s.m = s.manager(Options{Owner: t.TempDir(), LeaseFile: filepath.Join(here, "3.json")})
	if _, err := s.tryAttach(Port{VM: "c", MAC: hw(3)}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a third one: %v", err)
	}
}
