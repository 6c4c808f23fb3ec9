//go:build linux

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
)

const (
	lbDevice = "eth0"
	// lbVIPs are the addresses of VIPs, which the client reaches by the balancer.
	lbVIPs, lbVIPs6 = "10.99.9.0/24", "fd99:9::/64"
)

var (
	lbClient, lbClient6     = netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("fd99::1")
	lbBalancer, lbBalancer6 = netip.MustParseAddr("10.99.0.2"), netip.MustParseAddr("fd99::2")
)

// lbNetwork is a client, a balancer and backends on one switch. Each test has its
// own, so all have the same addresses.
type lbNetwork struct {
	testing.TB
	lab              *netlab.Lab
	sw               *netlab.Host
	client, balancer *netlab.Host
	backends         []*lbBackend // b1 and on
}

// newLBNetwork makes a network with so many backends, which serve nothing yet. In
// mode dsr they have these addresses of VIPs, and reply to the client by themselves.
func newLBNetwork(t testing.TB, backends int, mode string, vips ...string) *lbNetwork {
	t.Helper()
	n := &lbNetwork{TB: t, lab: netlabtest.New(t)}
	var err error
	n.sw, err = n.lab.Switch("switch")
	n.must(err)
	n.client = n.host("client", lbClient, lbClient6)
	n.balancer = n.host("balancer", lbBalancer, lbBalancer6)
	// A node that routes sends on what the balancer leaves alone. So a reply that it
	// forgets to translate, even one, resets its connection.
	n.must(n.balancer.Sysctl("net/ipv4/ip_forward", "1"))
	n.must(n.balancer.Sysctl("net/ipv4/conf/all/send_redirects", "0"))
	n.must(n.balancer.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	n.must(n.client.Route(netip.MustParsePrefix(lbVIPs), lbBalancer))
	n.must(n.client.Route(netip.MustParsePrefix(lbVIPs6), lbBalancer6))
	for i := range backends {
		b := &lbBackend{
			TB:       t,
			name:     fmt.Sprintf("b%d", i+1),
			address:  netip.AddrFrom4([4]byte{10, 99, 0, byte(11 + i)}),
			address6: netip.MustParseAddr(fmt.Sprintf("fd99::1%d", i+1)),
			sockets:  map[string]io.Closer{},
			open:     map[net.Conn]bool{},
		}
		b.host = n.host(b.name, b.address, b.address6)
		if mode == "nat" {
			n.must(b.host.Route(netip.PrefixFrom(lbClient, 32), lbBalancer))
			n.must(b.host.Route(netip.PrefixFrom(lbClient6, 128), lbBalancer6))
		} else {
			n.must(b.host.Sysctl("net/ipv4/conf/all/arp_ignore", "1")) // it has the VIP and does not tell
			n.must(b.host.Sysctl("net/ipv4/conf/all/arp_announce", "2"))
			for _, vip := range vips {
				a := netip.MustParseAddr(vip)
				n.must(b.host.Address("lo", netip.PrefixFrom(a, a.BitLen())))
			}
		}
		t.Cleanup(b.end)
		n.backends = append(n.backends, b)
	}
	return n
}

// host adds a host to the switch.
func (n *lbNetwork) host(name string, addresses ...netip.Addr) *netlab.Host {
	n.Helper()
	h, err := n.lab.Host(name)
	n.must(err)
	var prefixes []netip.Prefix
	for _, a := range addresses {
		bits := 24
		if a.Is6() {
			bits = 64
		}
		prefixes = append(prefixes, netip.PrefixFrom(a, bits))
	}
	n.must(netlab.Plug(n.sw, h, lbDevice, prefixes...))
	n.must(h.TX(lbDevice, false)) // no hardware makes the checksums here
	return h
}

func (n *lbNetwork) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// lbBackend answers each line and each datagram with its name and what it got. After
// the line "stream" it sends back all that comes.
type lbBackend struct {
	testing.TB
	name              string
	address, address6 netip.Addr
	host              *netlab.Host

	mu      sync.Mutex
	sockets map[string]io.Closer // by protocol and port
	open    map[net.Conn]bool
	work    sync.WaitGroup
}

// listen makes the backend serve a TCP port.
func (b *lbBackend) listen(port int) {
	b.Helper()
	var l net.Listener
	err := b.host.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(b.Context(), "tcp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		b.Fatalf("%s: %v", b.name, err)
	}
	b.note(fmt.Sprintf("tcp:%d", port), l)
	b.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.open[c] = true
			b.mu.Unlock()
			b.work.Go(func() {
				b.serve(c)
				_ = c.Close()
				b.mu.Lock()
				defer b.mu.Unlock()
				delete(b.open, c)
			})
		}
	})
}

func (b *lbBackend) serve(c net.Conn) {
	lines := bufio.NewReader(c)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if line == "stream\n" {
			_, _ = io.Copy(c, lines) // the client sees what is missing
			return
		}
		if _, err := fmt.Fprintf(c, "%s %s", b.name, line); err != nil {
			return
		}
	}
}

// listenUDP makes the backend serve a UDP port.
func (b *lbBackend) listenUDP(port int) {
	b.Helper()
	var socket *net.UDPConn
	err := b.host.Do(func() (err error) {
		socket, err = net.ListenUDP("udp", &net.UDPAddr{IP: b.address.AsSlice(), Port: port})
		return err
	})
	if err != nil {
		b.Fatalf("%s: %v", b.name, err)
	}
	b.note(fmt.Sprintf("udp:%d", port), socket)
	b.work.Go(func() {
		for buffer := make([]byte, 2048); ; {
			size, from, err := socket.ReadFromUDPAddrPort(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = socket.WriteToUDPAddrPort(
					fmt.Appendf(nil, "%s %s", b.name, buffer[:size]), from,
				) // the client sends again
			}
		}
	})
}

// serveHTTP makes the backend answer HTTP at a port.
func (b *lbBackend) serveHTTP(port int, h http.Handler) {
	b.Helper()
	var l net.Listener
	err := b.host.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(b.Context(), "tcp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		b.Fatalf("%s: %v", b.name, err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: patience}
	b.note(fmt.Sprintf("tcp:%d", port), server)
	b.work.Go(func() { _ = server.Serve(l) }) // until it is closed
}

func (b *lbBackend) note(name string, socket io.Closer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sockets[name] = socket
}

// refuse closes a TCP port; connections stay.
func (b *lbBackend) refuse(port int) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	name := fmt.Sprintf("tcp:%d", port)
	if err := b.sockets[name].Close(); err != nil {
		b.Error(err)
	}
	delete(b.sockets, name)
}

func (b *lbBackend) end() {
	b.mu.Lock()
	for _, s := range b.sockets {
		_ = s.Close() // the test is over
	}
	for c := range b.open {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.work.Wait()
}

// lbConn is a connection of the client to a VIP, and the backend that it is at.
type lbConn struct {
	net.Conn
	lines *bufio.Reader
	home  string
	asked int
}

// dialLimit is how long a new connection may take: as long as lost packets are
// repeated on a busy machine, and no shorter.
const dialLimit = 10 * time.Second

// dial opens a connection and asks who is there.
func (n *lbNetwork) dial(protocol, vip string, limit time.Duration) (*lbConn, error) {
	c := &lbConn{}
	err := n.client.Do(func() (err error) {
		c.Conn, err = (&net.Dialer{Timeout: limit}).DialContext(n.Context(), protocol, vip)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewReader(c.Conn)
	if err := c.ask(limit); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// connect is dial where it has to succeed. The connection lasts as long as the test.
func (n *lbNetwork) connect(protocol, vip string) *lbConn {
	n.Helper()
	c, err := n.dial(protocol, vip, dialLimit)
	if err != nil {
		n.Fatalf("a new connection to %s: %v", vip, err)
	}
	n.Cleanup(func() { _ = c.Close() })
	return c
}

// connectTo opens connections until one is at a backend.
func (n *lbNetwork) connectTo(b *lbBackend, protocol, vip string) *lbConn {
	n.Helper()
	for range 1000 {
		c, err := n.dial(protocol, vip, dialLimit)
		if err != nil {
			n.Fatalf("a new connection to %s: %v", vip, err)
		}
		if c.home == b.name {
			n.Cleanup(func() { _ = c.Close() })
			return c
		}
		_ = c.Close() // another one
	}
	n.Fatalf("none of 1000 connections to %s reached %s", vip, b.name)
	return nil
}

// ask sends a line and checks that it comes back, from the same backend as before.
func (c *lbConn) ask(limit time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	c.asked++
	text := fmt.Sprintf("question %d", c.asked)
	if _, err := fmt.Fprintln(c, text); err != nil {
		return err
	}
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return err
	}
	name, echo, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if echo != text {
		return fmt.Errorf("sent %q, got %q", text, line)
	}
	if c.home != "" && name != c.home {
		return fmt.Errorf("it was at %s and is at %s", c.home, name)
	}
	c.home = name
	return nil
}

// goesOn checks that connections still work both ways, each at its backend.
func (n *lbNetwork) goesOn(when string, conns ...*lbConn) {
	n.Helper()
	for _, c := range conns {
		if err := c.ask(dialLimit); err != nil {
			n.Errorf("%s: the connection to %s at %s: %v", when, c.RemoteAddr(), c.home, err)
		}
	}
}

// spread opens so many connections one after the other, all of which have to
// succeed, and counts them by backend.
func (n *lbNetwork) spread(vip string, count int) map[string]int {
	n.Helper()
	homes := map[string]int{}
	for i := range count {
		c, err := n.dial("tcp", vip, dialLimit)
		if err != nil {
			n.Fatalf("connection %d of %d to %s: %v (so far %v)", i+1, count, vip, err, homes)
		}
		_ = c.Close() // it was only asked
		homes[c.home]++
	}
	return homes
}

// unserved checks that a new connection gets no answer.
func (n *lbNetwork) unserved(vip string) {
	n.Helper()
	if c, err := n.dial("tcp", vip, 300*time.Millisecond); err == nil {
		_ = c.Close()
		n.Errorf("a new connection to %s is served, by %s", vip, c.home)
	}
}

// clientOn is an HTTP client on a host.
func clientOn(t testing.TB, h *netlab.Host) *http.Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = h.Do(func() error { c, err = (&net.Dialer{}).DialContext(ctx, network, address); return err })
			return c, err
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second, CheckRedirect: browserless.CheckRedirect}
}

func isTimeout(err error) bool { var e net.Error; return errors.As(err, &e) && e.Timeout() }
