//go:build linux

package datapath_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/datapath/decap"
)

// A network of a client, a node with the balancer and backends on one switch. The
// client has a route to the VIPs by the node; the backends have theirs to the client
// by the node too, and the VIPs on loopback for direct returns.
type network struct {
	t        *testing.T
	sw       *netlab.Host
	client   *netlab.Host
	node     *netlab.Host
	backends []*backendHost
	log      *slog.Logger
	dir      string
}

type backendHost struct {
	*netlab.Host
	address4, address6 netip.Addr
	mac                datapath.MAC
}

const device = "eth0"

var (
	client4, client6 = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd09::1")
	node4, node6     = netip.MustParseAddr("10.9.0.254"), netip.MustParseAddr("fd09::fe")
	vip4, vip6       = netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("fd09:9::9")
)

func newNetwork(t *testing.T, backends int) *network {
	t.Helper()
	lab := netlabtest.New(t)
	n := &network{t: t, log: slog.New(slog.NewTextHandler(t.Output(), nil)), dir: "/sys/fs/bpf"}
	sw, err := lab.Switch("switch")
	n.must(err)
	n.sw = sw
	host := func(name string, a4, a6 netip.Addr) *netlab.Host {
		h, err := lab.Host(name)
		n.must(err)
		n.must(netlab.Plug(sw, h, device, netip.PrefixFrom(a4, 24), netip.PrefixFrom(a6, 64)))
		n.must(h.TX(device, false))
		return h
	}
	n.client = host("client", client4, client6)
	n.node = host("node", node4, node6)
	n.must(n.client.Route(netip.PrefixFrom(vip4, 32), node4))
	n.must(n.client.Route(netip.PrefixFrom(vip6, 128), node6))
	n.must(n.node.Sysctl("net/ipv4/ip_forward", "1"))
	n.must(n.node.Sysctl("net/ipv4/conf/all/send_redirects", "0"))
	n.must(n.node.Sysctl("net/ipv6/conf/all/forwarding", "1"))
	for i := range backends {
		b := &backendHost{
			address4: netip.AddrFrom4([4]byte{10, 9, 0, byte(11 + i)}),
			address6: netip.MustParseAddr("fd09::1" + strconv.Itoa(1+i)),
		}
		b.Host = host("b"+strconv.Itoa(1+i), b.address4, b.address6)
		// A backend has the VIP and does not tell.
		n.must(b.Sysctl("net/ipv4/conf/all/arp_ignore", "1"))
		n.must(b.Sysctl("net/ipv4/conf/all/arp_announce", "2"))
		n.must(b.Sysctl("net/ipv4/conf/all/rp_filter", "0"))
		n.must(b.Sysctl("net/ipv4/conf/"+device+"/rp_filter", "0"))
		n.must(b.Address("lo", netip.PrefixFrom(vip4, 32), netip.PrefixFrom(vip6, 128)))
		mac, err := b.MAC(device)
		n.must(err)
		b.mac = mac
		n.backends = append(n.backends, b)
	}
	return n
}

func (n *network) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// routeBack makes backends send their replies to the client by way of the node, as
// NAT without a new source needs.
func (n *network) routeBack() {
	n.t.Helper()
	for _, b := range n.backends {
		n.must(b.Route(netip.PrefixFrom(client4, 32), node4))
		n.must(b.Route(netip.PrefixFrom(client6, 128), node6))
	}
}

// decapsulate takes tunnels off on the backends.
func (n *network) decapsulate() {
	n.t.Helper()
	for _, b := range n.backends {
		var detach func() error
		n.must(b.Do(func() (err error) { detach, err = decap.Attach(device); return err }))
		n.t.Cleanup(func() { n.must(detach()) })
	}
}

// open starts a datapath on the node, which is detached when the test ends.
func (n *network) open(change ...func(*datapath.Options)) *datapath.Datapath {
	n.t.Helper()
	o := datapath.Options{
		Interface:     device,
		Mode:          datapath.Generic,
		TunnelSource:  node4,
		TunnelSource6: node6,
		Dir:           n.dir,
		Log:           n.log,
		Flows:         65536,
	}
	for _, c := range change {
		c(&o)
	}
	var d *datapath.Datapath
	n.must(n.node.Do(func() (err error) {
		d, err = datapath.Open(n.t.Context(), o)
		return err
	}))
	n.t.Cleanup(func() {
		_ = d.Close() // a test may have closed it
		n.must(n.node.Do(func() error { _, err := datapath.Detach(n.dir, device); return err }))
	})
	return d
}

// nativePeers makes the switch's ports take frames that native programs redirect.
func (n *network) nativePeers() {
	n.t.Helper()
	n.must(n.sw.GRO("p-node", true))
	n.must(n.sw.TX("p-node", false))
}

// hop is the way from the node to a backend.
func (n *network) hop(b *backendHost, six bool) datapath.NextHop {
	n.t.Helper()
	h := datapath.NextHop{MTU: 1500, Destination: b.mac, Local: node4}
	if six {
		h.Local = node6
	}
	n.must(n.node.Do(func() error {
		i, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		h.Interface, h.Source = i.Index, datapath.MAC(i.HardwareAddr)
		return nil
	}))
	return h
}

// vip is a VIP with all backends, healthy. With six, it is an IPv6 one; with
// tunnel6, its backends are reached over IPv6.
func (n *network) vip(p datapath.Protocol, m datapath.Mode, port uint16, six, backend6 bool) datapath.VIP {
	v := datapath.VIP{VIPKey: datapath.VIPKey{Address: vip4, Port: port, LastPort: port, Protocol: p}, Mode: m}
	if six {
		v.Address = vip6
	}
	for _, b := range n.backends {
		k := datapath.BackendKey{Address: b.address4, Port: port}
		if backend6 {
			k.Address = b.address6
		}
		v.Backends = append(
			v.Backends, datapath.Backend{BackendKey: k, Weight: 1, State: datapath.Healthy, Hop: n.hop(b, backend6)},
		)
	}
	return v
}

// listen makes every backend answer on a port, on all its addresses.
func (n *network) listen(p datapath.Protocol, port uint16) {
	for _, b := range n.backends {
		n.must(b.Do(func() error {
			if p == datapath.TCP {
				l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
				if err != nil {
					return err
				}
				n.t.Cleanup(func() { _ = l.Close() })
				go serveTCP(l, b.Name)
				return nil
			}
			// A reply must come from the address that was asked: one socket for each.
			for _, a := range []netip.Addr{vip4, vip6, b.address4, b.address6} {
				c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, port)))
				if err != nil {
					return err
				}
				n.t.Cleanup(func() { _ = c.Close() })
				go serveUDP(c, b.Name)
			}
			return nil
		}))
	}
}

// serveTCP answers each connection: the first line is a number of bytes that follow
// and, after a space, a number of bytes to send. It answers with its name, the hash
// of what came, and the bytes.
func serveTCP(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for {
				var up, down int64
				if _, err := fmt.Fscanf(c, "%d %d\n", &up, &down); err != nil {
					return
				}
				h := sha256.New()
				if _, err := io.CopyN(h, c, up); err != nil {
					return
				}
				if _, err := fmt.Fprintf(c, "%s %s\n", name, hex.EncodeToString(h.Sum(nil))); err != nil {
					return
				}
				if _, err := io.CopyN(c, pattern{}, down); err != nil {
					return
				}
			}
		}()
	}
}

// pattern reads as bytes without end that are not all the same.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i % 251)
	}
	return len(p), nil
}

func serveUDP(c *net.UDPConn, name string) {
	buf := make([]byte, 65536)
	for {
		size, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		sum := sha256.Sum256(buf[:size])
		answer := append([]byte(name+" "+hex.EncodeToString(sum[:])+"\n"), buf[:size]...)
		if _, err := c.WriteToUDPAddrPort(answer[:min(len(answer), 60000)], from); err != nil {
			return
		}
	}
}

// patience is more than anything takes, on a busy machine too.
const patience = time.Minute

func (n *network) dial(p datapath.Protocol, to netip.AddrPort) (net.Conn, error) {
	var c net.Conn
	err := n.client.Do(func() (err error) {
		d := net.Dialer{Timeout: patience}
		c, err = d.DialContext(context.Background(), p.String(), to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c, c.SetDeadline(time.Now().Add(patience))
}

// ask sends up bytes and wants down bytes; it returns who answered.
func ask(c net.Conn, up, down int64) (string, error) {
	h := sha256.New()
	sent := make(chan error, 1)
	go func() {
		_, err := fmt.Fprintf(c, "%d %d\n", up, down)
		if err == nil {
			_, err = io.CopyN(io.MultiWriter(c, h), pattern{}, up)
		}
		sent <- err
	}()
	var name, sum string
	if _, err := fmt.Fscanf(c, "%s %s\n", &name, &sum); err != nil {
		return "", errors.Join(err, <-sent)
	}
	if err := <-sent; err != nil {
		return name, err
	}
	if sum != hex.EncodeToString(h.Sum(nil)) {
		return name, errors.New("the backend got something else than was sent")
	}
	got, want := sha256.New(), sha256.New()
	if _, err := io.CopyN(got, c, down); err != nil {
		return name, err
	}
	_, _ = io.CopyN(want, splitPattern{}, down)
	if string(got.Sum(nil)) != string(want.Sum(nil)) {
		return name, errors.New("the client got something else than was sent")
	}
	return name, nil
}

// splitPattern reads what a connection delivers of pattern, which io.CopyN reads in
// pieces of 32 KiB.
type splitPattern struct{}

func (splitPattern) Read(p []byte) (int, error) { return pattern{}.Read(p[:min(len(p), 32<<10)]) }

// askUDP sends one datagram; it returns who answered.
func askUDP(c net.Conn, size int) (string, error) {
	datagram := make([]byte, size)
	_, _ = pattern{}.Read(datagram)
	if _, err := c.Write(datagram); err != nil {
		return "", err
	}
	answer := make([]byte, 65536)
	got, err := c.Read(answer)
	if err != nil {
		return "", err
	}
	line, rest, _ := strings.Cut(string(answer[:got]), "\n")
	name, sum, _ := strings.Cut(line, " ")
	if want := sha256.Sum256(datagram); sum != hex.EncodeToString(want[:]) {
		return name, errors.New("the backend got something else than was sent")
	}
	if rest != string(datagram) {
		return name, errors.New("the client got something else than was sent")
	}
	return name, nil
}

func TestEveryModeCarriesEveryProtocolOverBothFamilies(t *testing.T) {
	t.Parallel()
	for _, mode := range []datapath.Mode{datapath.NAT, datapath.DSR, datapath.DSRIPIP, datapath.DSRGRE} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 2)
			d := n.open()
			if mode == datapath.NAT {
				n.routeBack()
			}
			if mode.Tunnels() {
				n.decapsulate()
			}
			n.listen(datapath.TCP, 80)
			n.listen(datapath.UDP, 80)
			for _, six := range []bool{false, true} {
				for _, backend6 := range []bool{false, true} {
					if backend6 != six && !mode.Tunnels() {
						continue
					}
					t.Run(fmt.Sprintf("vip6=%v,backend6=%v", six, backend6), func(t *testing.T) {
						n.t = t
						tcp, udp := n.vip(datapath.TCP, mode, 80, six, backend6), n.vip(
							datapath.UDP, mode, 80, six, backend6,
						)
						n.must(d.Apply([]datapath.VIP{tcp, udp}))
						before, err := d.Counters()
						n.must(err)
						to := netip.AddrPortFrom(tcp.Address, 80)
						seen := map[string]bool{}
						for range 20 {
							c, err := n.dial(datapath.TCP, to)
							n.must(err)
							name, err := ask(c, 100, 100)
							n.must(err)
							again, err := ask(c, 1, 1)
							n.must(err)
							if name != again {
								t.Errorf("one connection was answered by %s and by %s", name, again)
							}
							seen[name] = true
							n.must(c.Close())
						}
						if len(seen) != 2 {
							t.Errorf("20 connections went to %v", seen)
						}
						c, err := n.dial(datapath.TCP, to)
						n.must(err)
						_, err = ask(c, 2<<20, 2<<20)
						n.must(err)
						u, err := n.dial(datapath.UDP, to)
						n.must(err)
						for _, size := range []int{10, 1000} {
							_, err = askUDP(u, size)
							n.must(err)
						}
						counters, err := d.Counters()
						n.must(err)
						if vc := counters.VIPs[tcp.VIPKey]; vc.Flows-before.VIPs[tcp.VIPKey].Flows != 21 ||
							vc.Packets < 1500 ||
							vc.DroppedNoBackend+vc.DroppedRateLimited > 0 {
							t.Errorf("counters %+v", vc)
						}
						if t.Failed() {
							t.Logf("drops %v", counters.Drops)
						}
					})
				}
			}
		})
	}
}

var discard = slog.New(slog.DiscardHandler)
