//go:build linux

package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// patience bounds what a test waits for something that must come.
const patience = 20 * time.Second

// site is a host with a Manager, in a network namespace of its own.
type site struct {
	t    testing.TB
	lab  *netlab.Lab
	host *netlab.Host
	m    *Manager
}

func newSite(t testing.TB, o Options) *site {
	t.Helper()
	lab := netlabtest.New(t)
	host, err := lab.Host("host")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, lab: lab, host: host}
	if o.LeaseFile == "" {
		o.LeaseFile = filepath.Join(t.TempDir(), "leases.json")
	}
	if o.DNS == nil {
		o.DNS = []netip.Addr{netip.MustParseAddr("192.0.2.53")}
	}
	s.m = s.manager(o)
	if err := s.do(s.m.Check); err != nil {
		require.Missing(t, "%v", err)
	}
	return s
}

func (s *site) manager(o Options) *Manager {
	s.t.Helper()
	m, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *site) do(fn func() error) error { return s.host.Do(fn) }

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func hw(n byte) net.HardwareAddr { return net.HardwareAddr{0x52, 0x54, 0, 0, 0, n} }

func (s *site) attach(p Port) Attached {
	s.t.Helper()
	a, err := s.tryAttach(p)
	s.must(err)
	return a
}

func (s *site) tryAttach(p Port) (a Attached, err error) {
	err = errors.Join(s.do(func() (e error) { a, e = s.m.Attach(s.t.Context(), p); return e }))
	return a, err
}

// run serves DHCP until the test ends.
func (s *site) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.do(func() error { return s.m.Run(ctx) }) }()
	s.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				s.t.Error(err)
			}
		case <-time.After(patience):
			s.t.Error("the server does not end")
		}
	})
}

// vnetHeader is what QEMU's vnet_hdr puts before each frame, in bytes.
const vnetHeader = 10

// wire is an open tap, as QEMU has it.
type wire struct{ f *os.File }

// open opens a tap of a host, which is made if it is not there.
func open(t testing.TB, h *netlab.Host, name string) wire {
	t.Helper()
	var f *os.File
	err := h.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err == nil {
			request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err == nil {
			err = unix.SetNonblock(fd, true)
		}
		f = os.NewFile(uintptr(fd), name)
		return err
	})
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return wire{f}
}

func (w wire) send(t testing.TB, frame []byte) {
	t.Helper()
	if _, err := w.f.Write(append(make([]byte, vnetHeader), frame...)); err != nil {
		t.Fatal(err)
	}
}

// await reads frames until one is as wanted, and returns those before it.
func (w wire) await(t *testing.T, wanted func(frame []byte) bool) (before [][]byte, found []byte) {
	t.Helper()
	if err := w.f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	for {
		b := make([]byte, 2048)
		n, err := w.f.Read(b)
		if err != nil {
			t.Fatalf("the frame that was waited for did not come: %v", err)
		}
		if b = b[vnetHeader:n]; wanted(b) {
			return before, b
		}
		before = append(before, b)
	}
}

// join sends a frame until it is seen elsewhere: a bridge forwards only some time
// after both devices were opened. It may be seen several times.
func join(t testing.TB, from, at wire, frame []byte) {
	t.Helper()
	b := make([]byte, 2048)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		from.send(t, frame)
		for {
			if err := at.f.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			n, err := at.f.Read(b)
			if err != nil {
				break
			}
			if bytes.HasPrefix(b[vnetHeader:n], frame) {
				return
			}
		}
	}
	t.Fatal("nothing is forwarded")
}

// guest is a host with the network stack of this kernel behind the tap of a VM: what
// goes into its eth0 comes out of the tap, as through a QEMU.
func (s *site) guest(name string, mac net.HardwareAddr, a Attached) *netlab.Host {
	s.t.Helper()
	h, err := s.lab.Host(name)
	s.must(err)
	inside, outside := open(s.t, h, "eth0"), open(s.t, s.host, a.Tap)
	s.must(h.Run("ip", "link", "set", "eth0", "address", mac.String(), "up"))
	pump := func(from, to wire) {
		b := make([]byte, 1<<17)
		for {
			n, err := from.f.Read(b)
			if err != nil {
				return // closed
			}
			_, _ = to.f.Write(b[:n]) // a device that is down loses frames
		}
	}
	go pump(inside, outside)
	go pump(outside, inside)
	return h
}

// dhcp gets an address for a guest with busybox' client, and returns what it was told.
func dhcp(t *testing.T, h *netlab.Host) map[string]string {
	t.Helper()
	busybox := require.Program(t, "busybox", "busybox")
	dir := t.TempDir()
	script, told := filepath.Join(dir, "script"), filepath.Join(dir, "told")
	text := fmt.Sprintf(`#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr add "$ip/$mask" dev "$interface" && ip link set "$interface" mtu "$mtu" && ip route add default via "$router"
printf 'ip=%%s\nmask=%%s\nrouter=%%s\ndns=%%s\nmtu=%%s\nhostname=%%s\nlease=%%s\n' "$ip" "$mask" "$router" "$dns" "$mtu" "$hostname" "$lease" > %s
`, told)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.Run(
		busybox, "udhcpc", "-f", "-q", "-n", "-t", "8", "-T", "1", "-i", "eth0", "-s", script, "-O", "mtu", "-O",
		"hostname",
	); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(told)
	if err != nil {
		t.Fatal(err)
	}
	facts := map[string]string{}
	for line := range strings.Lines(string(content)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		facts[k] = v
	}
	return facts
}

func ping(h *netlab.Host, to string, seconds int) error {
	return h.Run("busybox", "ping", "-c", "1", "-W", fmt.Sprint(seconds), to)
}

// nft changes or lists the rules of a host.
func (s *site) nft(text string) {
	s.t.Helper()
	program := require.Program(s.t, "nft", "nftables")
	cmd := exec.CommandContext(s.t.Context(), program, "-f", "-")
	cmd.Stdin = strings.NewReader(text + "\n")
	var out strings.Builder
	cmd.Stderr = &out
	s.must(s.host.Start(cmd))
	if err := cmd.Wait(); err != nil {
		s.t.Fatalf("%v: %s", err, out.String())
	}
}

// ethernet makes a frame.
func ethernet(to, from net.HardwareAddr, kind uint16, payload ...byte) []byte {
	b := append(append([]byte{}, to...), from...)
	b = binary.BigEndian.AppendUint16(b, kind)
	return append(b, payload...)
}

func arp(from net.HardwareAddr, sender net.HardwareAddr, ip, asks string) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	b = append(b, sender...)
	b = append(b, netip.MustParseAddr(ip).AsSlice()...)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = append(b, netip.MustParseAddr(asks).AsSlice()...)
	return ethernet(everybody, from, unix.ETH_P_ARP, b...)
}

var everybody = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// udp makes an IPv4 packet for all.
func udp(from net.HardwareAddr, ip string, source, destination uint16, payload []byte) []byte {
	b := frame(mac(from), mac(everybody), netip.MustParseAddr(ip), broadcast, payload)
	binary.BigEndian.PutUint16(b[34:], source)
	binary.BigEndian.PutUint16(b[36:], destination)
	b[40], b[41] = 0, 0 // no checksum
	return b
}

// udp6 and icmp6 make IPv6 packets to all nodes.
func ip6(from net.HardwareAddr, next byte, payload ...byte) []byte {
	b := []byte{0x60, 0, 0, 0, 0, byte(len(payload)), next, 255}
	b = append(b, netip.MustParseAddr("fe80::1").AsSlice()...)
	b = append(b, netip.MustParseAddr("ff02::1").AsSlice()...)
	return ethernet(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, from, unix.ETH_P_IPV6, append(b, payload...)...)
}
