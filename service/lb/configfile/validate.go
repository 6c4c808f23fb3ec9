package configfile

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// validate checks that the values fit together. Each single value has been checked before.
func (c *Config) validate(p *document.Problems) {
	if !validInterface(c.Interface) {
		p.Add("interface", "must be the name of a network interface, as in eth0, not %s", document.Quoted(c.Interface))
	}
	for i, name := range c.BackendInterfaces {
		at := fmt.Sprintf("backendInterfaces[%d]", i)
		switch {
		case !validInterface(name):
			p.Add(at, "must be the name of a network interface, as in eth1, not %s", document.Quoted(name))
		case name == c.Interface || slices.Contains(c.BackendInterfaces[:i], name):
			p.Add(at, "names %s a second time", name)
		}
	}
	if len(c.BackendInterfaces) > MaxBackendInterfaces {
		p.Add("backendInterfaces", "are %d; there can be at most %d", len(c.BackendInterfaces), MaxBackendInterfaces)
	}
	c.validateSources(p)
	if err := CheckListen(c.APIListen); err != nil {
		p.Add("apiListen", "%v", err)
	}
	source := func(key string, a netip.Addr, right bool, family string) {
		if a.IsValid() && (!right || !isUnicast(a)) {
			p.Add(key, "must be an %s address of this node, not %s", family, a)
		} else if needsZone(a) {
			p.Add(key, noZone, a)
		}
	}
	source("tunnelSource", c.TunnelSource, c.TunnelSource.Is4(), "IPv4")
	source("tunnelSource6", c.TunnelSource6, c.TunnelSource6.Is6(), "IPv6")
	if c.BGP != nil {
		c.BGP.validate(p)
	}
	c.validateVIPs(p)
}

func (c *Config) validateSources(p *document.Problems) {
	families := map[bool]int{}
	for i, a := range c.SNATSources {
		at := fmt.Sprintf("snatSources[%d]", i)
		switch {
		case !isUnicast(a):
			p.Add(at, "must be an address of this node, not %s", a)
		case slices.Contains(c.SNATSources[:i], a):
			p.Add(at, "names %s a second time", a)
		case slices.ContainsFunc(c.VIPs, func(v VIP) bool { return v.Address == a }):
			p.Add(at, "%s is a VIP's address", a)
		}
		families[a.Is6()]++
	}
	if max(families[false], families[true]) > datapath.MaxSources {
		p.Add("snatSources", "can have at most %d of each IP family", datapath.MaxSources)
	}
}

func (c *Config) validateVIPs(p *document.Problems) {
	vips, pairs, blocks := 0, 0, 0
	for i := range c.VIPs {
		v := &c.VIPs[i]
		v.validate(p, c, fmt.Sprintf("vips[%d]", i))
		n := max(1, len(v.Ports))
		vips, pairs = vips+n, pairs+n*len(v.Backends)
		if !v.PortRange.IsZero() {
			blocks += len(datapath.Blocks(v.PortRange.First, v.PortRange.Last))
		}
	}
	if vips > MaxVIPs {
		p.Add("vips", "are %d, each port of a list counted; a node has at most %d", vips, MaxVIPs)
	}
	if pairs > MaxBackends {
		p.Add("vips", "have %d backends in all; a node has at most %d", pairs, MaxBackends)
	}
	if blocks > MaxRangeBlocks {
		p.Add(
			"vips",
			"have ranges that take %d blocks in all; a node has at most %d. Ranges that begin and end at powers of two, as in 8192-16383, take the fewest",
			blocks, MaxRangeBlocks,
		)
	}
	c.refuseConflicts(p)
}

func (v *VIP) validate(p *document.Problems, c *Config, at string) {
	if !isUnicast(v.Address) {
		p.Add(at+".address", "must be a unicast address that is not loopback, not %s", v.Address)
	}
	given := 0
	for _, is := range []bool{v.Port != 0, !v.PortRange.IsZero(), len(v.Ports) > 0} {
		if is {
			given++
		}
	}
	if given != 1 {
		p.Add(at, "needs exactly one of port, portRange and ports")
	}
	if v.SNAT && v.Mode != datapath.NAT {
		p.Add(at+".snat", "is for mode nat only; in mode %s backends reply to the client themselves", v.Mode)
	}
	v.HealthCheck.validate(p, v, at+".healthCheck")
	for i := range v.Backends {
		v.Backends[i].validate(p, c, v, fmt.Sprintf("%s.backends[%d]", at, i))
	}
	v.refuseTwins(p, at)
}

// refuseTwins reports backends that are the same at one of the VIP's ports.
func (v *VIP) refuseTwins(p *document.Problems, at string) {
	ports := v.Ports
	if len(ports) == 0 {
		ports = []uint16{v.Port} // 0 for a range, which keeps ports
	}
	if len(ports)*len(v.Backends) > MaxBackends {
		return // validateVIPs reports that they are too many
	}
	seen := make(map[datapath.BackendKey]int, len(v.Backends))
	for i, b := range v.Backends {
		for _, port := range ports {
			key := datapath.BackendKey{Address: b.Address, Port: cmp.Or(b.Port, port)}
			first, twice := seen[key]
			if twice && first != i {
				p.Add(fmt.Sprintf("%s.backends[%d]", at, i), "is the same backend as backends[%d]", first)
				break
			}
			seen[key] = i
		}
	}
}

func (h *HealthCheck) validate(p *document.Problems, v *VIP, at string) {
	if h.Type == CheckNone {
		return
	}
	if v.Protocol == datapath.UDP && h.Port == 0 {
		p.Add(
			at,
			"a VIP of protocol udp needs a choice: type: none, or the port of a tcp, http or https check on the backends",
		)
	}
	// The prober checks the rest. The address is a placeholder for the backend's.
	check := h.Probe()
	check.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), max(h.Port, 1))
	if err := check.Validate(); err != nil {
		f := fault.From(err)
		p.Add(at+"."+f.Field, "%s", strings.TrimPrefix(f.Message, f.Field+": "))
	}
}

// Probe returns the check without ID and address. The result is meaningless for type none.
func (h *HealthCheck) Probe() probe.Check {
	types := map[CheckType]probe.Type{CheckTCP: probe.TCP, CheckHTTP: probe.HTTP, CheckHTTPS: probe.HTTPS}
	return probe.Check{
		Type:     types[h.Type],
		Path:     h.Path,
		Host:     h.Host,
		Status:   h.Status,
		Interval: h.Interval,
		Timeout:  h.Timeout,
		Rise:     h.Rise,
		Fall:     h.Fall,
	}
}

func (b *Backend) validate(p *document.Problems, c *Config, v *VIP, at string) {
	sameFamily := b.Address.Is4() == v.Address.Is4()
	switch {
	case !isUnicast(b.Address) || isReserved(b.Address):
		p.Add(at+".address", "must be the address of a machine, not %s", b.Address)
	case b.Address == v.Address:
		p.Add(at+".address", "is the VIP's own address")
	case !v.Mode.Tunnels() && !sameFamily:
		p.Add(
			at+".address",
			"must be of the VIP's family (%s) in mode %s, not %s; the modes dsr-ipip and dsr-gre may mix them",
			familyOf(v.Address), v.Mode, b.Address,
		)
	case v.Mode.Tunnels() && b.Address.Is4() && !c.TunnelSource.IsValid():
		p.Add(at+".address", "mode %s towards an IPv4 backend needs tunnelSource", v.Mode)
	case v.Mode.Tunnels() && b.Address.Is6() && !c.TunnelSource6.IsValid():
		p.Add(at+".address", "mode %s towards an IPv6 backend needs tunnelSource6", v.Mode)
	}
	switch {
	case b.Port == 0:
	case !v.PortRange.IsZero():
		p.Add(at+".port", "must be left out: the ports of a range are kept")
	case v.Mode != datapath.NAT && b.Port != v.Port:
		p.Add(at+".port", "must be the VIP's port or left out: mode %s does not rewrite ports", v.Mode)
	}
	if !b.MAC.IsZero() && v.Mode != datapath.DSR {
		p.Add(at+".mac", "is for mode dsr only, not %s", v.Mode)
	}
}

// refuseConflicts reports VIPs that are the same, and ranges that overlap.
func (c *Config) refuseConflicts(p *document.Problems) {
	type place struct {
		address  netip.Addr
		protocol datapath.Protocol
	}
	type span struct {
		PortRange
		at string
	}
	names := map[string]string{} // where the name of a VIP occurred first
	ranges := map[place][]span{}
	claim := func(v *VIP, port uint16, at string) {
		name := datapath.VIPKey{Address: v.Address, Port: port, Protocol: v.Protocol}.String()
		if first, taken := names[name]; taken {
			p.Add(at, "%s is the same VIP as %s; a VIP is named by its first port", name, first)
			return
		}
		names[name] = at
	}
	for i := range c.VIPs {
		v, at := &c.VIPs[i], fmt.Sprintf("vips[%d]", i)
		switch {
		case v.Port != 0:
			claim(v, v.Port, at)
		case !v.PortRange.IsZero():
			claim(v, v.PortRange.First, at)
			key := place{v.Address, v.Protocol}
			ranges[key] = append(ranges[key], span{v.PortRange, at})
		}
		for j, port := range v.Ports {
			claim(v, port, fmt.Sprintf("%s.ports[%d]", at, j))
		}
	}
	for where, spans := range ranges {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.First, b.First) })
		widest := 0 // index of the earlier range that extends furthest
		for i := 1; i < len(spans); i++ {
			if spans[i].First != spans[widest].First && spans[i].overlaps(spans[widest].PortRange) {
				p.Add(spans[i].at+".portRange", "%s overlaps with %s of %s, of the same address and protocol (%s, %s)",
					spans[i], spans[widest], spans[widest].at, where.address, where.protocol)
			}
			if spans[i].Last > spans[widest].Last {
				widest = i
			}
		}
	}
}

// validInterface applies the rule of the kernel (dev_valid_name).
func validInterface(name string) bool {
	const most = 15 // bytes, IFNAMSIZ without the terminating zero
	return name != "" && len(name) <= most && name != "." && name != ".." &&
		!strings.ContainsFunc(
			name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) },
		)
}

// CheckListen checks an address to listen on. Its error completes a sentence that starts with the
// name of the setting.
func CheckListen(listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || strings.ContainsFunc(host, unicode.IsSpace) {
		return fmt.Errorf("must be HOST:PORT, as in 127.0.0.1:9870, not %s", document.Quoted(listen))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("must end with a port from 0 to 65535, not %s", document.Quoted(port))
	}
	return nil
}

// isUnicast reports whether a machine or VIP can have this address on a network.
func isUnicast(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !isBroadcast(a)
}

func isBroadcast(a netip.Addr) bool { return a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) }

// isReserved reports whether the address is in 240.0.0.0/4, which no machine uses.
func isReserved(a netip.Addr) bool { return a.Is4() && a.As4()[0] >= 240 }

// needsZone reports whether the address needs a zone, which the document cannot give.
func needsZone(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }

// noZone is the error for addresses that need a zone.
const noZone = "%s is a link-local address, which needs an interface; use an address with a wider scope"

func familyOf(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
