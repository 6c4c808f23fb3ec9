package httpserve

import (
	"net"
	"net/netip"
)

// limitConnections closes connections that exceed the slots, in total or per address.
func limitConnections(ln net.Listener, slots *Slots, proxies []netip.Prefix) net.Listener {
	return &limitedListener{Listener: ln, slots: slots, proxies: proxies}
}

type limitedListener struct {
	net.Listener
	slots   *Slots
	proxies []netip.Prefix
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr := addressOf(c.RemoteAddr().String())
		if contains(l.proxies, addr) {
			return c, nil // many clients share it
		}
		release, ok := l.slots.Take(network(addr))
		if !ok {
			_ = c.Close() // nothing was sent or received
			continue
		}
		return &limitedConn{Conn: c, release: release}, nil
	}
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	c.release()
	return c.Conn.Close()
}
