package network

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Defaults of Options.
const (
	DefaultBridge = "mainstay0"
	// DefaultAddress is beside the networks that Podman (10.88.0.0/16) and Docker
	// (172.17.0.0/16) take for themselves.
	DefaultAddress = "10.87.0.1/16"
	DefaultMTU     = 1500
)

const (
	tapPrefix = "mst"
	// maxName is the longest name of a network device, in bytes.
	maxName = 15
	maxVM   = 128 // of the id of a VM, in bytes; the kernel keeps aliases of up to 255
)

// Options configures the host's networks. All fields but LeaseFile have defaults.
type Options struct {
	Log *slog.Logger // default: nothing is logged
	// LeaseFile stores the addresses of VMs. Its folder must exist.
	LeaseFile string
	// Bridge is the name of the managed bridge.
	Bridge string
	// Address is the address of the managed bridge and the prefix length of its network: IPv4, from
	// /8 to /30. It is the guests' gateway.
	Address netip.Prefix
	// MTU of the managed bridge in bytes, at least 576. Guests get it by DHCP.
	MTU int
	// NoNAT leaves the routing from and to the guests to the operator.
	NoNAT bool
	// Owner identifies the daemon among those of a host: the path of its data folder. Devices and
	// nftables tables contain a mark derived from it. Daemons do not touch those with another mark.
	Owner string
	// Isolate prevents guests of the managed bridge from reaching each other.
	Isolate bool
	// ShareBridge lets guests of different tenants reach each other on the managed bridge. Guests
	// of one tenant always can, unless Isolate is set.
	ShareBridge bool
	// DNS are the name servers for guests. Default: those of the host, except loopback addresses,
	// read anew for every reply.
	DNS []netip.Addr
	// OnFlow gets the decisions of network policies, while Run runs. It must not wait. Nil: nobody does.
	OnFlow func(Flow)
}

// Port describes a VM's network port.
type Port struct {
	VM  string           // its id: letters, digits, '.', '_' and '-'
	MAC net.HardwareAddr // six bytes, unicast
	// Tenant is the VM's tenant. The empty tenant counts as one, too.
	Tenant string
	// Bridge is the name of the bridge; empty: the managed one.
	Bridge string
	// IP is the requested address. On the managed bridge it is used if it is free and the VM has
	// none yet: compare it with Attached.IP. On another bridge it is the only IPv4 address that the
	// guest may send from.
	IP netip.Addr
	// OwnerUID is the user that may open the tap, for example QEMU's.
	OwnerUID uint32
	// Hostname is sent to the guest by DHCP if it is a valid host name.
	Hostname string
	Limits   Limits
}

// Limits limit what a guest receives and sends, in bits a second. Zero values mean no limit.
type Limits struct {
	Receive, Send int64
}

// Attached is the result of Attach.
type Attached struct {
	Tap    string // the name of the device: persistent, with vnet_hdr, one queue
	Bridge string
	// IP is the guest's address. On an operator's bridge it is the requested address, if any.
	IP netip.Addr
	// Gateway is the bridge's address and prefix length, or zero on an operator's bridge.
	Gateway netip.Prefix
	MTU     int
}

// Swept counts what Sweep removed.
type Swept struct {
	Taps   int // devices
	Rules  int // taps that nftables had rules for
	Leases int // addresses
}

// short returns the beginning of a text's hash, in characters that are valid in any name.
func short(text string, length int) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:length]
}

// mark returns what distinguishes this daemon's devices and tables from those of others.
func (o Options) mark() string { return short(o.Owner, 4) }

// tapPrefix returns the prefix of this daemon's tap names.
func (o Options) tapPrefix() string { return TapPrefix(o.Owner) }

// TapPrefix returns the prefix of the tap names of a daemon; see Options.Owner.
func TapPrefix(owner string) string { return tapPrefix + Options{Owner: owner}.mark() }

// tapName returns the name of a VM's tap.
func (o Options) tapName(vm string) string {
	prefix := o.tapPrefix()
	return prefix + short(vm, maxName-len(prefix))
}

// tableName returns the name of this daemon's nftables tables.
func (o Options) tableName() string { return "mainstay_hypervisor_" + o.mark() }

// bridgeAlias returns the alias that marks the managed bridge. It includes the path for people.
func (o Options) bridgeAlias() string {
	return strings.ToValidUTF8(fmt.Sprintf("mainstay %s %.200s", o.mark(), o.Owner), "?")
}

// withDefaults checks the options and sets defaults.
func (o Options) withDefaults() (Options, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Bridge == "" {
		o.Bridge = DefaultBridge
	}
	if !o.Address.IsValid() {
		o.Address = netip.MustParsePrefix(DefaultAddress)
	}
	if o.MTU == 0 {
		o.MTU = DefaultMTU
	}
	a := o.Address
	switch {
	case o.LeaseFile == "":
		return o, fault.InvalidField("network.lease_file", "network.lease_file is needed")
	case !isDevice(o.Bridge) || strings.HasPrefix(o.Bridge, tapPrefix):
		return o, fault.InvalidField("network.bridge", "network.bridge %q is not a name for a bridge", o.Bridge)
	case !a.Addr().Is4() || a.Bits() < 8 || a.Bits() > 30:
		return o, fault.InvalidField(
			"network.address", "network.address %s is not an IPv4 address with a length from /8 to /30", a,
		)
	case !a.Addr().IsGlobalUnicast() || reserved(a, a.Addr()):
		return o, fault.InvalidField(
			"network.address", "network.address %s is not the address of a host in its network", a,
		)
	case o.MTU < 576 || o.MTU > 65535:
		return o, fault.InvalidField("network.mtu", "network.mtu %d is not from 576 to 65535", o.MTU)
	}
	return o, nil
}

// reserved reports whether an address is the first or the last of a network.
func reserved(network netip.Prefix, a netip.Addr) bool {
	return a == network.Masked().Addr() || a == last(network)
}

// last returns the broadcast address of an IPv4 network.
func last(network netip.Prefix) netip.Addr {
	b := network.Masked().Addr().As4()
	for i := network.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

var (
	deviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	hostLabels = regexp.MustCompile(
		`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`,
	)
)

func isDevice(name string) bool { return len(name) <= maxName && deviceName.MatchString(name) }

// lease validates a Port and converts it to a lease. The address is still the requested one.
func (o Options) lease(p Port) (lease, error) {
	l := lease{VM: p.VM, Tenant: p.Tenant, Bridge: p.Bridge, IP: p.IP.Unmap()}
	if l.Bridge == "" {
		l.Bridge = o.Bridge
	}
	if len(p.Hostname) <= 253 && hostLabels.MatchString(p.Hostname) {
		l.Hostname = p.Hostname
	}
	if err := checkVM(p.VM); err != nil {
		return l, err
	}
	if !isDevice(l.Bridge) || strings.HasPrefix(l.Bridge, tapPrefix) {
		return l, fault.InvalidField("network.bridge", "network.bridge %q is not the name of a bridge", l.Bridge)
	}
	if len(p.MAC) != len(l.MAC) || p.MAC[0]&1 != 0 || bytes.Equal(p.MAC, make([]byte, len(l.MAC))) {
		return l, fault.InvalidField("network.mac", "network.mac %q is not a unicast Ethernet address", p.MAC)
	}
	l.MAC = mac(p.MAC)
	if l.Bridge == o.Bridge && l.MAC == bridgeMAC(o) {
		return l, fault.New(fault.Conflict, "network.mac %s is the bridge's own", l.MAC)
	}
	if l.Bridge != o.Bridge && l.IP.IsValid() && (!l.IP.Is4() || !l.IP.IsGlobalUnicast()) {
		return l, fault.InvalidField("network.ip", "network.ip %s is not the IPv4 address of a host", l.IP)
	}
	return l, nil
}

func checkVM(vm string) error {
	if len(vm) > maxVM || !deviceName.MatchString(vm) {
		return fault.InvalidField("id", "%.200q is not the id of a VM", vm)
	}
	return nil
}

// bridgeMAC returns the Ethernet address of the managed bridge. It is set explicitly, since one
// that the kernel chooses changes with the ports.
func bridgeMAC(o Options) mac {
	sum := sha256.Sum256([]byte(o.Bridge + " " + o.Address.String()))
	return mac{0x02, 'm', 's', sum[0], sum[1], sum[2]}
}

// mac is an Ethernet address.
type mac [6]byte

func (m mac) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText writes an address as in JSON.
func (m mac) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads an address from JSON.
func (m *mac) UnmarshalText(text []byte) error {
	hw, err := net.ParseMAC(string(text))
	if err != nil || len(hw) != len(m) {
		return fmt.Errorf("%.40q is not an Ethernet address", text)
	}
	*m = mac(hw)
	return nil
}

// Usable reports whether a guest on the managed bridge may have an address: it must be in the
// bridge's network, and neither the host's nor a reserved one.
func (m *Manager) Usable(a netip.Addr) bool { return m.book.usable(a) }
