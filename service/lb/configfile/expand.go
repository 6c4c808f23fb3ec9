package configfile

import (
	"net/netip"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// Service is one VIP in the datapath's terms: one port or one range.
type Service struct {
	datapath.VIPKey
	Mode           datapath.Mode
	SNAT           bool
	ClientAffinity bool
	RateLimit      uint32 // new flows per second; 0 means no limit
	Check          HealthCheck
	Endpoints      []Endpoint
}

// Endpoint is a backend of a Service.
type Endpoint struct {
	datapath.BackendKey
	MAC    datapath.MAC // zero: to be resolved
	Weight uint16
	// Probe is the address to probe. In the dsr modes it is the VIP's address, which must be
	// reached through the backend. It is zero if there is no check.
	Probe netip.AddrPort
}

// Expand lists the VIPs in the order of the document, with one for each port of a list. The
// document must be valid.
func (c *Config) Expand() []Service {
	var services []Service
	for i := range c.VIPs {
		v := &c.VIPs[i]
		switch {
		case !v.PortRange.IsZero():
			services = append(services, v.service(v.PortRange.First, v.PortRange.Last))
		case v.Port != 0:
			services = append(services, v.service(v.Port, v.Port))
		}
		for _, port := range v.Ports {
			services = append(services, v.service(port, port))
		}
	}
	return services
}

func (v *VIP) service(first, last uint16) Service {
	s := Service{
		VIPKey:         datapath.VIPKey{Address: v.Address, Port: first, LastPort: last, Protocol: v.Protocol},
		Mode:           v.Mode,
		SNAT:           v.SNAT,
		ClientAffinity: v.SessionAffinity == ClientIPAffinity,
		RateLimit:      v.RateLimit,
		Check:          v.HealthCheck,
		Endpoints:      make([]Endpoint, len(v.Backends)),
	}
	for i, b := range v.Backends {
		e := Endpoint{BackendKey: datapath.BackendKey{Address: b.Address, Port: b.Port}, MAC: b.MAC, Weight: b.Weight}
		if e.Port == 0 && !s.IsRange() {
			e.Port = first
		}
		if v.HealthCheck.Type != CheckNone {
			e.Probe = v.HealthCheck.target(s, e)
		}
		s.Endpoints[i] = e
	}
	return s
}

func (h *HealthCheck) target(s Service, e Endpoint) netip.AddrPort {
	address, port := e.Address, h.Port
	if s.Mode != datapath.NAT {
		address = s.Address
	}
	if port == 0 {
		port = e.Port
	}
	if port == 0 {
		port = s.Port
	}
	return netip.AddrPortFrom(address, port)
}
