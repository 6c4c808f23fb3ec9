package netpolicy

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fields are the names of the parts of a rule in one direction.
type fields struct{ endpoints, cidr, cidrSet, entities, fqdns string }

var fieldsOf = map[string]fields{
	Ingress: {endpoints: "fromEndpoints", cidr: "fromCIDR", cidrSet: "fromCIDRSet", entities: "fromEntities"},
	Egress:  {endpoints: "toEndpoints", cidr: "toCIDR", cidrSet: "toCIDRSet", entities: "toEntities", fqdns: "toFQDNs"},
}

// rule reads a rule of a spec.
func (r *reader) rule(path string, value any, direction string, deny bool) rule {
	f := fieldsOf[direction]
	known := []string{f.endpoints, f.cidr, f.cidrSet, f.entities, "toPorts", "icmps"}
	if f.fqdns != "" && !deny {
		known = append(known, f.fqdns)
	}
	o := r.object(path, value, known...)
	out := rule{deny: deny}
	var kinds []string // of peers
	given := func(name string) bool {
		if o[name] == nil {
			return false
		}
		kinds = append(kinds, name)
		return true
	}
	if given(f.endpoints) {
		for i, v := range r.list(path+"."+f.endpoints, o[f.endpoints], maxInRule) {
			if v == nil {
				r.fail(at(path+"."+f.endpoints, i), "must be an object")
			}
			out.selectors = append(out.selectors, r.selector(at(path+"."+f.endpoints, i), v))
		}
	}
	if given(f.cidr) {
		for i, text := range r.texts(path+"."+f.cidr, o[f.cidr], maxInRule) {
			r.network(at(path+"."+f.cidr, i), text)
			out.networks = append(out.networks, Peer{CIDR: text})
		}
	}
	if given(f.cidrSet) {
		for i, v := range r.list(path+"."+f.cidrSet, o[f.cidrSet], maxInRule) {
			out.networks = append(out.networks, r.cidrSet(at(path+"."+f.cidrSet, i), v))
		}
	}
	if given(f.entities) {
		for i, name := range r.texts(path+"."+f.entities, o[f.entities], len(entities)) {
			if !slices.Contains(entities, name) {
				r.fail(at(path+"."+f.entities, i), "%.50q is not supported; it is one of %v", name, entities)
			}
			out.entities = append(out.entities, name)
		}
	}
	if f.fqdns != "" && given(f.fqdns) {
		for i, v := range r.list(path+"."+f.fqdns, o[f.fqdns], maxInRule) {
			out.names = append(out.names, r.fqdn(at(path+"."+f.fqdns, i), v))
		}
	}
	if len(kinds) > 1 {
		r.fail(path, "%s and %s together are not supported; write two rules", kinds[0], kinds[1])
	}
	r.ports(path, o, &out)
	// As in Cilium: a rule that names neither peers nor ports matches nothing.
	out.nobody = len(kinds) == 0 && len(out.ports) == 0
	out.somebody = len(kinds) > 0
	return out
}

func (r *reader) network(path, text string) {
	if r.err == nil {
		_, r.err = parseCIDR(path, text)
	}
}

func (r *reader) cidrSet(path string, value any) Peer {
	o := r.object(path, value, "cidr", "except")
	p := Peer{CIDR: r.text(path+".cidr", o["cidr"]), Except: r.texts(path+".except", o["except"], maxExcept)}
	if r.err == nil {
		network, err := parseCIDR(path+".cidr", p.CIDR)
		if err == nil {
			err = checkExcept(path+".except", network, p.Except)
		}
		r.err = err
	}
	return p
}

var dnsName = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// maxName is the longest name of the domain name system, in bytes.
const maxName = 253

func (r *reader) fqdn(path string, value any) string {
	o := r.object(path, value, "matchName", "matchPattern")
	name, pattern := r.text(path+".matchName", o["matchName"]), r.text(path+".matchPattern", o["matchPattern"])
	field := ".matchName"
	if name == "" {
		field, name = ".matchPattern", pattern
	} else if pattern != "" {
		r.fail(path, "takes one of matchName and matchPattern")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	rest := name
	if field == ".matchPattern" {
		rest = strings.TrimPrefix(name, "*.")
	}
	if len(name) > maxName || !dnsName.MatchString(rest) {
		r.fail(path+field, "%.70q is not supported; it is a name, or in matchPattern *. and a name", name)
	}
	return name
}

// maxPortsInRule is the most ports of a rule.
const maxPortsInRule = 1000

func (r *reader) ports(path string, o map[string]any, out *rule) {
	lists := r.list(path+".toPorts", o["toPorts"], maxInRule)
	for i, v := range lists {
		here := at(path+".toPorts", i)
		p := r.object(here, v, "ports")
		all := r.list(here+".ports", p["ports"], maxPorts)
		if len(all) == 0 {
			r.fail(here+".ports", "is needed")
		}
		for j, v := range all {
			out.ports = append(out.ports, r.port(at(here+".ports", j), v)...)
		}
	}
	messages := r.list(path+".icmps", o["icmps"], maxInRule)
	if len(lists) > 0 && len(messages) > 0 {
		r.fail(path+".icmps", "together with toPorts is not supported; write two rules")
	}
	for i, v := range messages {
		here := at(path+".icmps", i)
		m := r.object(here, v, "fields")
		all := r.list(here+".fields", m["fields"], maxPorts)
		if len(all) == 0 {
			r.fail(here+".fields", "is needed")
		}
		for j, v := range all {
			out.ports = append(out.ports, r.icmp(at(here+".fields", j), v))
		}
	}
	if len(out.ports) > maxPortsInRule {
		r.fail(path, "has %d ports; at most %d are taken", len(out.ports), maxPortsInRule)
	}
}

// port reads a port, which is one for each protocol.
func (r *reader) port(path string, value any) (out []Port) {
	o := r.object(path, value, "port", "endPort", "protocol")
	text := r.text(path+".port", o["port"])
	number, err := strconv.Atoi(text)
	if err != nil || number < 0 || number > 65535 || strconv.Itoa(number) != text {
		r.fail(path+".port", "%.50q is not supported; it is a text with a number from 0 to 65535", text)
	}
	end := 0
	if o["endPort"] != nil {
		if end = r.integer(path+".endPort", o["endPort"], 0, 65535); end != 0 && (end < number || number == 0) {
			r.fail(path+".endPort", "must not be less than port")
		}
	}
	if end == number {
		end = 0
	}
	protocols := map[string][]string{
		"TCP": {protocolTCP}, "UDP": {protocolUDP}, "SCTP": {protocolSCTP},
		"ANY": {protocolTCP, protocolUDP, protocolSCTP}, "": {protocolTCP, protocolUDP, protocolSCTP},
	}
	name := r.text(path+".protocol", o["protocol"])
	for _, protocol := range protocols[name] {
		out = append(out, Port{Protocol: protocol, Port: number, EndPort: end})
	}
	if out == nil {
		r.fail(path+".protocol", "%.50q is not one of TCP, UDP, SCTP and ANY", name)
	}
	return out
}

// icmpTypes are the types of ICMP that have names, by family.
var icmpTypes = map[string]map[string]int{
	"IPv4": {
		"EchoReply": 0, "DestinationUnreachable": 3, "Redirect": 5, "Echo": 8, "EchoRequest": 8, "RouterAdvertisement": 9,
		"RouterSelection": 10, "TimeExceeded": 11, "ParameterProblem": 12, "Timestamp": 13, "TimestampReply": 14,
	},
	"IPv6": {
		"DestinationUnreachable": 1, "PacketTooBig": 2, "TimeExceeded": 3, "ParameterProblem": 4, "EchoRequest": 128,
		"EchoReply": 129, "RouterSolicitation": 133, "RouterAdvertisement": 134, "NeighborSolicitation": 135,
		"NeighborAdvertisement": 136, "RedirectMessage": 137,
	},
}

func (r *reader) icmp(path string, value any) Port {
	o := r.object(path, value, "family", "type")
	family := r.text(path+".family", o["family"])
	if family == "" {
		family = "IPv4"
	}
	names, ok := icmpTypes[family]
	if !ok {
		r.fail(path+".family", "must be IPv4 or IPv6")
	}
	out := Port{Protocol: protocolICMP}
	if family == "IPv6" {
		out.Protocol = protocolIPv6
	}
	var number int
	if name, named := o["type"].(string); named {
		if number, ok = names[name]; !ok {
			r.fail(path+".type", "%.50q is not the name of a type; give its number", name)
		}
	} else {
		number = r.integer(path+".type", o["type"], 0, 255)
	}
	out.ICMPType = &number
	return out
}
