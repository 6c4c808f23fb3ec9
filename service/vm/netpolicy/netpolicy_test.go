package netpolicy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
)

// parse reads a network policy that must be valid.
func parse(t testing.TB, text string) netpolicy.Cilium {
	t.Helper()
	c, err := netpolicy.ParseCilium(decode(t, text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return document
}

// policy returns the text of a network policy with a spec.
func policy(name, spec string) string {
	return `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
}

func vm(id, tenant, address string, labels ...string) netpolicy.VM {
	out := netpolicy.VM{ID: id, Name: id, Tenant: tenant, Labels: map[string]string{}, Addresses: netpolicy.Addresses([]string{address})}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		out.Labels[key] = value
	}
	return out
}

// show returns a direction in one line per rule.
func show(d netpolicy.Direction) string {
	lines := []string{d.Default}
	for _, r := range d.Rules {
		line := r.Name + " " + r.Action
		for _, p := range r.Peers {
			line += " " + p.CIDR + p.FQDN
			if len(p.Except) > 0 {
				line += "-" + strings.Join(p.Except, "-")
			}
		}
		for _, p := range r.Ports {
			line += fmt.Sprintf(" %s:%d-%d", p.Protocol, p.Port, p.EndPort)
			if p.ICMPType != nil {
				line += fmt.Sprintf(",%d", *p.ICMPType)
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestWhatAppliesToAVM(t *testing.T) {
	t.Parallel()
	hosts := []netip.Prefix{netip.MustParsePrefix("10.87.0.1/32")}
	db := vm("db", "acme", "10.87.0.2", "role=db", "tenant=acme")
	web := vm("web", "acme", "10.87.0.3", "role=web", "tenant=acme")
	other := vm("other", "beta", "10.87.0.4", "role=web", "tenant=beta")
	all := []netpolicy.VM{db, web, other}
	for _, c := range []struct {
		name, spec      string
		ingress, egress string
	}{
		{"endpoints and ports", `{"endpointSelector":{"matchLabels":{"role":"db"}},"ingress":[{"fromEndpoints":[{"matchLabels":{"any:role":"web"}}],
			"toPorts":[{"ports":[{"port":"5432","protocol":"TCP"},{"port":"53","endPort":60}]}]}]}`,
			"deny\ncnp/p/ingress/0 allow 10.87.0.3/32 tcp:5432-0 tcp:53-60 udp:53-60 sctp:53-60", "allow"},
		{"every endpoint of the tenant, and no other's", `{"endpointSelector":{},"ingress":[{"fromEndpoints":[{}]}]}`,
			"deny\ncnp/p/ingress/0 allow 10.87.0.3/32", "allow"},
		{"nobody", `{"endpointSelector":{},"ingress":[{"fromEndpoints":[{"matchLabels":{"role":"none"}}]}]}`, "deny", "allow"},
		{"an empty list is nobody", `{"endpointSelector":{},"ingress":[{"fromEndpoints":[]}],"egress":[{"toFQDNs":[]}]}`, "deny", "deny"},
		{"another tenant's labels are nobody", `{"endpointSelector":{},"ingress":[{"fromEndpoints":[{"matchLabels":{"tenant":"beta"}}]}]}`, "deny", "allow"},
		{"an empty rule denies", `{"endpointSelector":{},"ingress":[{}],"egress":[{}]}`, "deny", "deny"},
		{"ports of everybody", `{"endpointSelector":{},"egress":[{"toPorts":[{"ports":[{"port":"443","protocol":"TCP"}]}]}]}`,
			"allow", "deny\ncnp/p/egress/0 allow tcp:443-0"},
		{"networks", `{"endpointSelector":{},"egress":[{"toCIDR":["10.0.0.0/8"]},{"toCIDRSet":[{"cidr":"192.168.0.0/16","except":["192.168.1.0/24"]}]}]}`,
			"allow", "deny\ncnp/p/egress/0 allow 10.0.0.0/8\ncnp/p/egress/1 allow 192.168.0.0/16-192.168.1.0/24"},
		{"world", `{"endpointSelector":{},"egress":[{"toEntities":["world"]}]}`,
			"allow", "deny\ncnp/p/egress/0 allow 0.0.0.0/0-10.87.0.1/32-10.87.0.2/32-10.87.0.3/32 ::/0"},
		{"all", `{"endpointSelector":{},"egress":[{"toEntities":["all"]}]}`, "allow", "deny\ncnp/p/egress/0 allow"},
		{"host and cluster", `{"endpointSelector":{},"ingress":[{"fromEntities":["host","cluster"]}]}`,
			"deny\ncnp/p/ingress/0 allow 10.87.0.1/32 10.87.0.3/32", "allow"},
		{"names", `{"endpointSelector":{},"egress":[{"toFQDNs":[{"matchName":"API.example.com."},{"matchPattern":"*.example.org"}]}]}`,
			"allow", "deny\ncnp/p/egress/0 allow api.example.com *.example.org"},
		{"icmp", `{"endpointSelector":{},"ingress":[{"icmps":[{"fields":[{"type":"EchoRequest"},{"family":"IPv6","type":128}]}]}]}`,
			"deny\ncnp/p/ingress/0 allow icmp:0-0,8 icmpv6:0-0,128", "allow"},
		{"a deny", `{"endpointSelector":{},"ingressDeny":[{"fromCIDR":["10.9.0.0/16"]}],"enableDefaultDeny":{"ingress":false}}`,
			"allow\ncnp/p/ingressDeny/0 deny 10.9.0.0/16", "allow"},
		{"a default by word", `{"endpointSelector":{},"enableDefaultDeny":{"egress":true}}`, "allow", "deny"},
		{"expressions", `{"endpointSelector":{"matchExpressions":[{"key":"role","operator":"In","values":["db","x"]},{"key":"y","operator":"DoesNotExist"},
			{"key":"role","operator":"NotIn","values":["web"]},{"key":"tenant","operator":"Exists"}]},"egress":[{}]}`, "allow", "deny"},
		{"port 0 is every port", `{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"0","protocol":"UDP"}]}]}]}`,
			"deny\ncnp/p/ingress/0 allow udp:0-0", "allow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := netpolicy.NewWorld(netpolicy.Inputs{
				VMs: all, Hosts: hosts, Cilium: []netpolicy.TenantCilium{{Tenant: "acme", Cilium: parse(t, policy("p", c.spec))}},
			})
			got, err := w.Effective("db")
			if err != nil || got.Document == nil || show(got.Document.Ingress) != c.ingress || show(got.Document.Egress) != c.egress {
				t.Errorf("%v\ngot  %s\n  /  %s\nwant %s\n  /  %s", err, show(got.Document.Ingress), show(got.Document.Egress), c.ingress, c.egress)
			}
			if none, err := w.Effective("other"); err != nil || none.Document != nil {
				t.Errorf("another tenant's VM has %+v, %v", none.Document, err)
			}
		})
	}
}

func TestGroupsAndAPolicyOfAVM(t *testing.T) {
	t.Parallel()
	db, web, beta := vm("db", "acme", "10.0.0.2"), vm("web", "acme", "10.0.0.3"), vm("beta", "beta", "10.0.0.4")
	web.Policy = &netpolicy.Policy{Groups: []string{"web"}}
	beta.Policy = &netpolicy.Policy{Groups: []string{"web"}}
	db.Policy = &netpolicy.Policy{
		Groups: []string{"db", "base"}, Egress: netpolicy.OwnDirection{Default: netpolicy.Deny},
		Ingress: netpolicy.OwnDirection{Rules: []netpolicy.OwnRule{{Action: netpolicy.Deny, CIDR: "10.0.0.3/32", Protocol: "tcp"}}},
	}
	in := netpolicy.Inputs{VMs: []netpolicy.VM{db, web, beta}, Groups: []netpolicy.TenantGroup{
		{Tenant: "acme", Group: netpolicy.Group{Name: "db", Rules: []netpolicy.OwnRule{
			{Direction: "ingress", Group: "web", Protocol: "tcp", Ports: []netpolicy.PortRange{{Port: 5432}}},
		}}},
		{Tenant: netpolicy.EveryTenant, Group: netpolicy.Group{Name: "base", Rules: []netpolicy.OwnRule{{Direction: "egress", Entity: "all", Protocol: "udp"}}}},
		{Tenant: netpolicy.EveryTenant, Group: netpolicy.Group{Name: "db", Rules: []netpolicy.OwnRule{{Direction: "ingress", Entity: "all"}}}},
		{Tenant: netpolicy.EveryTenant, Group: netpolicy.Group{Name: "web"}},
	}}
	got, err := netpolicy.NewWorld(in).Effective("db")
	if err != nil {
		t.Fatal(err)
	}
	want := "deny\ngroup/db/0 allow 10.0.0.3/32 tcp:5432-0\nvm/ingress/0 deny 10.0.0.3/32 tcp:0-0"
	if show(got.Document.Ingress) != want || show(got.Document.Egress) != "deny\ngroup/all:base/0 allow udp:0-0" {
		t.Errorf("%s\n%s", show(got.Document.Ingress), show(got.Document.Egress))
	}
	in.Groups = nil // nothing is allowed in the place of what is not there
	if got, err = netpolicy.NewWorld(in).Effective("web"); err != nil || show(got.Document.Ingress) != "deny" || show(got.Document.Egress) != "deny" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestAnAddressThatAnotherVMOfTheHostHasAllowsNothing(t *testing.T) {
	t.Parallel()
	db, web, foreign := vm("db", "acme", "10.0.0.2"), vm("web", "acme", "10.0.0.3"), vm("foreign", "beta", "10.0.0.3")
	db.Node, web.Node, foreign.Node = "a", "b", "a"
	cilium := func(section string) string {
		w := netpolicy.NewWorld(netpolicy.Inputs{VMs: []netpolicy.VM{db, web, foreign}, Cilium: []netpolicy.TenantCilium{
			{Tenant: "acme", Cilium: parse(t, policy("p", `{"endpointSelector":{},"`+section+`":[{"fromEndpoints":[{}]}]}`))},
		}})
		got, err := w.Effective("db")
		if err != nil {
			t.Fatal(err)
		}
		return show(got.Document.Ingress)
	}
	if got := cilium("ingress"); got != "deny" {
		t.Error(got)
	}
	if got := cilium("ingressDeny"); got != "deny\ncnp/p/ingressDeny/0 deny 10.0.0.3/32" {
		t.Error(got)
	}
}

func TestLongListsAreCutAndTooManyRulesAreRefusedByTheLimit(t *testing.T) {
	t.Parallel()
	in := netpolicy.Inputs{VMs: []netpolicy.VM{vm("db", "acme", "10.0.0.2")}}
	for i := range 600 {
		in.VMs = append(in.VMs, vm(fmt.Sprint("v", i), "acme", fmt.Sprintf("10.1.%d.%d", i/200, i%200+1)))
	}
	in.Cilium = []netpolicy.TenantCilium{{Tenant: "acme", Cilium: parse(t, policy("p",
		`{"endpointSelector":{},"ingress":[{"fromEndpoints":[{}]}],"egress":[{"toEntities":["world"]}]}`))}}
	got, err := netpolicy.NewWorld(in).Effective("db")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range got.Document.Ingress.Rules {
		n += len(r.Peers)
		if len(r.Peers) > 256 {
			t.Errorf("%s has %d peers", r.Name, len(r.Peers))
		}
	}
	if n != 600 || len(got.Document.Ingress.Rules) != 3 || got.Document.Ingress.Rules[2].Name != "cnp/p/ingress/0/part/2" {
		t.Errorf("%d peers in %d rules", n, len(got.Document.Ingress.Rules))
	}
	d := got.Document
	for _, c := range []struct {
		to      string
		allowed bool
	}{{"10.1.0.1", false}, {"10.1.2.200", false}, {"10.0.0.2", false}, {"10.1.3.1", true}, {"8.8.8.8", true}, {"2001:db8::1", true}, {"0.0.0.0", true}, {"255.255.255.255", true}} {
		if allows(d.Egress, netip.MustParseAddr(c.to), "tcp", 1) != c.allowed {
			t.Errorf("%s: want allowed %v", c.to, c.allowed)
		}
	}
	var rules []string
	for range 1001 {
		rules = append(rules, `{"fromCIDR":["10.0.0.0/8"]}`)
	}
	half := strings.Join(rules[:501], ",")
	in.Cilium[0].Cilium = parse(t, policy("p", `{"endpointSelector":{},"ingress":[`+half+`],"ingressDeny":[`+half+`]}`))
	if _, err := netpolicy.NewWorld(in).Effective("db"); fault.From(err).Code != netpolicy.CodeTooManyRules || !strings.Contains(err.Error(), "1000 rules") {
		t.Error(err)
	}
}

// allows decides about a packet as the daemon does.
func allows(d netpolicy.Direction, address netip.Addr, protocol string, port int) bool {
	verdict := d.Default
	for _, r := range d.Rules {
		if !matches(r, address, protocol, port) {
			continue
		}
		if r.Action == netpolicy.Deny {
			return false
		}
		verdict = netpolicy.Allow
	}
	return verdict == netpolicy.Allow
}

func matches(r netpolicy.Rule, address netip.Addr, protocol string, port int) bool {
	peer := len(r.Peers) == 0
	for _, p := range r.Peers {
		if p.CIDR == "" {
			continue
		}
		in := netip.MustParsePrefix(p.CIDR).Contains(address)
		for _, e := range p.Except {
			in = in && !netip.MustParsePrefix(e).Contains(address)
		}
		peer = peer || in
	}
	to := len(r.Ports) == 0
	for _, p := range r.Ports {
		to = to || p.Protocol == protocol && (p.Port == 0 || port >= p.Port && port <= max(p.Port, p.EndPort))
	}
	return peer && to
}

// random returns inputs of a few tenants.
func random(t testing.TB, r *rand.Rand) netpolicy.Inputs {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	var in netpolicy.Inputs
	in.Hosts = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}
	ownRule := func() netpolicy.OwnRule {
		o := netpolicy.OwnRule{Direction: pick("ingress", "egress"), Action: pick("", "allow", "deny")}
		switch r.IntN(3) {
		case 0:
			o.CIDR = pick("10.0.0.0/8", "10.0.0.0/29", "0.0.0.0/0")
		case 1:
			o.Group = pick("a", "b")
		default:
			o.Entity = pick("all", "world", "host", "cluster")
		}
		if o.Protocol = pick("", "tcp", "udp"); o.Protocol != "" && r.IntN(2) == 0 {
			o.Ports = []netpolicy.PortRange{{Port: 1 + r.IntN(3)}}
		}
		return o
	}
	for i := range 2 + r.IntN(8) {
		v := vm(fmt.Sprint("v", i), pick("acme", "beta"), fmt.Sprintf("10.0.0.%d", 2+r.IntN(9)), "role="+pick("a", "b"))
		v.Node = pick("x", "y")
		if r.IntN(2) == 0 {
			v.Policy = &netpolicy.Policy{Groups: []string{"a", "b"}[:r.IntN(3)]}
			for range r.IntN(3) {
				o := ownRule()
				d := &v.Policy.Ingress
				if o.Direction == "egress" {
					d = &v.Policy.Egress
				}
				d.Default = pick("", "", "allow", "deny")
				d.Rules = append(d.Rules, o)
			}
		}
		in.VMs = append(in.VMs, v)
	}
	for _, name := range []string{"a", "b"} {
		g := netpolicy.TenantGroup{Tenant: pick("acme", "*"), Group: netpolicy.Group{Name: name}}
		for range r.IntN(3) {
			g.Rules = append(g.Rules, ownRule())
		}
		in.Groups = append(in.Groups, g)
	}
	for i := range r.IntN(4) {
		spec := fmt.Sprintf(`{"endpointSelector":{"matchLabels":{"role":%q}},"%s":[{"%s":[{"matchLabels":{"role":%q}}]}]}`, pick("a", "b"),
			pick("ingress", "ingressDeny"), "fromEndpoints", pick("a", "b"))
		in.Cilium = append(in.Cilium, netpolicy.TenantCilium{Tenant: pick("acme", "beta", "*"), Cilium: parse(t, policy(fmt.Sprint("p", i), spec))})
	}
	return in
}

func shuffled(in netpolicy.Inputs, r *rand.Rand) netpolicy.Inputs {
	in.VMs, in.Groups, in.Cilium = slices.Clone(in.VMs), slices.Clone(in.Groups), slices.Clone(in.Cilium)
	r.Shuffle(len(in.VMs), func(i, j int) { in.VMs[i], in.VMs[j] = in.VMs[j], in.VMs[i] })
	r.Shuffle(len(in.Groups), func(i, j int) { in.Groups[i], in.Groups[j] = in.Groups[j], in.Groups[i] })
	r.Shuffle(len(in.Cilium), func(i, j int) { in.Cilium[i], in.Cilium[j] = in.Cilium[j], in.Cilium[i] })
	for i := range in.VMs {
		if p := in.VMs[i].Policy; p != nil {
			copied := *p
			copied.Groups = slices.Clone(p.Groups)
			slices.Reverse(copied.Groups)
			in.VMs[i].Policy = &copied
		}
	}
	return in
}

func TestTheOrderOfInputsNeverMattersAndADenyOnlyMakesStricter(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := random(t, r)
		stricter := in
		stricter.Cilium = append(slices.Clone(in.Cilium), netpolicy.TenantCilium{Tenant: "*", Cilium: parse(t, policy("deny",
			`{"endpointSelector":{},"ingressDeny":[{"fromCIDR":["10.0.0.4/30"]}],"egressDeny":[{"toPorts":[{"ports":[{"port":"2","protocol":"TCP"}]}]}]}`))})
		w, other, denied := netpolicy.NewWorld(in), netpolicy.NewWorld(shuffled(in, r)), netpolicy.NewWorld(stricter)
		for _, v := range in.VMs {
			a, err := w.Effective(v.ID)
			if err != nil {
				t.Fatal(err)
			}
			b, err := other.Effective(v.ID)
			if err != nil || a.Document.Hash() != b.Document.Hash() {
				t.Fatalf("seed %d, %s: another order gives %+v, not %+v (%v)", seed, v.ID, b.Document, a.Document, err)
			}
			c, err := denied.Effective(v.ID)
			if err != nil {
				t.Fatal(err)
			}
			if a.Document == nil {
				continue
			}
			for i := range 16 {
				address := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
				for _, protocol := range []string{"tcp", "udp", "sctp"} {
					for port := 1; port < 4; port++ {
						in := allows(c.Document.Ingress, address, protocol, port) && !allows(a.Document.Ingress, address, protocol, port)
						out := allows(c.Document.Egress, address, protocol, port) && !allows(a.Document.Egress, address, protocol, port)
						if in || out {
							t.Fatalf("seed %d, %s: a deny allows %s %s %d", seed, v.ID, address, protocol, port)
						}
					}
				}
			}
		}
	}
}
