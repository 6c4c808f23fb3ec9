//go:build linux

package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/netlab"
)

// backend is a server that responds to each line with its name.
type backend struct {
	name    string
	address netip.Addr
	host    *netlab.Host

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
}

// prepare configures a backend for a mode. In mode nat its replies must pass through the balancer;
// in mode dsr it has the VIP itself and does not announce it by ARP.
func (b *backend) prepare(mode string) error {
	if mode == "nat" {
		return b.host.Route(netip.PrefixFrom(clientAddress, 32), balancerAddress)
	}
	return errors.Join(
		b.host.Sysctl("net/ipv4/conf/all/arp_ignore", "1"), b.host.Sysctl("net/ipv4/conf/all/arp_announce", "2"),
		b.host.Address("lo", netip.PrefixFrom(vip.Addr(), 32)),
	)
}

// start starts the backend.
func (b *backend) start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = map[net.Conn]bool{}
	err := b.host.Do(func() (err error) {
		b.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", vip.Port()))
		return err
	})
	if err != nil {
		return fmt.Errorf("start backend %s: %w", b.name, err)
	}
	go b.serve(b.listener)
	return nil
}

func (b *backend) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.open[c] = true
		b.mu.Unlock()
		go func() {
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if _, err := fmt.Fprintln(c, b.name); err != nil {
					break
				}
			}
			_ = c.Close()
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.open, c)
		}()
	}
}

// kill stops the backend like kill -9: the port is closed, and connections are reset.
func (b *backend) kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener == nil {
		return
	}
	_ = b.listener.Close()
	for c := range b.open {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	b.listener = nil
}
