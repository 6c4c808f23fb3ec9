//go:build linux

package datapath_test

import (
	"slices"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// BenchmarkProgram times the program alone, by BPF_PROG_TEST_RUN. Each run works on
// the packet that the last one left, so a packet lasts as long as its TTL, and NAT is
// timed with a backend that has the VIP's address: all is done as always, and the
// packet stays one for the VIP. A tunnel's headers would be put around those of the
// run before, so one run is timed at a time, the time of an empty one taken off.
func BenchmarkProgram(b *testing.B) {
	lab := netlabtest.New(b)
	node, err := lab.Host("node")
	if err != nil {
		b.Fatal(err)
	}
	peer, err := lab.Host("peer")
	if err != nil {
		b.Fatal(err)
	}
	if err := netlab.Join(node, device, peer, device); err != nil {
		b.Fatal(err)
	}
	var d *datapath.Datapath
	err = node.Do(func() (err error) {
		o := datapath.Options{
			Interface:     device,
			Mode:          datapath.Native,
			Transmit:      datapath.TransmitBack,
			TunnelSource:  node4,
			TunnelSource6: node6,
			Dir:           "/sys/fs/bpf",
			Log:           discard,
		}
		d, err = datapath.Open(b.Context(), o)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = d.Close()
		_ = node.Do(func() error { _, err := datapath.Detach("/sys/fs/bpf", device); return err })
	})
	self := func(v *datapath.VIP) { v.Backends[0].Address = v.Address }
	ranged := func(v *datapath.VIP) { v.Port, v.LastPort, v.Backends[0].Port = 30001, 32766, 0 }
	for _, c := range []struct {
		name   string
		mode   datapath.Mode
		six    bool
		packet func(six bool) ip
		change func(*datapath.VIP)
		single bool
	}{
		{"dsr/flow", datapath.DSR, false, known, nil, false},
		{"dsr/flow/ipv6", datapath.DSR, true, known, nil, false},
		{"dsr/syn", datapath.DSR, false, fresh, nil, false},
		{"dsr/affinity/syn", datapath.DSR, false, fresh, func(v *datapath.VIP) { v.ClientAffinity = true }, false},
		{"dsr/range", datapath.DSR, false, inRange, ranged, false},
		{"nat/flow", datapath.NAT, false, known, self, false},
		{"nat/flow/ipv6", datapath.NAT, true, known, self, false},
		{"ipip/flow", datapath.DSRIPIP, false, known, nil, true},
		{"gre/flow", datapath.DSRGRE, false, known, nil, true},
		{"miss", datapath.DSR, false, func(six bool) ip { return tcp(client(six, 1), vipAt(six, 81), ack) }, nil, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			v := benchVIP(datapath.TCP, c.mode, c.six, c.six)
			v.Backends[0].Hop.Destination = d.Mac() // so that the packet stays one for this node
			if c.change != nil {
				c.change(&v)
			}
			if err := d.Apply([]datapath.VIP{v}); err != nil {
				b.Fatal(err)
			}
			packet := frame(routerMAC, d.Mac(), c.packet(c.six).bytes())
			empty := frame(routerMAC, routerMAC, c.packet(c.six).bytes()) // for another station
			times := uint32(60)
			if c.single {
				times = 1
			}
			runs, empties := make([]time.Duration, 0, 1000), make([]time.Duration, 0, 1000)
			best := time.Hour
			for b.Loop() {
				runs, empties = runs[:0], empties[:0]
				for range cap(runs) {
					_, each, err := d.Repeat(packet, times)
					if err != nil {
						b.Fatal(err)
					}
					runs = append(runs, each)
					if c.single {
						if _, each, err = d.Repeat(empty, 1); err != nil {
							b.Fatal(err)
						}
						empties = append(empties, each)
					}
				}
				took := median(runs)
				if c.single {
					took -= median(empties)
				}
				best = min(best, took)
			}
			if c.name != "miss" {
				counters, err := d.Counters()
				if err != nil {
					b.Fatal(err)
				}
				if got, want := counters.VIPs[v.VIPKey].Packets, uint64(b.N)*1000*uint64(times); got < want {
					b.Fatalf("%d packets were balanced, of %d", got, want)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(best.Nanoseconds()), "ns/packet")
		})
	}
}

func known(six bool) ip   { return tcp(client(six, 1), vipAt(six, 80), ack) }
func fresh(six bool) ip   { return tcp(client(six, 1), vipAt(six, 80), syn) }
func inRange(six bool) ip { return tcp(client(six, 1), vipAt(six, 31111), ack) }

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
