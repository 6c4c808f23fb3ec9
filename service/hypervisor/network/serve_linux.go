package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

// checkEvery is how often Run checks rules and bridge. Programs that load their own rules often
// flush all others.
const checkEvery = 5 * time.Second

// server listens for DHCP requests on the managed bridge.
type server struct {
	questions net.PacketConn
	raw       int // a packet socket, by which answers go out
	link      int // the index of the bridge
	mac       mac
	answers   answerer
}

// Run answers DHCP requests on the managed bridge, once that exists, and restores rules that other
// programs removed, until ctx ends. It reads the records of network policies. It then removes the
// rules if no VM needs them.
func (m *Manager) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, m.wakeServer)()
	defer m.record(ctx)()
	for ctx.Err() == nil {
		s, err := m.listen()
		if err != nil {
			m.o.Log.Error("guests get no addresses", "error", err)
		}
		if s == nil {
			select {
			case <-ctx.Done():
			case <-m.bridged:
			case <-time.After(checkEvery):
			}
			m.repair()
			continue
		}
		m.serve(ctx, s)
		s.close()
	}
	return m.leave()
}

// wakeServer interrupts waiting for a request.
func (m *Manager) wakeServer() {
	select {
	case m.bridged <- struct{}{}:
	default:
	}
	m.serverMu.Lock()
	defer m.serverMu.Unlock()
	if m.server != nil {
		m.server.wake()
	}
}

func (s *server) wake() { _ = s.questions.SetReadDeadline(time.Unix(1, 0)) } // fails only on a closed socket

// listen opens the sockets of the server, or returns nil if there is no bridge.
func (m *Manager) listen() (*server, error) {
	link, err := findLink(m.o.Bridge)
	if link == nil || err != nil {
		return nil, err
	}
	s := &server{link: link.Attrs().Index, mac: bridgeMAC(m.o)}
	s.answers = answerer{book: m.book, mtu: m.o.MTU, dns: m.servers}
	if hw := link.Attrs().HardwareAddr; len(hw) == len(s.mac) {
		s.mac = mac(hw)
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), // beside servers on other devices
				unix.BindToDevice(int(fd), m.o.Bridge),
			)
		})
		return errors.Join(err, failed)
	}}
	address := netip.AddrPortFrom(netip.IPv4Unspecified(), serverPort).String()
	if s.questions, err = config.ListenPacket(context.Background(), "udp4", address); err != nil {
		return nil, kernel(fmt.Errorf("listen for DHCP on bridge %s: %w", m.o.Bridge, err))
	}
	if s.raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return nil, errors.Join(kernel(err), s.questions.Close())
	}
	m.serverMu.Lock()
	defer m.serverMu.Unlock()
	m.server = s
	return s, nil
}

func (m *Manager) servers() []netip.Addr {
	if m.o.DNS != nil {
		return m.o.DNS
	}
	return hostServers(resolvFiles)
}

func (s *server) close() {
	_ = s.questions.Close() // nothing is in it that anybody waits for
	_ = unix.Close(s.raw)
}

// serve answers requests until ctx ends or the bridge is replaced. It never waits for a guest:
// requests are limited in length and, by the rules, in number.
func (m *Manager) serve(ctx context.Context, s *server) {
	defer func() {
		m.serverMu.Lock()
		m.server = nil
		m.serverMu.Unlock()
	}()
	buffer := make([]byte, maxQuestion+1)
	for next := time.Now(); ; {
		if now := time.Now(); !now.Before(next) {
			m.repair()
			next = now.Add(checkEvery)
		}
		if err := s.questions.SetReadDeadline(next); err != nil || ctx.Err() != nil || !m.listensOn(s) {
			return
		}
		for {
			n, _, err := s.questions.ReadFrom(buffer)
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					m.o.Log.Warn("listening for DHCP failed; listening anew", "error", err)
					return
				}
				break
			}
			// A request that causes a panic must not keep other guests from getting addresses.
			_ = routine.Run(m.o.Log, "DHCP answer", func() { m.answer(s, buffer[:n]) }) // logged
			if !time.Now().Before(next) {
				break
			}
		}
	}
}

// listensOn reports whether the bridge is the one that s listens on.
func (m *Manager) listensOn(s *server) bool {
	link, err := netlink.LinkByName(m.o.Bridge)
	return err == nil && link.Attrs().Index == s.link
}

func (m *Manager) answer(s *server, question []byte) {
	reply, to, why := s.answers.answer(question)
	if reply == nil {
		m.o.Log.Debug("a DHCP message is not answered", "reason", why, "bytes", len(question))
		return
	}
	hw := mac(reply.ClientHWAddr)
	if to == broadcast {
		hw = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	b := frame(s.mac, hw, m.o.Address.Addr(), to, reply.ToBytes())
	if err := unix.Sendto(s.raw, b, 0, &unix.SockaddrLinklayer{Ifindex: s.link, Halen: 6}); err != nil {
		m.o.Log.Warn("a DHCP answer cannot be sent; the guest asks again", "mac", hw, "error", err)
	}
}

// repair rebuilds the rules if they were removed.
func (m *Manager) repair() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ready {
		return
	}
	stand, err := rulesStand(m.o)
	if err == nil && stand {
		stand, err = m.policiesStand()
	}
	if err == nil && stand {
		err = m.filterAll() // another daemon may have turned it off
	}
	if err == nil && stand {
		return
	}
	if err == nil {
		m.o.Log.Warn("the rules of the guests were removed by another program; making them anew")
		err = m.rebuild()
	}
	if err != nil {
		m.o.Log.Error("the rules of the guests cannot be made", "error", err)
	}
}
