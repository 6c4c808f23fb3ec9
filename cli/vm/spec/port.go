package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
)

// Port is a port of the host that leads into the guest.
type Port struct {
	Protocol    string // tcp or udp
	HostAddress string // empty: the loopback address
	Host, Guest int
}

// Ports is a flag value for ports, which may be given more than once.
type Ports []Port

// Publish explains a flag for Ports.
const Publish = "port of the host that leads into the guest, with --network user: [ADDRESS:]HOST:GUEST[/udp]; " +
	"without ADDRESS only this host reaches it; may be repeated"

// String, Set and Type make Ports a flag's value.
func (p *Ports) String() string {
	all := make([]string, len(*p))
	for i, port := range *p {
		all[i] = strings.TrimPrefix(fmt.Sprintf("%s:%d:%d/%s", port.HostAddress, port.Host, port.Guest, port.Protocol), ":")
	}
	return strings.Join(all, ",")
}

// Set parses, for example, 8080:80, 0.0.0.0:8080:80 or 5353:53/udp.
func (p *Ports) Set(text string) error {
	ports, protocol, named := strings.Cut(text, "/")
	if !named {
		protocol = "tcp"
	}
	var address string
	if parts := strings.Split(ports, ":"); len(parts) == 3 {
		address, ports = parts[0], parts[1]+":"+parts[2]
		if _, err := netip.ParseAddr(address); err != nil {
			return fmt.Errorf("has %q, which is not an address", address)
		}
	}
	host, guest, _ := strings.Cut(ports, ":")
	from, fromErr := strconv.ParseUint(host, 10, 16)
	to, toErr := strconv.ParseUint(guest, 10, 16)
	if fromErr != nil || toErr != nil || from == 0 || to == 0 || protocol != "tcp" && protocol != "udp" {
		return errors.New("must be [ADDRESS:]HOST:GUEST[/udp], such as 8080:80")
	}
	*p = append(*p, Port{protocol, address, int(from), int(to)})
	return nil
}

// Type returns the placeholder in the help.
func (p *Ports) Type() string { return "PORTS" }

// forwards returns the ports for a request, or nil if there are none.
func (p *Ports) forwards() *[]hypervisorapi.Forward {
	if len(*p) == 0 {
		return nil
	}
	out := make([]hypervisorapi.Forward, len(*p))
	for i, port := range *p {
		out[i] = hypervisorapi.Forward{
			Protocol: new(hypervisorapi.ForwardProtocol(port.Protocol)), HostPort: port.Host, GuestPort: port.Guest,
		}
		if port.HostAddress != "" {
			out[i].HostAddress = &port.HostAddress
		}
	}
	return &out
}
