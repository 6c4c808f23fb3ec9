//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/netlab"
)

// device is the interface that the program is on.
type device struct {
	index, mtu int
	mac        MAC
	driver     string // the kind of device, as netlink has it: device, veth, bridge, ...
	native     bool   // a program is attached in native mode
}

func findDevice(node *netlab.Host, name string) (device, error) {
	l, err := node.Netlink().LinkByName(name)
	if err != nil {
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return device{}, fault.New(fault.Unavailable, "there is no interface %s here; \"ip link\" lists those there are", name)
		}
		return device{}, fault.Wrap(fault.Unavailable, err, "cannot look at interface %s", name)
	}
	a := l.Attrs()
	d := device{index: a.Index, mtu: a.MTU, driver: l.Type()}
	copy(d.mac[:], a.HardwareAddr)
	if a.Xdp != nil && a.Xdp.Attached {
		d.native = a.Xdp.AttachMode == xdpAttachedDriver
	}
	return d, nil
}

// xdpAttachedDriver is XDP_ATTACHED_DRV of linux/if_link.h.
const xdpAttachedDriver = 1

const linkPin = "link"

// attach puts the program on the interface, in the place of an earlier process's
// one where there is one.
func (d *Datapath) attach() error {
	native := d.options.Mode == Native || d.options.Mode == Auto
	taken, err := d.takeOver(native)
	if err != nil {
		return err
	}
	if taken {
		return nil
	}
	err = d.attachAs(native)
	if err != nil && d.options.Mode == Auto && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EEXIST) {
		d.log.Warn("native mode does not work on this interface; generic mode is used", "interface", d.options.Interface, "error", err)
		err = d.attachAs(false)
	}
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		name := d.options.Interface
		return fault.Wrap(fault.Unavailable, err, "interface %s has another XDP program; \"ip link show dev %s\" shows it and \"ip link set dev %s xdp off\" removes it", name, name, name)
	}
	if err != nil {
		return fmt.Errorf("attach the XDP program to %s: %w", d.options.Interface, err)
	}
	if d.pins == "" {
		return nil
	}
	if err := d.link.Pin(filepath.Join(d.pins, linkPin)); err != nil {
		return fmt.Errorf("pin the XDP program: %w", err)
	}
	return nil
}

func (d *Datapath) attachAs(native bool) (err error) {
	flags := link.XDPGenericMode
	if native {
		flags = link.XDPDriverMode
	}
	if err := d.setHost(native); err != nil {
		return err
	}
	return d.node.Do(func() error {
		d.link, err = link.AttachXDP(link.XDPOptions{Program: d.objects.Balance, Interface: d.device.index, Flags: flags})
		return err
	})
}

// takeOver replaces the program of a pinned link, which loses no packet.
func (d *Datapath) takeOver(native bool) (bool, error) {
	if d.pins == "" {
		return false, nil
	}
	path := filepath.Join(d.pins, linkPin)
	old, err := link.LoadPinnedLink(path, nil)
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
	fits := info.XDP() != nil && int(info.XDP().Ifindex) == d.device.index && (d.device.native == native || d.options.Mode == Auto)
	if !fits {
		// The interface was made anew, or the mode changed: there is a gap.
		return false, errors.Join(old.Unpin(), old.Close())
	}
	if err := d.setHost(d.device.native); err != nil {
		return false, errors.Join(err, old.Close())
	}
	if err := old.Update(d.objects.Balance); err != nil {
		return false, errors.Join(fmt.Errorf("replace the XDP program: %w", err), old.Close())
	}
	d.link = old
	return true, nil
}

// setHost tells the program about the interface and how it is attached.
func (d *Datapath) setHost(native bool) error {
	d.mode = Generic
	if native {
		d.mode = Native
	}
	redirect := d.options.Transmit == TransmitRedirect || d.options.Transmit == TransmitAuto && native && d.device.driver == "veth"
	h := &d.known.host
	h.Mac, h.Mtu = d.device.mac, uint16(min(d.device.mtu, 65535))
	h.Redirect, h.Offloads = flag(redirect), flag(!native)
	return d.writeHost()
}

func (d *Datapath) writeHost() error {
	if err := d.objects.Settings.Set(d.known.host); err != nil {
		return fmt.Errorf("configure the BPF program: %w", err)
	}
	return nil
}

func flag(set bool) uint8 {
	if set {
		return 1
	}
	return 0
}

// Detach removes the program of an interface and all that belongs to it. It says
// whether there was anything. dir is as in Options.
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
	defer lock.Close()
	entries, err := os.ReadDir(pins)
	if err != nil {
		return false, err
	}
	if err := detachPinned(filepath.Join(pins, linkPin)); err != nil {
		return true, err
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(pins, e.Name())); err != nil {
			return true, err
		}
	}
	if err := os.Remove(pins); err != nil {
		return true, err
	}
	_ = os.Remove(filepath.Dir(pins)) // other interfaces may have theirs in it
	return len(entries) > 0, nil
}

// detachPinned ends a link at once. Unpinning it alone would end it some time after
// its last user is gone.
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

func removeMapPins(pins string) error {
	for _, name := range pinnedMaps() {
		if err := os.Remove(filepath.Join(pins, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// pinFolder makes the folder for what belongs to an interface, and mounts the BPF
// file system if it is not. Interfaces of other network namespaces than the host's
// may have the same name, so the namespace is part of theirs.
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

// lockFolder keeps two processes from balancing on one interface: each would undo
// what the other does. The lock is held until the file is closed.
func lockFolder(pins, name string) (*os.File, error) {
	f, err := os.Open(pins) //nolint:gosec // made of the operator's own settings
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
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
