package network

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

var (
	card    = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	address = netip.MustParseAddr("10.87.0.2")
	gateway = net.IPv4(10, 87, 0, 1)
)

func newAnswerer(t testing.TB) answerer {
	t.Helper()
	b := newBook(t, options(t, DefaultAddress))
	if _, err := b.grant(lease{VM: "a", MAC: mac(card), Bridge: DefaultBridge, Hostname: "a"}); err != nil {
		t.Fatal(err)
	}
	return answerer{
		book: b,
		mtu:  1500,
		dns:  func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.53")} },
	}
}

func message(t testing.TB, kind dhcpv4.MessageType, with ...dhcpv4.Modifier) []byte {
	t.Helper()
	q, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(card), dhcpv4.WithMessageType(kind)}, with...)...)
	if err != nil {
		t.Fatal(err)
	}
	return q.ToBytes()
}

func TestDHCPAnswersWhatTheLeaseSays(t *testing.T) {
	t.Parallel()
	a := newAnswerer(t)
	own, other := net.IP(address.AsSlice()), net.IPv4(10, 87, 0, 9)
	asks := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip)) }
	server := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ip)) }
	none := dhcpv4.MessageTypeNone
	for name, c := range map[string]struct {
		question []byte
		want     dhcpv4.MessageType
		to       netip.Addr
	}{
		"discover":              {message(t, dhcpv4.MessageTypeDiscover), dhcpv4.MessageTypeOffer, address},
		"discover, to all":      {message(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithBroadcast(true)), dhcpv4.MessageTypeOffer, broadcast},
		"discover of another":   {message(t, dhcpv4.MessageTypeDiscover, asks(other)), dhcpv4.MessageTypeOffer, address},
		"request":               {message(t, dhcpv4.MessageTypeRequest, asks(own), server(gateway)), dhcpv4.MessageTypeAck, address},
		"request after a boot":  {message(t, dhcpv4.MessageTypeRequest, asks(own)), dhcpv4.MessageTypeAck, address},
		"renewal":               {message(t, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(own), dhcpv4.WithBroadcast(true)), dhcpv4.MessageTypeAck, address},
		"request of another":    {message(t, dhcpv4.MessageTypeRequest, asks(other), server(gateway)), dhcpv4.MessageTypeNak, broadcast},
		"renewal of another":    {message(t, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(other)), dhcpv4.MessageTypeNak, broadcast},
		"request of nothing":    {message(t, dhcpv4.MessageTypeRequest), dhcpv4.MessageTypeNak, broadcast},
		"for another server":    {message(t, dhcpv4.MessageTypeRequest, asks(own), server(other)), none, netip.Addr{}},
		"inform":                {message(t, dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(own)), dhcpv4.MessageTypeAck, address},
		"inform of another":     {message(t, dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(other)), none, netip.Addr{}},
		"release":               {message(t, dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(own), server(gateway)), none, netip.Addr{}},
		"decline":               {message(t, dhcpv4.MessageTypeDecline, asks(own), server(gateway)), none, netip.Addr{}},
		"an unknown card":       {message(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 9})), none, netip.Addr{}},
		"a card of eight bytes": {message(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(append(slices.Clone(card), 0, 0))), none, netip.Addr{}},
		"by a relay":            {message(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithRelay(other)), none, netip.Addr{}},
		"an offer":              {message(t, dhcpv4.MessageTypeOffer), none, netip.Addr{}},
		"too long":              {append(message(t, dhcpv4.MessageTypeDiscover), make([]byte, maxQuestion)...), none, netip.Addr{}},
		"cut":                   {message(t, dhcpv4.MessageTypeDiscover)[:200], none, netip.Addr{}},
		"nothing":               {nil, none, netip.Addr{}},
	} {
		reply, to, why := a.answer(c.question)
		got := none
		if reply != nil {
			got = reply.MessageType()
		}
		if got != c.want || to != c.to {
			t.Errorf("%s: %s to %s (%s), want %s to %s", name, got, to, why, c.want, c.to)
		}
	}
}

func TestAnAcknowledgementHasAllThatAGuestNeeds(t *testing.T) {
	t.Parallel()
	long := dhcpv4.WithOption(dhcpv4.OptClientIdentifier(make([]byte, 200)))
	reply, _, why := newAnswerer(t).answer(
		message(t, dhcpv4.MessageTypeRequest, long, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address.AsSlice()))),
	)
	if reply == nil {
		t.Fatal(why)
	}
	if ip(reply.YourIPAddr) != address || reply.IPAddressLeaseTime(0) != leaseTime || reply.SubnetMask().String() != "ffff0000" ||
		len(reply.Router()) != 1 || !reply.Router()[0].Equal(gateway) || !reply.ServerIdentifier().Equal(gateway) ||
		len(reply.DNS()) != 1 ||
		reply.HostName() != "a" ||
		reply.BroadcastAddress().String() != "10.87.255.255" ||
		!bytes.Equal(reply.GetOneOption(dhcpv4.OptionInterfaceMTU), []byte{5, 220}) ||
		reply.Options.Has(dhcpv4.OptionClientIdentifier) {
		t.Error(reply.Summary())
	}
	inform, _, _ := newAnswerer(t).answer(message(t, dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(address.AsSlice())))
	if !ip(inform.YourIPAddr).IsUnspecified() || inform.Options.Has(dhcpv4.OptionIPAddressLeaseTime) {
		t.Error(inform.Summary())
	}
}

func TestFramesHaveTheRightSums(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"", "x", "question"} {
		f := frame(mac{1}, mac{2}, netip.MustParseAddr("10.87.0.1"), address, []byte(payload))
		pseudo := append(slices.Clone(f[26:34]), 0, 17, 0, byte(8+len(payload)))
		if sum(uint32(0), f[14:34]) != 0xffff || sum(sum(uint32(0), pseudo), f[34:]) != 0xffff ||
			int(binary.BigEndian.Uint16(f[16:])) != len(f)-14 {
			t.Errorf("%q: % x", payload, f)
		}
	}
}

func TestGuestsAreToldOfNameServersThatTheyCanReach(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stub, real := filepath.Join(dir, "stub"), filepath.Join(dir, "real")
	for path, text := range map[string]string{
		stub: "# systemd\nnameserver 127.0.0.53\nnameserver ::1\n",
		real: "search x\nnameserver 192.0.2.1\nnameserver fd00::1\nnameserver\nnameserver x\nnameserver 192.0.2.2 # two\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3"),
	}
	if got := hostServers([]string{filepath.Join(dir, "none"), stub, real}); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := hostServers([]string{stub}); got != nil {
		t.Errorf("%v", got)
	}
}

// FuzzDHCP holds that no question hurts the server, and that whoever is answered is
// told of the address of its own card and nothing else.
func FuzzDHCP(f *testing.F) {
	own := dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address.AsSlice()))
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform, dhcpv4.MessageTypeRelease} {
		f.Add(message(f, kind, own))
		f.Add(
			message(
				f, kind, dhcpv4.WithClientIP(address.AsSlice()),
				dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte("x"))),
			),
		)
	}
	f.Add(message(f, dhcpv4.MessageTypeDiscover)[:240])
	a := newAnswerer(f)
	f.Fuzz(func(t *testing.T, question []byte) {
		reply, to, why := a.answer(question)
		if reply == nil {
			if to.IsValid() {
				t.Error("no answer, to somebody:", why)
			}
			return
		}
		b := reply.ToBytes()
		if !bytes.Equal(reply.ClientHWAddr, card) || to != address && to != broadcast || len(b) > 1400 {
			t.Errorf("%d bytes to %s: %s", len(b), to, reply.Summary())
		}
		if y := ip(reply.YourIPAddr); y != address && !y.IsUnspecified() {
			t.Errorf("told of %s", y)
		}
		if _, err := dhcpv4.FromBytes(b); err != nil {
			t.Error("the answer is malformed:", err)
		}
	})
}
