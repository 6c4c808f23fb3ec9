//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/netlab"
)

// port is an interface with its program.
type port struct {
	name     string
	device   device
	program  *ebpf.Program
	settings *ebpf.Variable
	link     link.Link // nil while the program is not attached
}

// device describes an interface.
type device struct {
	index, mtu int
	mac        MAC
	driver     string // kind of device in netlink: device, veth, bridge, ...
	native     bool   // a program is attached in native mode
	impassable string
}

func findDevice(node *netlab.Host, name string) (device, error) {
	l, err := node.Netlink().LinkByName(name)
	if err != nil {
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return device{}, fault.New(
				fault.Unavailable, "there is no interface %s here; \"ip link\" lists those there are", name,
			)
		}
		return device{}, fault.Wrap(fault.Unavailable, err, "cannot look at interface %s", name)
	}
	a := l.Attrs()
	d := device{index: a.Index, mtu: a.MTU, driver: l.Type(), impassable: Impassable(a)}
	copy(d.mac[:], a.HardwareAddr)
	if a.Xdp != nil && a.Xdp.Attached {
		d.native = a.Xdp.AttachMode == xdpAttachedDriver
	}
	return d, nil
}

// Impassable returns why packets cannot pass an interface, or "" if there is no reason. Interfaces
// whose drivers do not detect a carrier count as having one.
func Impassable(a *netlink.LinkAttrs) string {
	switch {
	case a.RawFlags&unix.IFF_UP == 0:
		return fmt.Sprintf("interface %s is down", a.Name)
	case a.RawFlags&unix.IFF_LOWER_UP == 0:
		return fmt.Sprintf("interface %s has no carrier", a.Name)
	}
	return ""
}

// xdpAttachedDriver is XDP_ATTACHED_DRV of linux/if_link.h.
const xdpAttachedDriver = 1

// linkPin is the name of the pin of the link on the first interface. The pins of other interfaces
// have "-" and the interface's name appended.
const linkPin = "link"

func (d *Datapath) linkPin(p *port) string {
	if p == d.ports[0] {
		return filepath.Join(d.pins, linkPin)
	}
	return filepath.Join(d.pins, linkPin+"-"+p.name)
}

// attach attaches the program to the interfaces. If an earlier process left its program there,
// attach replaces it. All interfaces use the same mode: a program in native mode can send only to
// interfaces whose drivers accept frames from it.
func (d *Datapath) attach() error {
	if err := d.stageReplaced(); err != nil {
		return err
	}
	if err := d.detachStrays(); err != nil {
		return err
	}
	native := d.options.Mode == Native
	if d.options.Mode == Auto {
		attached, err := d.isPinned(d.ports[0])
		if err != nil {
			return err
		}
		native = !attached || d.ports[0].device.native
	}
	err := d.attachAll(native)
	if err != nil && d.options.Mode == Auto && native && !isBusy(err) {
		d.log.Warn("native mode does not work here; generic mode is used", "interfaces", d.Interfaces(), "error", err)
		err = d.attachAll(false)
	}
	if err != nil {
		return err
	}
	return d.commitReplaced()
}

func isBusy(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) }

func (d *Datapath) attachAll(native bool) error {
	for _, p := range d.ports {
		if p.link != nil { // the other mode was tried
			if err := d.detachPort(p); err != nil {
				return err
			}
		}
		if err := d.attachPort(p, native); err != nil {
			return err
		}
	}
	d.mode = Generic
	if native {
		d.mode = Native
	}
	return nil
}

func (d *Datapath) detachPort(p *port) error {
	var err error
	if d.pins != "" {
		err = p.link.Unpin()
	}
	err = errors.Join(err, p.link.Close())
	p.link = nil
	return err
}

func (d *Datapath) attachPort(p *port, native bool) error {
	if err := d.configure(p, native); err != nil {
		return err
	}
	taken, err := d.takeOver(p, native)
	if taken || err != nil {
		return err
	}
	flags := link.XDPGenericMode
	if native {
		flags = link.XDPDriverMode
	}
	err = d.node.Do(func() (err error) {
		p.link, err = link.AttachXDP(link.XDPOptions{Program: p.program, Interface: p.device.index, Flags: flags})
		return err
	})
	if isBusy(err) {
		return fault.Wrap(fault.Unavailable, err, "interface %s has another XDP program: %s", p.name, d.occupant(p))
	}
	if err != nil {
		return fmt.Errorf("attach the XDP program to %s: %w", p.name, err)
	}
	p.device.native = native
	if d.pins == "" {
		return nil
	}
	if err := p.link.Pin(d.linkPin(p)); err != nil {
		return fmt.Errorf("pin the XDP program: %w", err)
	}
	return nil
}

// occupant describes the program on an interface, and how to remove it. "ip link set xdp off"
// cannot remove a program that is held by a BPF link, as this one and those of most daemons are.
func (d *Datapath) occupant(p *port) string {
	if d.pins != "" {
		pins, _ := filepath.Glob(filepath.Join(filepath.Dir(d.pins), "*", linkPin+"*"))
		for _, pin := range pins {
			if index, err := interfaceOfLink(pin); err == nil && index == p.device.index {
				return fmt.Sprintf(
					"one of a load balancer whose first interface is %s; \"mainstay serve lb --config FILE --detach\" with its document removes it",
					filepath.Base(filepath.Dir(pin)),
				)
			}
		}
	}
	return fmt.Sprintf(
		"\"ip -details link show dev %s\" shows it. \"ip link set dev %s xdp off\" removes it, unless a BPF link holds it, which \"bpftool link\" tells: then stop the program that made the link",
		p.name, p.name,
	)
}

func interfaceOfLink(pin string) (int, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil || info.XDP() == nil {
		return 0, err
	}
	return int(info.XDP().Ifindex), nil
}

// isPinned reports whether an earlier process left the program on an interface.
func (d *Datapath) isPinned(p *port) (bool, error) {
	if d.pins == "" {
		return false, nil
	}
	index, err := interfaceOfLink(d.linkPin(p))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return index == p.device.index, err
}

// detachStrays detaches the program from interfaces that are no longer configured.
func (d *Datapath) detachStrays() error {
	if d.pins == "" {
		return nil
	}
	found, err := filepath.Glob(filepath.Join(d.pins, linkPin+"-*"))
	if err != nil {
		return err
	}
	for _, pin := range found {
		if slices.ContainsFunc(d.ports, func(p *port) bool { return d.linkPin(p) == pin }) {
			continue
		}
		if err := errors.Join(detachPinned(pin), os.Remove(pin)); err != nil {
			return err
		}
	}
	return nil
}

// takeOver replaces the program of a pinned link without losing packets. It reports whether it did.
func (d *Datapath) takeOver(p *port, native bool) (bool, error) {
	if d.pins == "" {
		return false, nil
	}
	old, err := link.LoadPinnedLink(d.linkPin(p), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the pinned XDP program: %w", err)
	}
	info, err := old.Info()
	if err != nil {
		return false, errors.Join(err, old.Close())
	}
	if info.XDP() == nil || int(info.XDP().Ifindex) != p.device.index || p.device.native != native {
		// The interface was recreated or the mode changed: there is a gap.
		return false, errors.Join(old.Unpin(), old.Close())
	}
	if err := old.Update(p.program); err != nil {
		return false, errors.Join(fmt.Errorf("replace the XDP program: %w", err), old.Close())
	}
	p.link = old
	return true, nil
}

// configure sets the program's variables for an interface and its mode.
func (d *Datapath) configure(p *port, native bool) error {
	redirect := d.options.Transmit == TransmitRedirect ||
		d.options.Transmit == TransmitAuto && native && p.device.driver == "veth"
	h := d.known.host
	h.Mac, h.Mtu = p.device.mac, uint16(min(p.device.mtu, 65535))
	h.Redirect, h.Offloads = flag(redirect), flag(!native)
	if err := p.settings.Set(h); err != nil {
		return fmt.Errorf("configure the BPF program: %w", err)
	}
	return nil
}

func (d *Datapath) configureAll() error {
	for _, p := range d.ports {
		if err := d.configure(p, d.mode == Native); err != nil {
			return err
		}
	}
	return nil
}

func flag(set bool) uint8 {
	if set {
		return 1
	}
	return 0
}

// Detach removes the programs of an interface, and of those that were given with it as
// Options.More, with everything that belongs to them. It reports whether there was anything. dir is
// as in Options.
func Detach(dir, name string) (bool, error) {
	pins, err := pinFolder(dir, name)
	if err != nil {
		return false, err
	}
	if pins == "" {
		return false, nil
	}
	lock, err := lockFolder(pins, name)
	if err != nil {
		return false, err
	}
	defer func() { _ = durable.Unlock(lock) }()
	entries, err := os.ReadDir(pins)
	if err != nil {
		return false, err
	}
	links, err := filepath.Glob(filepath.Join(pins, linkPin+"*"))
	if err != nil {
		return true, err
	}
	for _, pin := range links {
		if err := detachPinned(pin); err != nil {
			return true, err
		}
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(pins, e.Name())); err != nil {
			return true, err
		}
	}
	if err := os.Remove(pins); err != nil {
		return true, err
	}
	_ = os.Remove(filepath.Dir(pins)) // fails if it holds folders of other interfaces
	return len(entries) > 0, nil
}

// detachPinned ends a link at once. If it were only unpinned, it would end some time after its last
// user has closed it.
func detachPinned(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the pinned XDP program: %w", err)
	}
	return errors.Join(l.Detach(), l.Close())
}

// pinFolder creates the folder for the pins of an interface, and mounts the BPF file system if
// necessary. The folder's name contains the network namespace unless it is the host's, since
// interfaces of different namespaces can have the same name.
func pinFolder(dir, name string) (string, error) {
	if dir == "" {
		return "", nil
	}
	if err := mountBPF(dir); err != nil {
		return "", err
	}
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return "", err
	}
	if first, err := os.Readlink("/proc/1/ns/net"); err != nil || first != own {
		name += "@" + strings.Trim(strings.TrimPrefix(own, "net:"), "[]")
	}
	folder := filepath.Join(dir, "mainstay-lb", name)
	return folder, os.MkdirAll(folder, 0o700)
}

// lockFolder prevents two processes from balancing on the same interface and undoing each other's
// changes. The lock is held until unlock, or until the process ends.
func lockFolder(pins, name string) (*os.File, error) {
	f, err := os.Open(pins) //nolint:gosec // made of the operator's own settings
	if err != nil {
		return nil, err
	}
	if err = durable.Lock(f); errors.Is(err, durable.ErrLocked) {
		err = fault.New(fault.Unavailable, "another process balances on interface %s; stop it first", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func mountBPF(dir string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if stat.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount the BPF file system at %s: %w", dir, err)
	}
	return nil
}
