//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

var (
	sourceAddress = netip.MustParseAddr("10.7.0.1")
	nodeAddress   = netip.MustParseAddr("10.7.0.2")
	nodeOut       = netip.MustParseAddr("10.7.1.1")
	sinkAddress   = netip.MustParseAddr("10.7.1.2")
	vipAddress    = netip.MustParseAddr("10.9.9.9")
)

const (
	inDevice  = "x0"
	outDevice = "y0"
)

// line is generator, node and sink in a row, connected by two veth pairs.
type line struct {
	lab                   *netlab.Lab
	generator, node, sink *netlab.Host
	traffic               trafficObjects
	counting              link.Link
}

func newLine() (l *line, err error) {
	l = &line{lab: netlab.New()}
	for name, host := range map[string]**netlab.Host{"generator": &l.generator, "node": &l.node, "sink": &l.sink} {
		if *host, err = l.lab.Host(name); err != nil {
			return l, err
		}
	}
	err = errors.Join(
		netlab.Join(l.generator, inDevice, l.node, inDevice),
		netlab.Join(l.node, outDevice, l.sink, outDevice),
		l.generator.Address(inDevice, netip.PrefixFrom(sourceAddress, 24)),
		l.node.Address(inDevice, netip.PrefixFrom(nodeAddress, 24)),
		l.node.Address(outDevice, netip.PrefixFrom(nodeOut, 24)),
		l.sink.Address(outDevice, netip.PrefixFrom(sinkAddress, 24)),
		l.node.Sysctl("net/ipv4/ip_forward", "1"),
		l.node.Sysctl("net/ipv4/conf/all/rp_filter", "0"),
		l.node.Sysctl("net/ipv4/conf/"+inDevice+"/rp_filter", "0"),
		// A veth accepts redirected frames only with GRO or its own program.
		l.node.GRO(inDevice, true),
		l.sink.GRO(outDevice, true),
		l.node.Route(netip.PrefixFrom(vipAddress, 32), sinkAddress),
	)
	if err != nil {
		return l, err
	}
	// Avoid neighbour resolution during the measurement.
	mac, err := l.sink.MAC(outDevice)
	if err != nil {
		return l, err
	}
	out, err := l.node.Netlink().LinkByName(outDevice)
	if err != nil {
		return l, err
	}
	if err := l.node.Netlink().NeighSet(&netlink.Neigh{
		LinkIndex:    out.Attrs().Index,
		State:        netlink.NUD_PERMANENT,
		IP:           sinkAddress.AsSlice(),
		HardwareAddr: mac[:],
	}); err != nil {
		return l, err
	}
	return l, l.load()
}

// load loads the programs of generator and sink.
func (l *line) load() error {
	spec, err := loadTraffic()
	if err != nil {
		return err
	}
	from, err := l.generator.Netlink().LinkByName(inDevice)
	if err != nil {
		return err
	}
	to, err := l.node.MAC(inDevice)
	if err != nil {
		return err
	}
	word := func(a netip.Addr) uint32 { b := a.As4(); return binary.LittleEndian.Uint32(b[:]) }
	err = errors.Join(
		spec.Variables["interface"].Set(uint32(from.Attrs().Index)),
		spec.Variables["source"].Set(word(sourceAddress)), spec.Variables["destination"].Set(word(vipAddress)),
		spec.Variables["source_mac"].Set([6]byte(from.Attrs().HardwareAddr)),
		spec.Variables["destination_mac"].Set(to),
	)
	if err != nil {
		return err
	}
	if err := spec.LoadAndAssign(&l.traffic, nil); err != nil {
		return err
	}
	return l.sink.Do(func() error {
		device, err := netlink.LinkByName(outDevice)
		if err != nil {
			return err
		}
		l.counting, err = link.AttachXDP(
			link.XDPOptions{Program: l.traffic.Sink, Interface: device.Attrs().Index, Flags: link.XDPGenericMode},
		)
		return err
	})
}

func (l *line) close() {
	if l.counting != nil {
		_ = l.counting.Close()
	}
	_ = l.traffic.Close()
	_ = l.lab.Close()
}

func (l *line) received() (n uint64, err error) {
	var each []uint64
	if err := l.traffic.Received.Lookup(uint32(0), &each); err != nil {
		return 0, err
	}
	for _, c := range each {
		n += c
	}
	return n, nil
}

// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES.
const liveFrames = 1 << 1

// send sends packets as fast as possible on one core, which also does all the work of the node and
// the sink. It returns the rate, and the fraction of packets that arrived.
func (l *line) send(packets int) (perSecond, arrived float64, err error) {
	before, err := l.received()
	if err != nil {
		return 0, 0, err
	}
	var took time.Duration
	err = l.generator.Do(func() error {
		begun := time.Now()
		_, err := l.traffic.Generate.Run(
			&ebpf.RunOptions{Data: make([]byte, 60), Repeat: uint32(packets), Flags: liveFrames},
		)
		took = time.Since(begun)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	after, err := l.received()
	if err != nil {
		return 0, 0, err
	}
	return float64(after-before) / took.Seconds(), float64(after-before) / float64(packets), nil
}

// way is a way for packets through the node.
type way struct {
	name  string
	start func(*line) (stop func() error, err error)
}

func live(ctx context.Context, o options) error {
	l, err := newLine()
	defer l.close()
	if err != nil {
		return err
	}
	ways := []way{
		{"routing", func(*line) (func() error, error) { return func() error { return nil }, nil }},
		{"nftables dnat", nftables},
		{"lb dsr, generic", balanced(datapath.Generic, datapath.DSR)},
		{"lb nat, generic", balanced(datapath.Generic, datapath.NAT)},
		{"lb dsr, native", balanced(datapath.Native, datapath.DSR)},
		{"lb nat, native", balanced(datapath.Native, datapath.NAT)},
		{"lb ipip, native", balanced(datapath.Native, datapath.DSRIPIP)},
	}
	rates := map[string][]float64{}
	least := map[string]float64{}
	for range o.rounds {
		for _, i := range rand.Perm(len(ways)) {
			w := ways[i]
			if err := ctx.Err(); err != nil {
				return err
			}
			stop, err := w.start(l)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			_, _, err = l.send(o.packets / 10) // warm up
			var rate, arrived float64
			if err == nil {
				rate, arrived, err = l.send(o.packets)
			}
			if err := errors.Join(err, stop()); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			rates[w.name] = append(rates[w.name], rate)
			if known, has := least[w.name]; !has || arrived < known {
				least[w.name] = arrived
			}
		}
	}
	routing, _, _ := spread(rates["routing"])
	nft, _, _ := spread(rates["nftables dnat"])
	fmt.Printf("\nLive frames of 60 bytes, 256 flows, one core for everything, median of %d rounds\n\n", o.rounds)
	fmt.Printf("| way | Mpps | least to greatest | of routing | of nftables | arrived |\n|---|---|---|---|---|---|\n")
	for _, w := range ways {
		middle, low, high := spread(rates[w.name])
		fmt.Printf(
			"| %s | %.2f | %.2f to %.2f | %.2f | %.2f | %.1f %% |\n", w.name, middle/1e6, low/1e6, high/1e6,
			middle/routing, middle/nft, 100*least[w.name],
		)
	}
	return nil
}

// nftables translates destinations to the sink, with connection tracking, as the rules of
// kube-proxy do.
func nftables(l *line) (func() error, error) {
	rules := fmt.Sprintf(
		"table ip bench {\n chain pre {\n  type nat hook prerouting priority -100;\n  iifname %q ip daddr %s udp dport 80 dnat to numgen inc mod 2 map { 0 : %s, 1 : %s }\n }\n}\n",
		inDevice, vipAddress, sinkAddress, sinkAddress,
	)
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if err := l.node.Start(cmd); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("nft: %w", err)
	}
	return func() error { return l.node.Run("nft", "flush", "ruleset") }, nil
}

func balanced(attach string, mode datapath.Mode) func(*line) (func() error, error) {
	return func(l *line) (func() error, error) {
		var d *datapath.Datapath
		err := l.node.Do(func() (err error) {
			o := datapath.Options{
				Interface:    inDevice,
				Mode:         attach,
				TunnelSource: nodeOut,
				Log:          slog.New(slog.DiscardHandler),
			}
			d, err = datapath.Open(context.Background(), o)
			return err
		})
		if err != nil {
			return nil, err
		}
		hop, err := l.hop()
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		v := datapath.VIP{
			VIPKey: datapath.VIPKey{Address: vipAddress, Port: 80, LastPort: 80, Protocol: datapath.UDP},
			Mode:   mode,
		}
		for i := range 2 { // the second differs only in an address that is never used
			b := datapath.Backend{
				BackendKey: datapath.BackendKey{Address: sinkAddress, Port: 80},
				Weight:     1,
				State:      datapath.Healthy,
				Hop:        hop,
			}
			if i == 1 {
				b.Address = b.Address.Next()
			}
			v.Backends = append(v.Backends, b)
		}
		if err := d.Apply([]datapath.VIP{v}); err != nil {
			return nil, errors.Join(err, d.Close())
		}
		return d.Close, nil
	}
}

func (l *line) hop() (datapath.NextHop, error) {
	out, err := l.node.Netlink().LinkByName(outDevice)
	if err != nil {
		return datapath.NextHop{}, err
	}
	mac, err := l.sink.MAC(outDevice)
	if err != nil {
		return datapath.NextHop{}, err
	}
	return datapath.NextHop{
		Interface:   out.Attrs().Index,
		MTU:         out.Attrs().MTU,
		Source:      datapath.MAC(out.Attrs().HardwareAddr),
		Destination: mac,
		Local:       nodeOut,
	}, nil
}
