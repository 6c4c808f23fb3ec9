package network

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

func options(t testing.TB, address string) Options {
	t.Helper()
	o, err := Options{
		LeaseFile: filepath.Join(t.TempDir(), "leases.json"),
		Address:   netip.MustParsePrefix(address),
	}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func newBook(t testing.TB, o Options) *book {
	t.Helper()
	b, strange, err := openBook(o)
	if err != nil || len(strange) != 0 {
		t.Fatal(err, strange)
	}
	return b
}

func vm(n int, wish string) lease {
	l := lease{VM: fmt.Sprint("vm", n), MAC: mac{2, 0, 0, 0, byte(n >> 8), byte(n)}, Bridge: DefaultBridge}
	if wish != "" {
		l.IP = netip.MustParseAddr(wish)
	}
	return l
}

func TestAddressesAreTheWishOrTheLowestThatIsFree(t *testing.T) {
	t.Parallel()
	o := options(t, "192.168.7.2/29") // 1, 3, 4, 5 and 6 are for guests
	b := newBook(t, o)
	grant := func(l lease, want string) {
		t.Helper()
		if got, err := b.grant(l); err != nil || got.IP.String() != want {
			t.Errorf("%s wishes %s: %s, %v, want %s", l.VM, l.IP, got.IP, err, want)
		}
	}
	grant(vm(1, ""), "192.168.7.1")
	grant(vm(2, "192.168.7.5"), "192.168.7.5")
	grant(vm(3, "192.168.7.5"), "192.168.7.3") // taken; 2 is the gateway
	grant(vm(3, "192.168.7.6"), "192.168.7.3") // it has one
	grant(vm(4, "192.168.7.0"), "192.168.7.4") // the network
	moved := vm(4, "192.168.7.2")              // the gateway
	moved.MAC[0] = 6
	grant(moved, "192.168.7.4")                // another card: its own is free for itself
	grant(vm(5, "192.168.7.7"), "192.168.7.6") // the broadcast address
	if _, err := b.grant(vm(6, "")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a network that is full: %v", err)
	}
	if err := b.remove("vm1"); err != nil {
		t.Fatal(err)
	}
	grant(vm(6, "10.1.1.1"), "192.168.7.1")
	if got := newBook(t, o).all(); len(got) != 5 {
		t.Errorf("on disk: %v", got)
	}
}

func TestLeasesSurviveAnyOrderOfRestarts(t *testing.T) {
	t.Parallel()
	o := options(t, "10.0.0.1/27")
	b, random := newBook(t, o), rand.New(rand.NewPCG(1, 2))
	has := map[string]netip.Addr{}
	for step := range 400 {
		switch l := vm(random.IntN(40), ""); random.IntN(4) {
		case 0:
			if err := b.remove(l.VM); err != nil {
				t.Fatal(err)
			}
			delete(has, l.VM)
		case 1:
			b = newBook(t, o)
		default:
			got, err := b.grant(l)
			if full := len(has) == 29 && !has[l.VM].IsValid(); full != (err != nil) {
				t.Fatalf("step %d: %v with %d leases", step, err, len(has))
			}
			if err != nil {
				continue
			}
			if was := has[l.VM]; was.IsValid() && was != got.IP {
				t.Fatalf("step %d: %s had %s and has %s", step, l.VM, was, got.IP)
			}
			has[l.VM] = got.IP
		}
		seen := map[netip.Addr]bool{}
		for _, l := range b.all() {
			if seen[l.IP] || has[l.VM] != l.IP || !b.usable(l.IP) {
				t.Fatalf("step %d: %+v", step, l)
			}
			seen[l.IP] = true
		}
		if len(seen) != len(has) {
			t.Fatalf("step %d: %d leases, want %d", step, len(seen), len(has))
		}
	}
}

func TestAnAddressThatCannotBeKeptIsNotGiven(t *testing.T) {
	t.Parallel()
	o := options(t, "10.0.0.1/24")
	o.LeaseFile = filepath.Join(t.TempDir(), "missing", "leases.json")
	b := newBook(t, o)
	if _, err := b.grant(vm(1, "")); !fault.Is(err, fault.StorageFailed) {
		t.Error(err)
	}
	if _, known := b.of("vm1"); known {
		t.Error("it was given")
	}
}

func TestADamagedLeaseFileStopsTheStart(t *testing.T) {
	t.Parallel()
	entry := func(vm, mac, ip string) string {
		return fmt.Sprintf(`{"vm":%q,"mac":%q,"bridge":"mainstay0","ip":%q}`, vm, mac, ip)
	}
	one := entry("a", "02:00:00:00:00:01", "10.87.0.2")
	for name, c := range map[string]struct {
		leases []string
		ok     bool
	}{
		"none":                      {nil, true},
		"one":                       {[]string{one}, true},
		"outside of the network":    {[]string{entry("a", "02:00:00:00:00:01", "10.99.0.2")}, true},
		"twice":                     {[]string{one, one}, false},
		"the same address":          {[]string{one, entry("b", "02:00:00:00:00:02", "10.87.0.2")}, false},
		"the same Ethernet address": {[]string{one, entry("b", "02:00:00:00:00:01", "10.87.0.3")}, false},
		"a name that is none":       {[]string{entry("../a", "02:00:00:00:00:01", "10.87.0.2")}, false},
		"a short Ethernet address":  {[]string{entry("a", "02:00:00:00:00", "10.87.0.2")}, false},
		"garbage":                   {[]string{"x"}, false},
	} {
		file := filepath.Join(t.TempDir(), "leases.json")
		if err := os.WriteFile(
			file,
			[]byte(`{"version":1,"leases":[`+strings.Join(c.leases, ",")+"]}"),
			0o600,
		); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Options{LeaseFile: file}); (err == nil) != c.ok ||
			err != nil && !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOptionsAndPortsAreChecked(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]Options{
		"network.lease_file": {},
		"network.bridge":     {LeaseFile: "f", Bridge: "a bridge"},
		"network.mtu":        {LeaseFile: "f", MTU: 100},
		"network.address":    {LeaseFile: "f", Address: netip.MustParsePrefix("10.0.0.0/24")},
	} {
		if _, err := New(o); !fault.Is(err, fault.Invalid) || fault.From(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, a := range []string{"fd00::1/64", "10.0.0.1/31", "10.0.0.255/24", "127.0.0.0/7", "224.0.0.1/24"} {
		if _, err := New(Options{LeaseFile: "f", Address: netip.MustParsePrefix(a)}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", a, err)
		}
	}
	o := options(t, DefaultAddress)
	own := bridgeMAC(o)
	good := Port{VM: "a", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	for name, change := range map[string]func(*Port){
		"no id":                  func(p *Port) { p.VM = "" },
		"a path":                 func(p *Port) { p.VM = "../x" },
		"a long id":              func(p *Port) { p.VM = strings.Repeat("a", 129) },
		"no MAC":                 func(p *Port) { p.MAC = nil },
		"a zero MAC":             func(p *Port) { p.MAC = make(net.HardwareAddr, 6) },
		"a multicast MAC":        func(p *Port) { p.MAC = net.HardwareAddr{3, 0, 0, 0, 0, 1} },
		"the bridge's MAC":       func(p *Port) { p.MAC = own[:] },
		"a bridge with a slash":  func(p *Port) { p.Bridge = "a/b" },
		"a tap for a bridge":     func(p *Port) { p.Bridge = o.tapName("a") },
		"a long bridge":          func(p *Port) { p.Bridge = "a234567890123456" },
		"IPv6 on another bridge": func(p *Port) { p.Bridge, p.IP = "lan0", netip.MustParseAddr("fd00::1") },
	} {
		p := good
		change(&p)
		if _, err := o.lease(p); !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good.Hostname = "not_a_host name"
	if l, err := o.lease(good); err != nil || l.Hostname != "" || l.Bridge != DefaultBridge {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestTapsHaveNamesThatFitAndDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range 1000 {
		name := Options{}.tapName(fmt.Sprint("0198c3b4-aaaa-7000-8000-", i))
		if seen[name] || len(name) != maxName || !isDevice(name) {
			t.Fatal(name)
		}
		seen[name] = true
	}
}
