//go:build linux

package bgp_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/mainstay-infra/mainstay/service/lb/bgp"
)

// liar is a router that announces what it likes.
type liar struct {
	*router
	listener net.Listener
}

func startLiar(t *testing.T) *liar {
	t.Helper()
	l := &liar{router: newRouter(t, settings{})}
	err := routerSpace.Do(func() (err error) {
		l.listener, err = net.Listen("tcp", netip.AddrPortFrom(l.address(), 179).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.listener.Close() })
	return l
}

// session accepts a session, announces so many routes over it, and returns the notification that
// ends it, or nil if it is still there when that was done and a keepalive was answered.
func (l *liar) session(routes int, linger time.Duration) (*packet.BGPNotification, error) {
	c, err := l.listener.Accept()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	if _, _, err := readMessage(c); err != nil {
		return nil, err
	}
	open, err := packet.NewBGPOpenMessage(packet.AS_TRANS, 90, l.address(), []packet.OptionParameterInterface{
		packet.NewOptionParameterCapability([]packet.ParameterCapabilityInterface{
			packet.NewCapMultiProtocol(packet.RF_IPv4_UC), packet.NewCapFourOctetASNumber(l.asn()),
		}),
	})
	if err != nil {
		return nil, err
	}
	keepalive := packet.NewBGPKeepAliveMessage()
	for _, m := range []*packet.BGPMessage{open, keepalive} {
		if err := writeMessage(c, m); err != nil {
			return nil, err
		}
	}
	const together = 500
	sent := make(chan error, 1)
	go func() { sent <- l.announce(c, routes, together) }()
	if linger > 0 {
		if err := c.SetReadDeadline(time.Now().Add(linger)); err != nil {
			return nil, err
		}
	}
	for {
		kind, body, err := readMessage(c)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && linger > 0 {
				return nil, <-sent
			}
			return nil, fmt.Errorf("read: %w", err)
		}
		if kind == packet.BGP_MSG_NOTIFICATION {
			n := &packet.BGPNotification{}
			return n, n.DecodeFromBytes(body)
		}
	}
}

func (l *liar) announce(c net.Conn, routes, together int) error {
	hop, err := packet.NewPathAttributeNextHop(l.address())
	if err != nil {
		return err
	}
	path := packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{
		packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{l.asn()}),
	})
	attributes := []packet.PathAttributeInterface{packet.NewPathAttributeOrigin(0), path, hop}
	for i := 0; i < routes; i += together {
		var prefixes []packet.PathNLRI
		for n := i; n < min(i+together, routes); n++ {
			a := netip.AddrFrom4([4]byte{20, byte(n >> 16), byte(n >> 8), byte(n)})
			prefix, err := packet.NewIPAddrPrefix(netip.PrefixFrom(a, 32))
			if err != nil {
				return err
			}
			prefixes = append(prefixes, packet.PathNLRI{NLRI: prefix})
		}
		if err := writeMessage(c, packet.NewBGPUpdateMessage(nil, attributes, prefixes)); err != nil {
			return err
		}
	}
	return nil
}

func writeMessage(w io.Writer, m *packet.BGPMessage) error {
	b, err := m.Serialize()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func readMessage(r io.Reader) (kind uint8, body []byte, err error) {
	var header [19]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, int(binary.BigEndian.Uint16(header[16:]))-len(header))
	_, err = io.ReadFull(r, body)
	return header[18], body, err
}

func TestASessionEndsWhoseRouterFloodsItWithRoutesAndComesBackLater(t *testing.T) {
	l := startLiar(t)
	s := newSpeaker(t)
	s.PardonAfter(2 * time.Second)
	s.configure(config(bgp.Peer{Address: l.address(), ASN: l.asn(), HoldTime: 90 * time.Second}))
	s.announce("192.0.2.1")
	n, err := l.session(20*bgp.MaxRoutes, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n.ErrorCode != packet.BGP_ERROR_CEASE ||
		n.ErrorSubcode != packet.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED {
		t.Errorf("the session ended with %d/%d", n.ErrorCode, n.ErrorSubcode)
	}
	eventually(t, func() (bool, string) {
		session := s.session(l.router)
		return !session.Established() &&
				strings.Contains(session.Reason, "more than 10000 routes"), fmt.Sprintf(
				"%+v",
				session,
			)
	})
	if n, err = l.session(bgp.MaxRoutes, 3*time.Second); n != nil || err != nil {
		t.Errorf("a session with as many routes as there may be: %+v, %v", n, err)
	}
}
