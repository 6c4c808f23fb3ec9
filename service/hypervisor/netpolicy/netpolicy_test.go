package netpolicy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

func number(n int) *int { return &n }

// random makes a policy of few addresses and ports, so that rules overlap.
func random(r *rand.Rand) *Policy {
	prefix := func(within netip.Prefix) netip.Prefix {
		if within.IsValid() {
			bits := within.Bits() + r.IntN(within.Addr().BitLen()-within.Bits()+1)
			b := lastOf(within).AsSlice()
			b[len(b)-1] ^= byte(r.IntN(4))
			a, _ := netip.AddrFromSlice(b)
			if p := netip.PrefixFrom(a, bits).Masked(); within.Contains(p.Addr()) {
				return p
			}
			return within
		}
		switch r.IntN(5) {
		case 0:
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{}), 0)
		case 1:
			return netip.MustParsePrefix("2001:db8::/126")
		case 2:
			return netip.MustParsePrefix([]string{"::/0", "255.255.255.252/30", "ffff::/16", "0.0.0.0/32"}[r.IntN(4)])
		}
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(8))}), 28+r.IntN(5)).Masked()
	}
	direction := func() Direction {
		d := Direction{Default: []Action{Allow, Deny}[r.IntN(2)]}
		for i := range r.IntN(9) {
			rule := Rule{Name: fmt.Sprint("r", i), Action: []Action{Allow, Deny}[r.IntN(2)]}
			for range r.IntN(3) {
				p := prefix(netip.Prefix{})
				peer := Peer{CIDR: p.String()}
				for range r.IntN(3) {
					peer.Except = append(peer.Except, prefix(p).String())
				}
				rule.Peers = append(rule.Peers, peer)
			}
			for range r.IntN(4) {
				port := Port{Protocol: []string{"tcp", "udp", "sctp", "icmp", "icmpv6"}[r.IntN(5)]}
				switch {
				case r.IntN(4) == 0:
				case HasPorts(protocols[port.Protocol]):
					port.Port = []int{1, 2, 3, 5, 65534, 65535}[r.IntN(6)]
					if r.IntN(2) == 0 {
						port.EndPort = min(65535, port.Port+r.IntN(4))
					}
				default:
					port.ICMPType = number(r.IntN(3))
					if r.IntN(2) == 0 {
						port.ICMPCode = number(r.IntN(3))
					}
				}
				rule.Ports = append(rule.Ports, port)
			}
			d.Rules = append(d.Rules, rule)
		}
		return d
	}
	return &Policy{Ingress: direction(), Egress: direction()}
}

// agree compares tables with the rules for all packets near what rules tell apart.
func agree(t *testing.T, d *Direction, tables *Tables) {
	t.Helper()
	peers := []netip.Addr{netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("::"), netip.MustParseAddr("::1")}
	for _, intervals := range [][]Interval{tables.IPv4, tables.IPv6} {
		for i, v := range intervals {
			peers = append(peers, v.From, v.To)
			if i > 0 && intervals[i-1].To.Next() != v.From {
				t.Fatalf("a gap or an overlap between %v and %v", intervals[i-1], v)
			}
		}
	}
	for last := byte(0); last < 20; last++ {
		peers = append(peers, netip.AddrFrom4([4]byte{10, 0, 0, last}))
	}
	keys := []uint16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 255, 256, 257, 258, 512, 513, 767, 768, 65533, 65534, 65535}
	for _, peer := range peers {
		for _, protocol := range []uint8{0, 1, 2, 6, 7, 17, 47, 58, 132, 133, 255} {
			for _, key := range keys {
				p := Packet{Peer: peer, Protocol: protocol, Key: key}
				wantAction, wantRule := d.Judge(p)
				if action, rule := tables.Judge(p); action != wantAction || rule != wantRule {
					t.Fatalf("%+v: the tables say %s by %d, the rules say %s by %d\n%+v",
						p, action, rule, wantAction, wantRule, d.Rules)
				}
			}
		}
	}
	for i, a := range tables.Entries {
		for _, b := range tables.Entries[:i] {
			if a.FromClass <= b.ToClass && b.FromClass <= a.ToClass && a.FromProtocol <= b.ToProtocol &&
				b.FromProtocol <= a.ToProtocol && a.FromKey <= b.ToKey && b.FromKey <= a.ToKey {
				t.Fatalf("%+v and %+v overlap", a, b)
			}
		}
	}
}

func TestTablesAndRulesAgreeAboutEveryPacket(t *testing.T) {
	t.Parallel()
	rounds := 100
	if testing.Short() {
		rounds = 30
	}
	for seed := range rounds {
		p := random(rand.New(rand.NewPCG(1, uint64(seed)))) //nolint:gosec // a test
		c, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		agree(t, &p.Ingress, &c.Ingress)
		agree(t, &p.Egress, &c.Egress)
	}
}

func FuzzTablesAndRulesAgree(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		p := random(rand.New(rand.NewPCG(a, b))) //nolint:gosec // a test
		c, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		agree(t, &p.Ingress, &c.Ingress)
		agree(t, &p.Egress, &c.Egress)
	})
}

func TestDenyBeatsAllowWhateverTheOrder(t *testing.T) {
	t.Parallel()
	web := []Port{{Protocol: "tcp", Port: 443}}
	d := Direction{Default: Allow, Rules: []Rule{
		{Name: "all", Action: Allow},
		{Name: "web", Action: Allow, Ports: web},
		{Name: "no-web", Action: Deny, Ports: web},
		{Name: "never-web", Action: Deny, Ports: web},
	}}
	peer := netip.MustParseAddr("192.0.2.1")
	if action, rule := d.Judge(Packet{peer, 6, 443}); action != Deny || rule != 2 {
		t.Errorf("%s by rule %d", action, rule)
	}
	if action, rule := d.Judge(Packet{peer, 6, 80}); action != Allow || rule != 0 {
		t.Errorf("%s by rule %d", action, rule)
	}
}

func TestDenyAllDeniesAll(t *testing.T) {
	t.Parallel()
	d := Direction{Default: Deny}
	c := DenyAll()
	agree(t, &d, &c.Ingress)
	agree(t, &d, &c.Egress)
}

func TestWhatIsNotValidIsRefusedByTheNameOfItsField(t *testing.T) {
	t.Parallel()
	many := make([]Rule, MaxRules+1)
	for i := range many {
		many[i] = Rule{Name: fmt.Sprint(i), Action: Allow}
	}
	for field, r := range map[string]Rule{
		"name":          {Name: "two words", Action: Allow},
		"action":        {Name: "a", Action: "drop"},
		"peers[0].cidr": {Name: "a", Action: Allow, Peers: []Peer{{}}},
		"peers[0].fqdn": {Name: "a", Action: Allow, Peers: []Peer{{FQDN: "example.com"}}},
		"peers":         {Name: "a", Action: Allow, Peers: make([]Peer, maxPeers+1)},
		"ports":         {Name: "a", Action: Allow, Ports: make([]Port, maxPorts+1)},
		"ports[0].port": {Name: "a", Action: Allow, Ports: []Port{{Protocol: "icmp", Port: 1}}},
		"ports[0].end_port": {Name: "a", Action: Allow, Ports: []Port{
			{Protocol: "tcp", Port: 9, EndPort: 8},
		}},
		"ports[0].protocol":  {Name: "a", Action: Allow, Ports: []Port{{Protocol: "gre"}}},
		"ports[0].icmp_type": {Name: "a", Action: Allow, Ports: []Port{{Protocol: "tcp", ICMPType: number(1)}}},
		"ports[0].icmp_code": {Name: "a", Action: Allow, Ports: []Port{{Protocol: "icmp", ICMPCode: number(1)}}},
		"peers[0].except[0]": {Name: "a", Action: Allow, Peers: []Peer{
			{CIDR: "10.0.0.0/8", Except: []string{"11.0.0.0/16"}},
		}},
		"peers[1].cidr": {Name: "a", Action: Allow, Peers: []Peer{{CIDR: "10.0.0.0/8"}, {CIDR: "::ffff:10.0.0.0/104"}}},
	} {
		p := AllowAll()
		p.Egress.Rules = []Rule{r}
		_, err := Compile(&p)
		if f := fault.From(err); !fault.Is(err, fault.Invalid) || f.Field != "policy.egress.rules[0]."+field {
			t.Errorf("%s: %v, field %q", field, err, f.Field)
		}
	}
	p := AllowAll()
	p.Ingress.Rules = many
	if _, err := Compile(&p); fault.From(err).Field != "policy" {
		t.Errorf("too many rules: %v", err)
	}
	p.Ingress.Rules = []Rule{{Name: "a", Action: Allow}, {Name: "a", Action: Deny}}
	if _, err := Compile(&p); fault.From(err).Field != "policy.ingress.rules[1].name" {
		t.Errorf("two of one name: %v", err)
	}
}

func TestTheSizeOfTablesAndTheTimeToMakeThemAreBounded(t *testing.T) {
	t.Parallel()
	hostile := AllowAll()
	for i := range MaxRules {
		r := Rule{Name: fmt.Sprint(i), Action: Deny}
		for k := range 16 {
			r.Peers = append(r.Peers, Peer{CIDR: fmt.Sprintf("10.%d.%d.%d/%d", k, i/256, i%256, 9+i%20)})
		}
		for k := range maxPorts {
			r.Ports = append(r.Ports, Port{Protocol: "tcp", Port: 1 + i + 900*k, EndPort: 1000 + i + 900*k})
		}
		hostile.Egress.Rules = append(hostile.Egress.Rules, r)
	}
	start := time.Now()
	_, err := Compile(&hostile)
	if f := fault.From(err); !fault.Is(err, fault.Invalid) || !strings.HasPrefix(f.Field, "policy.egress.rules") {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}

	usual := AllowAll()
	for i := range MaxRules {
		usual.Ingress.Rules = append(usual.Ingress.Rules, Rule{
			Name: fmt.Sprint(i), Action: Allow, Peers: []Peer{{CIDR: fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)}},
			Ports: []Port{{Protocol: "tcp", Port: i + 1}},
		})
	}
	c, err := Compile(&usual)
	if err != nil || len(c.Ingress.Entries) != MaxRules {
		t.Errorf("%v, %d entries", err, len(c.Ingress.Entries))
	}
}
