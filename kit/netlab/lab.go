//go:build linux

// Package netlab builds small networks on one machine, for tests and demonstrations: hosts are
// network namespaces, connected by veth pairs and switches.
//
// Nothing in a lab has a name outside the process: its namespaces, with everything in them, vanish
// with the last process in them and with the Lab, even if this process is killed.
//
// A socket belongs to the host on which it was created, whoever uses it later. So a listener or a
// connection that is created in Host.Do can be used from anywhere.
//
// Creating a lab requires root (CAP_SYS_ADMIN and CAP_NET_ADMIN).
package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Lab is a network of hosts. It is not safe for concurrent use; its hosts are.
type Lab struct {
	hosts []*Host
}

// Host is one network namespace.
type Host struct {
	Name string
	ns   netns.NsHandle
	nl   *netlink.Handle
}

// New returns an empty lab.
func New() *Lab { return &Lab{} }

// Close removes all hosts. Processes and sockets on them keep their namespaces until they end.
func (l *Lab) Close() error {
	var errs []error
	for _, h := range l.hosts {
		errs = append(errs, h.Close())
	}
	l.hosts = nil
	return errors.Join(errs...)
}

// Host adds a host that has only a loopback device.
func (l *Lab) Host(name string) (*Host, error) {
	h, err := NewHost(name)
	if err != nil {
		return nil, err
	}
	l.hosts = append(l.hosts, h)
	return h, nil
}

// NewHost returns a host that belongs to no lab. The caller must close it.
func NewHost(name string) (*Host, error) {
	h := &Host{Name: name}
	err := onThread(func() error {
		own, err := netns.Get()
		if err != nil {
			return err
		}
		defer own.Close()
		if h.ns, err = netns.New(); err != nil { // this thread is now in it
			return err
		}
		return netns.Set(own)
	})
	if err != nil {
		return nil, fmt.Errorf("make network namespace %s: %w", name, err)
	}
	if h.nl, err = netlink.NewHandleAt(h.ns); err != nil {
		return nil, errors.Join(err, h.ns.Close())
	}
	if err := h.up("lo"); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Here returns the host of the calling thread, usually the machine itself. The caller must close
// it.
func Here() (*Host, error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, err
	}
	nl, err := netlink.NewHandle() // unlike NewHandleAt, this does not require CAP_SYS_ADMIN
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return &Host{Name: "here", ns: ns, nl: nl}, nil
}

// Close releases the host. Processes and sockets on it keep it alive until they end.
func (h *Host) Close() error {
	h.nl.Close()
	return h.ns.Close()
}

// Netlink returns a netlink handle for the host's namespace.
func (h *Host) Netlink() *netlink.Handle { return h.nl }

// onThread runs fn on a separate thread. If fn fails or panics, the thread is not reused, since it
// may be in the wrong namespace.
func onThread(fn func() error) error {
	return <-routine.Start(nil, "network namespace", func() error {
		runtime.LockOSThread()
		err := fn()
		if err == nil {
			runtime.UnlockOSThread()
		}
		return err
	})
}

// Do runs fn on a thread that is in the host's namespace. fn must not start goroutines that rely on
// it.
func (h *Host) Do(fn func() error) error {
	var result error
	err := onThread(func() error {
		own, err := netns.Get()
		if err != nil {
			return err
		}
		defer own.Close()
		if own.Equal(h.ns) { // entering requires CAP_SYS_ADMIN, already being there does not
			result = fn()
			return nil
		}
		if err := netns.Set(h.ns); err != nil {
			return err
		}
		result = fn()
		return netns.Set(own)
	})
	if err != nil {
		return fmt.Errorf("enter network namespace %s: %w", h.Name, err)
	}
	return result
}

// Start starts a command on the host.
func (h *Host) Start(cmd *exec.Cmd) error { return h.Do(cmd.Start) }

// Run runs a command on the host. If it fails, the error contains its output.
func (h *Host) Run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := h.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

func (h *Host) link(device string) (netlink.Link, error) {
	l, err := h.nl.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", device, h.Name, err)
	}
	return l, nil
}

func (h *Host) up(device string) error {
	l, err := h.link(device)
	if err != nil {
		return err
	}
	return h.nl.LinkSetUp(l)
}

// Down sets a device down. Up sets it up again.
func (h *Host) Down(device string) error {
	l, err := h.link(device)
	if err != nil {
		return err
	}
	return h.nl.LinkSetDown(l)
}

// Up sets a device up.
func (h *Host) Up(device string) error { return h.up(device) }

// Join connects two hosts with a veth pair, creating a new device on each.
func Join(a *Host, deviceA string, b *Host, deviceB string) error {
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: deviceA},
		PeerName:      deviceB,
		PeerNamespace: netlink.NsFd(b.ns),
	}
	if err := a.nl.LinkAdd(pair); err != nil {
		return fmt.Errorf("join %s of %s and %s of %s: %w", deviceA, a.Name, deviceB, b.Name, err)
	}
	return errors.Join(a.quiet(deviceA), b.quiet(deviceB), a.up(deviceA), b.up(deviceB))
}

// quiet disables duplicate address detection, so that a device does not wait for it.
func (h *Host) quiet(device string) error {
	return h.Sysctl("net/ipv6/conf/"+device+"/accept_dad", "0")
}

// Switch adds a switch. Plug connects hosts to it.
func (l *Lab) Switch(name string) (*Host, error) {
	sw, err := l.Host(name)
	if err != nil {
		return nil, err
	}
	if err := sw.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}); err != nil {
		return nil, err
	}
	return sw, sw.up(bridge)
}

const bridge = "br0"

// Plug connects a new device of a host to a switch and gives it addresses.
func Plug(sw, h *Host, device string, addresses ...netip.Prefix) error {
	port := "p-" + h.Name
	if err := Join(h, device, sw, port); err != nil {
		return err
	}
	p, err := sw.link(port)
	if err != nil {
		return err
	}
	br, err := sw.link(bridge)
	if err != nil {
		return err
	}
	if err := sw.nl.LinkSetMaster(p, br); err != nil {
		return err
	}
	return h.Address(device, addresses...)
}

// Address adds addresses to a device.
func (h *Host) Address(device string, addresses ...netip.Prefix) error {
	l, err := h.link(device)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		parsed, err := netlink.ParseAddr(a.String())
		if err != nil {
			return err
		}
		if a.Addr().Is6() {
			parsed.Flags = unix.IFA_F_NODAD // usable immediately
		}
		if err := h.nl.AddrAdd(l, parsed); err != nil {
			return fmt.Errorf("address %s for %s of %s: %w", a, device, h.Name, err)
		}
	}
	return nil
}

// Route adds a route to a network via a router.
func (h *Host) Route(to netip.Prefix, via netip.Addr) error {
	_, network, err := net.ParseCIDR(to.String())
	if err != nil {
		return err
	}
	if err := h.nl.RouteReplace(&netlink.Route{Dst: network, Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("route to %s by %s on %s: %w", to, via, h.Name, err)
	}
	return nil
}

// MAC returns the Ethernet address of a device.
func (h *Host) MAC(device string) ([6]byte, error) {
	l, err := h.link(device)
	if err != nil {
		return [6]byte{}, err
	}
	return [6]byte(l.Attrs().HardwareAddr), nil
}

// SetMTU sets the MTU of a device, in bytes.
func (h *Host) SetMTU(device string, mtu int) error {
	l, err := h.link(device)
	if err != nil {
		return err
	}
	return h.nl.LinkSetMTU(l, mtu)
}

// Sysctl sets a kernel parameter of the host, for example net/ipv4/ip_forward.
func (h *Host) Sysctl(name, value string) error {
	return h.Do(func() error { return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0) })
}

// TX turns the offload of checksums and segmentation of a device on or off. A veth has no hardware
// and passes packets on without either.
func (h *Host) TX(device string, on bool) error {
	return h.features(device, map[string]bool{"tx-checksum-ip-generic": on, "tx-checksum-sctp": on})
}

// GRO turns generic receive offload on or off. A veth needs it to accept frames that another
// interface's XDP program redirects to it.
func (h *Host) GRO(device string, on bool) error {
	return h.features(device, map[string]bool{"rx-gro": on})
}

func (h *Host) features(device string, features map[string]bool) error {
	return h.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		if err := e.Change(device, features); err != nil {
			return fmt.Errorf("features of %s of %s: %w", device, h.Name, err)
		}
		return nil
	})
}
