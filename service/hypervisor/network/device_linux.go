package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// ensureBridge creates the managed bridge if it does not exist, and reports whether it did.
func ensureBridge(o Options) (made bool, err error) {
	link, err := findLink(o.Bridge)
	if err != nil {
		return false, err
	}
	if link == nil {
		if err := freeNetwork(o); err != nil {
			return false, err
		}
		m := bridgeMAC(o)
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: o.Bridge, MTU: o.MTU, HardwareAddr: m[:]}}
		if err := netlink.LinkAdd(br); err != nil {
			return false, kernel(fmt.Errorf("make bridge %s: %w", o.Bridge, err))
		}
		if link, err = netlink.LinkByName(o.Bridge); err != nil {
			return false, kernel(err)
		}
		if err := netlink.LinkSetAlias(link, o.bridgeAlias()); err != nil {
			return false, errors.Join(kernel(err), netlink.LinkDel(link))
		}
		made = true
	} else if err := ownBridge(o, link); err != nil {
		return false, err
	}
	if err := setUpBridge(o, link); err != nil {
		if made {
			err = errors.Join(err, netlink.LinkDel(link))
		}
		return false, err
	}
	return made, nil
}

// ownBridge fails if another daemon made the bridge: both would assign the same addresses.
func ownBridge(o Options, link netlink.Link) error {
	alias := link.Attrs().Alias
	rest, marked := strings.CutPrefix(alias, "mainstay ")
	if !marked || strings.HasPrefix(rest, o.mark()+" ") {
		return nil
	}
	_, owner, _ := strings.Cut(rest, " ")
	if _, err := os.Stat(owner); errors.Is(err, fs.ErrNotExist) {
		return kernel(netlink.LinkSetAlias(link, o.bridgeAlias())) // nobody's any more
	}
	return fault.New(
		fault.Conflict, "bridge %s belongs to the daemon of %s; set network.bridge and network.subnet to others",
		o.Bridge, owner,
	)
}

func setUpBridge(o Options, link netlink.Link) error {
	if link.Type() != "bridge" {
		return fault.New(
			fault.Conflict, "device %s is not a bridge; remove it, or set network.bridge to another name", o.Bridge,
		)
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return kernel(err)
	}
	gateway := &netlink.Addr{
		IPNet: &net.IPNet{IP: o.Address.Addr().AsSlice(), Mask: net.CIDRMask(o.Address.Bits(), 32)},
	}
	has := false
	for _, a := range addresses {
		if !a.Equal(*gateway) {
			return fault.New(
				fault.Conflict, "bridge %s has the address %s, not %s; remove it, or set network.address", o.Bridge,
				a.IPNet, o.Address,
			)
		}
		has = true
	}
	// Guests have no IPv6 on this bridge, so the host needs none either.
	if err := sysctl("net/ipv6/conf/"+o.Bridge+"/disable_ipv6", "1"); err != nil {
		return err
	}
	if !has {
		if err := netlink.AddrAdd(link, gateway); err != nil {
			return kernel(fmt.Errorf("give bridge %s its address: %w", o.Bridge, err))
		}
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		return kernel(netlink.LinkSetUp(link))
	}
	return nil
}

// freeNetwork fails if another device of the host has an overlapping network.
func freeNetwork(o Options) error {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return kernel(err)
	}
	for _, a := range addresses {
		if other := prefix(a.IPNet); other.IsValid() && other.Overlaps(o.Address) {
			name := fmt.Sprintf("number %d", a.LinkIndex)
			if link, err := netlink.LinkByIndex(a.LinkIndex); err == nil {
				name = link.Attrs().Name
			}
			return fault.New(
				fault.Conflict,
				"the guests' network %s overlaps that of device %s (%s); set network.address to another",
				o.Address.Masked(), name, other,
			)
		}
	}
	return nil
}

func prefix(n *net.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip(n.IP), bits)
}

// operatorsBridge checks that the operator's bridge exists and returns its MTU.
func operatorsBridge(name string) (mtu int, err error) {
	link, err := findLink(name)
	if err != nil {
		return 0, err
	}
	if link == nil || link.Type() != "bridge" {
		return 0, fault.InvalidField("network.bridge", "network.bridge: this host has no bridge %s", name)
	}
	return link.Attrs().MTU, nil
}

// ensureTap creates the tap of a VM, down and on no bridge, unless it exists. It reports whether
// the tap is new.
func ensureTap(o Options, l lease, owner uint32) (tap netlink.Link, made bool, err error) {
	name := o.tapName(l.VM)
	link, err := findLink(name)
	if err != nil {
		return nil, false, err
	}
	if link != nil {
		have, ok := link.(*netlink.Tuntap)
		if ok && link.Attrs().Alias == l.VM && have.Owner == owner && have.Mode == netlink.TUNTAP_MODE_TAP &&
			have.Flags&netlink.TUNTAP_VNET_HDR != 0 {
			return link, false, nil
		}
		// It is half made or belongs to another user, so nobody can be using it properly.
		if err := netlink.LinkDel(link); err != nil {
			return nil, false, kernel(err)
		}
	}
	if err := makeTap(name, owner); err != nil {
		return nil, false, err
	}
	if link, err = netlink.LinkByName(name); err == nil {
		err = netlink.LinkSetAlias(link, l.VM)
	}
	if err != nil {
		return nil, false, errors.Join(kernel(err), removeLink(name))
	}
	return link, true, nil
}

// makeTap creates a persistent tap that only its owner may open. Until the owner is set, anyone may
// open it, but only while it is down and on no bridge.
func makeTap(name string, owner uint32) error {
	const path = "/dev/net/tun"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
			return unavailable(err, "this host has no %s; load the kernel module tun (modprobe tun)", path)
		}
		return kernel(err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return kernel(fmt.Errorf("make tap %s: %w", name, err))
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, int(owner)); err != nil {
		return kernel(fmt.Errorf("give tap %s to user %d: %w", name, owner, err))
	}
	return kernel(unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1))
}

// plug adds a tap to a bridge and brings it up.
func plug(tap netlink.Link, bridge string, mtu int, isolate bool) error {
	br, err := netlink.LinkByName(bridge)
	if err != nil {
		return kernel(err)
	}
	name := tap.Attrs().Name
	steps := []func() error{
		func() error { return sysctl("net/ipv6/conf/"+name+"/disable_ipv6", "1") },
		func() error { return netlink.LinkSetMTU(tap, mtu) },
		func() error { return netlink.LinkSetMaster(tap, br) },
		func() error { return netlink.LinkSetHairpin(tap, false) },
		func() error { return netlink.LinkSetGuard(tap, true) }, // no guest becomes the root of a spanning tree
		func() error { return netlink.LinkSetIsolated(tap, isolate) },
		func() error { return netlink.LinkSetUp(tap) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return kernel(fmt.Errorf("put %s on bridge %s: %w", name, bridge, err))
		}
	}
	return nil
}

// taps returns the devices with this daemon's mark, each with its VM.
func taps(o Options) (map[string]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, kernel(err)
	}
	found := map[string]string{}
	for _, l := range links {
		if a := l.Attrs(); strings.HasPrefix(a.Name, o.tapPrefix()) {
			found[a.Name] = a.Alias
		}
	}
	return found, nil
}

// findLink returns a device, or nil if it does not exist.
func findLink(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	return link, kernel(err)
}

// removeLink removes a device. It is not an error if it does not exist.
func removeLink(name string) error {
	link, err := findLink(name)
	if link == nil || err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return kernel(fmt.Errorf("remove %s: %w", name, err))
	}
	return nil
}

// sysctl sets a kernel parameter unless it already has the value. Missing IPv6 parameters are
// ignored, since the kernel may lack IPv6.
func sysctl(name, value string) error {
	path := filepath.Join("/proc/sys", name)
	before, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(name, "net/ipv6/") ||
		strings.TrimSpace(string(before)) == value {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return unavailable(
			err, "the kernel parameter %s cannot be set; run the daemon with the right to, or run: sysctl -w %s=%s",
			name, strings.ReplaceAll(name, "/", "."), value,
		)
	}
	return nil
}

// kernel turns an error of the kernel into a fault that says what is missing.
func kernel(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return lacksRights(err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return unavailable(
			err, "this kernel cannot make the devices that VMs need for a network; load the modules bridge and tun",
		)
	}
	return err
}

func lacksRights(err error) error {
	return unavailable(
		err, "networks of VMs take CAP_NET_ADMIN; run the daemon as root, or use network mode user or none",
	)
}

func unavailable(err error, format string, args ...any) error {
	return fault.Wrap(fault.Unavailable, err, format, args...)
}
