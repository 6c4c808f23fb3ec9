//go:build linux

package datapath_test

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

func TestEveryReasonToDropHasAName(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("bpf/maps.h")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), "enum drop {")
	list, _, _ := strings.Cut(rest, "DROP_REASONS")
	var names []string
	for name := range strings.FieldsSeq(strings.ReplaceAll(list, ",", " ")) {
		names = append(names, strings.ToLower(strings.TrimPrefix(name, "DROP_")))
	}
	if got := datapath.DropReasons(); !slices.Equal(got, names) {
		t.Errorf("the reasons are %v, the program has %v", got, names)
	}
	if b := newBench(t); b.DropCount() < len(names) {
		t.Errorf("%d reasons, but room for %d", len(names), b.DropCount())
	}
}

func TestMalformedPacketsAreDroppedAndCountedByReason(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.TCP, datapath.DSR, false, false), b.vip(datapath.TCP, datapath.DSR, true, true))
	good4, good6 := tcp(client(false, 1), vipAt(false, 80), syn), tcp(client(true, 1), vipAt(true, 80), syn)
	change := func(p ip, edit func(packet []byte)) []byte {
		f := frame(routerMAC, b.Mac(), p.bytes())
		edit(f[14:])
		return f
	}
	b.wantDrop("ipv4_header", change(good4, func(p []byte) { p[0] = 4<<4 | 4 }))
	b.wantDrop("ipv4_header", change(good4, func(p []byte) { p[0] = 5<<4 | 5 }))
	b.wantDrop("ipv4_header", change(good4, func(p []byte) { binary.BigEndian.PutUint16(p[2:], 19) }))
	b.wantDrop("ipv4_header", change(good4, func(p []byte) { binary.BigEndian.PutUint16(p[2:], 1000) }))
	b.wantDrop("ipv6_header", change(good6, func(p []byte) { p[0] = 0x40 }))
	b.wantDrop("ipv6_header", change(good6, func(p []byte) { binary.BigEndian.PutUint16(p[4:], 1000) }))
	b.wantDrop("ipv6_header", frame(routerMAC, b.Mac(), good6.bytes()[:30]))
	short4, short6 := good4, good6
	short4.payload, short6.payload = good4.payload[:19], good6.payload[:19]
	b.wantDrop("transport_header", frame(routerMAC, b.Mac(), short4.bytes()))
	b.wantDrop("transport_header", frame(routerMAC, b.Mac(), short6.bytes()))
	old := good4
	old.ttl = 1
	b.wantDrop("ttl", frame(routerMAC, b.Mac(), old.bytes()))

	// The same for somebody else is the kernel's business.
	short4.destination = client4
	if verdict, _ := b.run(short4); verdict != datapath.Pass {
		t.Errorf("a short segment for another address had verdict %d", verdict)
	}
}

func TestWhatIsNotForAVIPIsLeftToTheKernel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.TCP, datapath.DSR, false, false))
	for name, f := range map[string][]byte{
		"another port":     frame(routerMAC, b.Mac(), tcp(client(false, 1), vipAt(false, 81), syn).bytes()),
		"another address":  frame(routerMAC, b.Mac(), tcp(client(false, 1), netip.AddrPortFrom(node4, 80), syn).bytes()),
		"another protocol": frame(routerMAC, b.Mac(), udp(client(false, 1), vipAt(false, 80)).bytes()),
		"another station":  frame(routerMAC, datapath.MAC{2, 9, 9, 9, 9, 9}, tcp(client(false, 1), vipAt(false, 80), syn).bytes()),
		"GRE":              frame(routerMAC, b.Mac(), ip{source: client4, destination: vip4, protocol: greProtocol, payload: make([]byte, 40)}.bytes()),
		"ARP":              append(append(append([]byte{}, slices.Repeat([]byte{0xff}, 6)...), routerMAC[:]...), append([]byte{8, 6}, make([]byte, 46)...)...),
		"ARP for us":       append(append(append([]byte{}, macBytes(b.Mac())...), routerMAC[:]...), append([]byte{8, 6}, make([]byte, 46)...)...),
	} {
		if verdict, out := b.runFrame(f); verdict != datapath.Pass || !slices.Equal(out, f) {
			t.Errorf("%s: verdict %d", name, verdict)
		}
	}
	if d := b.dropped(); len(d) > 0 {
		t.Errorf("dropped %v", d)
	}
}

func macBytes(m datapath.MAC) []byte { return m[:] }

func TestWithoutAWayOrABackendPacketsAreDroppedAndCountedForTheVIP(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := b.vip(datapath.TCP, datapath.DSR, false, false)
	packet := frame(routerMAC, b.Mac(), tcp(client(false, 1), vipAt(false, 80), syn).bytes())
	v.Backends[0].Hop = datapath.NextHop{}
	b.apply(v)
	b.wantDrop("next_hop", packet)
	v.Backends[0].State = datapath.Down
	b.apply(v)
	b.wantDrop("no_backend", packet)
	v.Backends = nil
	b.apply(v)
	b.wantDrop("no_backend", packet)
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if got := c.VIPs[v.VIPKey]; got.Unserved != 1 || got.DroppedNoBackend != 2 || got.Packets != 0 {
		t.Errorf("%+v", got)
	}
}

func TestNewFlowsBeyondTheLimitAreDroppedAndKnownOnesAreNot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := b.vip(datapath.TCP, datapath.DSR, false, false, func(v *datapath.VIP) { v.NewFlowsPerSecond = 5 })
	b.apply(v)
	taken := 0
	for port := range uint16(100) {
		if verdict, _ := b.run(tcp(client(false, 1+port), vipAt(false, 80), syn)); verdict == datapath.TX {
			taken++
		}
	}
	// A burst of one second's worth, and what came in while the loop ran.
	if taken < 5 || taken > 10 {
		t.Errorf("%d of 100 flows were taken", taken)
	}
	for range 50 {
		b.sent(tcp(client(false, 1), vipAt(false, 80), ack))
	}
	c, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if got := c.VIPs[v.VIPKey]; got.DroppedRateLimited != uint64(100-taken) || got.Flows != uint64(taken) {
		t.Errorf("%+v with %d taken", got, taken)
	}
	v.NewFlowsPerSecond = 0
	b.apply(v)
	for port := range uint16(100) {
		b.sent(tcp(client(false, 1000+port), vipAt(false, 80), syn))
	}
}

func TestIPv6ExtensionHeadersAreFollowedWithinLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.TCP, datapath.DSR, true, true))
	header := func(next uint8, length int) []byte { // length in bytes, a multiple of 8
		h := make([]byte, length)
		h[0], h[1] = next, uint8(length/8-1)
		return h
	}
	const hopByHop, routing, destinationOptions = 0, 43, 60
	with := func(next uint8, headers ...[]byte) ip {
		p := tcp(client(true, 1), vipAt(true, 80), syn)
		p.next, p.options = next, slices.Concat(headers...)
		return p
	}
	for name, p := range map[string]ip{
		"one":       with(hopByHop, header(6, 8)),
		"four":      with(hopByHop, header(destinationOptions, 8), header(routing, 8), header(destinationOptions, 8), header(6, 8)),
		"248 bytes": with(hopByHop, header(destinationOptions, 128), header(6, 120)),
	} {
		if got := b.sent(p); got.destination != vipAt(true, 80) || got.to != backendMAC {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, p := range []ip{
		with(hopByHop, header(destinationOptions, 8), header(routing, 8), header(destinationOptions, 8), header(destinationOptions, 8), header(6, 8)),
		with(hopByHop, header(destinationOptions, 128), header(6, 128)),
		with(destinationOptions, header(6, 256)),
	} {
		b.wantDrop("ipv6_extensions", frame(routerMAC, b.Mac(), p.bytes()))
		p.destination = client6
		if verdict, _ := b.run(p); verdict != datapath.Pass {
			t.Errorf("for another address: verdict %d", verdict)
		}
	}
	cut := with(hopByHop, header(6, 8))
	cut.payload, cut.options = nil, cut.options[:4]
	b.wantDrop("ipv6_header", frame(routerMAC, b.Mac(), cut.bytes())[:58])
}

func TestIPv4OptionsDoNotHideThePorts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(b.vip(datapath.TCP, datapath.NAT, false, false))
	p := tcp(client(false, 1), vipAt(false, 80), syn)
	p.options = make([]byte, 40) // the most there can be
	if got := b.sent(p); got.destination.Addr() != backend4 || got.source != client(false, 1) {
		t.Errorf("%+v", got)
	}
}

func TestTheGuideExplainsEveryReasonOfDrops(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "services", "lb.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(guide), "| drop reason |")
	for _, reason := range datapath.DropReasons() {
		if !strings.Contains(table, "`"+reason+"`") {
			t.Errorf("docs/services/lb.md does not explain %s", reason)
		}
	}
}
