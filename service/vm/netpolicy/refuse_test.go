package netpolicy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
)

func TestWhatIsNotSupportedIsRefusedWithItsPath(t *testing.T) {
	t.Parallel()
	for spec, path := range map[string]string{
		`{}`: "spec.endpointSelector",
		`{"endpointSelector":{},"nodeSelector":{}}`:                                                            "spec.nodeSelector",
		`{"endpointSelector":{"matchFields":{}}}`:                                                              "spec.endpointSelector.matchFields",
		`{"endpointSelector":{"matchLabels":{"k8s:app":"x"}}}`:                                                 "spec.endpointSelector.matchLabels.k8s:app",
		`{"endpointSelector":{"matchLabels":{"app":1}}}`:                                                       "spec.endpointSelector.matchLabels.app",
		`{"endpointSelector":{"matchLabels":{"a":"1","any:a":"2"}}}`:                                           "spec.endpointSelector.matchLabels.any:a",
		`{"endpointSelector":{"matchExpressions":[{"key":"a","operator":"Gt"}]}}`:                              "spec.endpointSelector.matchExpressions[0].operator",
		`{"endpointSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`:                              "spec.endpointSelector.matchExpressions[0].values",
		`{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"80"}],"rules":{"http":[{}]}}]}]}`:    "spec.ingress[0].toPorts[0].rules",
		`{"endpointSelector":{},"ingress":[{"fromServices":[]}]}`:                                              "spec.ingress[0].fromServices",
		`{"endpointSelector":{},"ingress":[{"toFQDNs":[]}]}`:                                                   "spec.ingress[0].toFQDNs",
		`{"endpointSelector":{},"egressDeny":[{"toFQDNs":[]}]}`:                                                "spec.egressDeny[0].toFQDNs",
		`{"endpointSelector":{},"ingress":[{},{"fromEntities":["kube-apiserver"]}]}`:                           "spec.ingress[1].fromEntities[0]",
		`{"endpointSelector":{},"ingress":[{"fromCIDR":["10.0.0.1/8"]}]}`:                                      "spec.ingress[0].fromCIDR[0]",
		`{"endpointSelector":{},"ingress":[{"fromCIDR":["::ffff:10.0.0.0/104"]}]}`:                             "spec.ingress[0].fromCIDR[0]",
		`{"endpointSelector":{},"ingress":[{"fromCIDRSet":[{"cidr":"10.0.0.0/8","except":["11.0.0.0/16"]}]}]}`: "spec.ingress[0].fromCIDRSet[0].except[0]",
		`{"endpointSelector":{},"ingress":[{"fromCIDRSet":[{"cidrGroupRef":"x"}]}]}`:                           "spec.ingress[0].fromCIDRSet[0].cidrGroupRef",
		`{"endpointSelector":{},"ingress":[{"fromCIDR":[],"fromEndpoints":[]}]}`:                               "spec.ingress[0]",
		`{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"http"}]}]}]}`:                        "spec.ingress[0].toPorts[0].ports[0].port",
		`{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":80}]}]}]}`:                            "spec.ingress[0].toPorts[0].ports[0].port",
		`{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"080"}]}]}]}`:                         "spec.ingress[0].toPorts[0].ports[0].port",
		`{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"80","endPort":79}]}]}]}`:             "spec.ingress[0].toPorts[0].ports[0].endPort",
		`{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"80","protocol":"GRE"}]}]}]}`:         "spec.ingress[0].toPorts[0].ports[0].protocol",
		`{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[]}]}]}`:                                       "spec.ingress[0].toPorts[0].ports",
		`{"endpointSelector":{},"ingress":[{"toPorts":[{"ports":[{"port":"1"}]}],"icmps":[{"fields":[{}]}]}]}`: "spec.ingress[0].icmps",
		`{"endpointSelector":{},"ingress":[{"icmps":[{"fields":[{"type":256}]}]}]}`:                            "spec.ingress[0].icmps[0].fields[0].type",
		`{"endpointSelector":{},"egress":[{"toFQDNs":[{"matchPattern":"*"}]}]}`:                                "spec.egress[0].toFQDNs[0].matchPattern",
		`{"endpointSelector":{},"egress":[{"toFQDNs":[{"matchPattern":"a*.example.com"}]}]}`:                   "spec.egress[0].toFQDNs[0].matchPattern",
		`{"endpointSelector":{},"egress":[{"toFQDNs":[{"matchName":"*.example.com"}]}]}`:                       "spec.egress[0].toFQDNs[0].matchName",
		`{"endpointSelector":{},"enableDefaultDeny":{"ingress":"yes"}}`:                                        "spec.enableDefaultDeny.ingress",
		`{"endpointSelector":{},"ingress":{}}`:                                                                 "spec.ingress",
		`[]`:                                                                                                   "spec",
	} {
		_, err := netpolicy.ParseCilium(decode(t, policy("p", spec)))
		if f := fault.From(err); f == nil || f.Kind != fault.Invalid || f.Field != path || !strings.HasPrefix(f.Message, path+": ") {
			t.Errorf("%s: %v, want %s", spec, err, path)
		}
	}
	for document, path := range map[string]string{
		`{}`: "apiVersion",
		`{"apiVersion":"cilium.io/v2","kind":"NetworkPolicy","metadata":{"name":"p"}}`:                                 "kind",
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"../p"},"spec":{}}`:              "metadata.name",
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p","namespace":"x"},"spec":{}}`: "metadata.namespace",
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p"}}`:                           "spec",
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p"},"specs":[{}]}`:              "specs[0].endpointSelector",
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p"},"spec":{},"status":{}}`:     "status",
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"p"},"spec":{},"a\nb":{}}`:       `"a\nb"`,
	} {
		if _, err := netpolicy.ParseCilium(decode(t, document)); fault.From(err).Field != path {
			t.Errorf("%s: %v, want %s", document, err, path)
		}
	}
}

func TestRulesOfGroupsAndPoliciesAreRefusedByTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	number := func(n int) *int { return &n }
	for _, c := range []struct {
		rule netpolicy.OwnRule
		path string
	}{
		{netpolicy.OwnRule{Direction: "in", Entity: "all"}, "rules[0].direction"},
		{netpolicy.OwnRule{Action: "drop", Entity: "all"}, "rules[0].action"},
		{netpolicy.OwnRule{}, "rules[0]"},
		{netpolicy.OwnRule{Entity: "all", CIDR: "10.0.0.0/8"}, "rules[0]"},
		{netpolicy.OwnRule{Entity: "moon"}, "rules[0].entity"},
		{netpolicy.OwnRule{CIDR: "10.0.0.0"}, "rules[0].cidr"},
		{netpolicy.OwnRule{Entity: "all", Except: []string{"10.0.0.0/8"}}, "rules[0].except"},
		{netpolicy.OwnRule{Entity: "all", Protocol: "gre"}, "rules[0].protocol"},
		{netpolicy.OwnRule{Entity: "all", Ports: []netpolicy.PortRange{{Port: 1}}}, "rules[0].ports"},
		{netpolicy.OwnRule{Entity: "all", Protocol: "icmp", Ports: []netpolicy.PortRange{{Port: 1}}}, "rules[0].ports"},
		{netpolicy.OwnRule{Entity: "all", Protocol: "tcp", Ports: []netpolicy.PortRange{{Port: 0}}}, "rules[0].ports[0].port"},
		{netpolicy.OwnRule{Entity: "all", Protocol: "tcp", Ports: []netpolicy.PortRange{{Port: 2, EndPort: 1}}}, "rules[0].ports[0].end_port"},
		{netpolicy.OwnRule{Entity: "all", Protocol: "tcp", ICMPType: number(1)}, "rules[0].icmp_type"},
		{netpolicy.OwnRule{Entity: "all", Protocol: "icmp", ICMPCode: number(1)}, "rules[0].icmp_code"},
		{netpolicy.OwnRule{Entity: "all", Protocol: "icmp", ICMPType: number(256)}, "rules[0].icmp_type"},
		{netpolicy.OwnRule{Entity: "all", Description: "a\nb"}, "rules[0].description"},
	} {
		if c.rule.Direction == "" {
			c.rule.Direction = "ingress"
		}
		g := netpolicy.Group{Name: "g", Rules: []netpolicy.OwnRule{c.rule}}
		if err := g.Check(); fault.From(err).Field != c.path {
			t.Errorf("%+v: %v, want %s", c.rule, err, c.path)
		}
	}
	for _, p := range []netpolicy.Policy{
		{Groups: []string{"a", "a"}}, {Groups: []string{"a/b"}}, {Ingress: netpolicy.OwnDirection{Default: "maybe"}},
		{Ingress: netpolicy.OwnDirection{Rules: []netpolicy.OwnRule{{Direction: "egress", Entity: "all"}}}},
	} {
		if p.Check() == nil {
			t.Errorf("%+v is taken", p)
		}
	}
}

// FuzzParseCilium holds that no document makes the reader fail other than by refusing it, and that what
// it takes is within the daemon's limits.
func FuzzParseCilium(f *testing.F) {
	f.Add(policy("p", `{"endpointSelector":{"matchLabels":{"a":"b"}},"ingress":[{"fromEndpoints":[{}],"toPorts":[{"ports":[{"port":"80"}]}]}]}`))
	f.Add(policy("p", `{"endpointSelector":{},"egressDeny":[{"toCIDRSet":[{"cidr":"::/0","except":["::/1"]}]}],"enableDefaultDeny":{"egress":false}}`))
	f.Add(policy("p", `{"endpointSelector":null,"ingress":[null],"egress":[{"toFQDNs":[{"matchPattern":"*.a"}],"icmps":[{"fields":[{"type":1e99}]}]}]}`))
	f.Fuzz(func(t *testing.T, text string) {
		var document map[string]any
		if json.Unmarshal([]byte(text), &document) != nil {
			return
		}
		c, err := netpolicy.ParseCilium(document)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid || fault.From(err).Field == "" {
				t.Errorf("%s: %v", text, err)
			}
			return
		}
		got, err := netpolicy.NewWorld(netpolicy.Inputs{
			VMs: []netpolicy.VM{vm("a", "t", "10.0.0.2", "a=b"), vm("b", "t", "10.0.0.3")}, Cilium: []netpolicy.TenantCilium{{Tenant: "t", Cilium: c}},
		}).Effective("a")
		if err != nil || got.Document == nil {
			return
		}
		for _, d := range []netpolicy.Direction{got.Document.Ingress, got.Document.Egress} {
			names := map[string]bool{}
			for _, r := range d.Rules {
				if names[r.Name] || len(r.Name) > 128 || len(r.Peers) > 256 || len(r.Ports) > 64 {
					t.Errorf("%s: %s has %d peers and %d ports, twice: %v", text, r.Name, len(r.Peers), len(r.Ports), names[r.Name])
				}
				names[r.Name] = true
			}
		}
	})
}
