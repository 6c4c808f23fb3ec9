package configfile

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// PortRange holds ports of one address of the host.
type PortRange struct {
	Address  netip.Addr
	From, To int // inclusive
}

// ParsePortRange reads a range, such as 127.0.0.1:30000-32767.
func ParsePortRange(text string) (PortRange, error) {
	address, ports, _ := strings.Cut(text, ":")
	first, last, _ := strings.Cut(ports, "-")
	addr, err := netip.ParseAddr(address)
	from, fromErr := strconv.ParseUint(first, 10, 16)
	to, toErr := strconv.ParseUint(last, 10, 16)
	if err != nil || !addr.Is4() || fromErr != nil || toErr != nil || from == 0 || from > to {
		return PortRange{}, fault.New(fault.Invalid, "%q is not ADDRESS:FIRST-LAST, such as 127.0.0.1:30000-32767", text)
	}
	return PortRange{Address: addr, From: int(from), To: int(to)}, nil
}
