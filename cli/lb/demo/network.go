//go:build linux

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/netlab"
)

// The network of the demonstration: client, balancer and backends on one switch. The client reaches
// the VIP through the balancer.
var (
	clientAddress   = netip.MustParseAddr("10.99.0.1")
	balancerAddress = netip.MustParseAddr("10.99.0.2")
	vip             = netip.MustParseAddrPort("10.99.9.9:80")
)

const (
	device = "eth0"
	// apiAddress is the daemon's address on the balancer's own loopback.
	apiAddress = "127.0.0.1:9870"
)

type network struct {
	lab      *netlab.Lab
	client   *netlab.Host
	balancer *netlab.Host
	backends []*backend
}

// newNetwork creates a network with the given number of backends, for a VIP in a mode.
func newNetwork(backends int, mode string) (n *network, err error) {
	n = &network{lab: netlab.New()}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	sw, err := n.lab.Switch("switch")
	if err != nil {
		return n, err
	}
	host := func(name string, a netip.Addr) (*netlab.Host, error) {
		h, err := n.lab.Host(name)
		if err != nil {
			return nil, err
		}
		// The links are veth pairs, which leave checksums and segmentation to hardware that does
		// not exist.
		return h, errors.Join(netlab.Plug(sw, h, device, netip.PrefixFrom(a, 24)), h.TX(device, false))
	}
	if n.client, err = host("client", clientAddress); err != nil {
		return n, err
	}
	if n.balancer, err = host("balancer", balancerAddress); err != nil {
		return n, err
	}
	if err := n.client.Route(netip.PrefixFrom(vip.Addr(), 32), balancerAddress); err != nil {
		return n, err
	}
	for i := range backends {
		b := &backend{name: fmt.Sprintf("b%d", i+1), address: netip.AddrFrom4([4]byte{10, 99, 0, byte(11 + i)})}
		if b.host, err = host(b.name, b.address); err != nil {
			return n, err
		}
		if err := b.prepare(mode); err != nil {
			return n, err
		}
		n.backends = append(n.backends, b)
	}
	return n, nil
}

func (n *network) close() error {
	for _, b := range n.backends {
		b.kill()
	}
	return n.lab.Close()
}

// expose makes the API, which listens only on the balancer's own loopback, reachable from this
// machine's loopback until ctx ends. It returns the address.
func (n *network) expose(ctx context.Context, listen string) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		// Another daemon may use the default port.
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.relay(ctx, c)
		}
	}()
	return l.Addr().String(), nil
}

func (n *network) relay(ctx context.Context, c net.Conn) {
	defer c.Close()
	api, err := dial(ctx, n.balancer, apiAddress)
	if err != nil {
		return
	}
	defer api.Close()
	var done sync.WaitGroup
	for _, way := range [][2]net.Conn{{api, c}, {c, api}} {
		done.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // either side may end it
			_ = way[0].(*net.TCPConn).CloseWrite()
		})
	}
	done.Wait()
}

// dial opens a TCP connection from a host.
func dial(ctx context.Context, from *netlab.Host, to string) (c net.Conn, err error) {
	err = from.Do(func() error {
		d := net.Dialer{Timeout: dialTimeout}
		c, err = d.DialContext(ctx, "tcp", to)
		return err
	})
	return c, err
}
