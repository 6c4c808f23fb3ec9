//go:build linux

package datapath_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// FuzzProgram feeds the program frames. Each must be left as it is to the kernel, or be
// dropped for one reason, or be sent to a backend or back, and well-formed if the
// frame was.
func FuzzProgram(f *testing.F) {
	lab := netlabtest.New(f)
	node, err := lab.Host("node")
	if err != nil {
		f.Fatal(err)
	}
	peer, err := lab.Host("peer")
	if err != nil {
		f.Fatal(err)
	}
	if err := netlab.Join(node, device, peer, device); err != nil {
		f.Fatal(err)
	}
	var d *datapath.Datapath
	err = node.Do(func() (err error) {
		o := datapath.Options{
			Interface:     device,
			Mode:          datapath.Generic,
			TunnelSource:  node4,
			TunnelSource6: node6,
			Dir:           "/sys/fs/bpf",
			Log:           discard,
			Flows:         4096,
		}
		d, err = datapath.Open(f.Context(), o)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = d.Close()
		_ = node.Do(func() error { _, err := datapath.Detach("/sys/fs/bpf", device); return err })
	})
	vips, seeds := fuzzVIPs(d.Mac())
	if err := d.Apply(vips); err != nil {
		f.Fatal(err)
	}
	for _, s := range seeds {
		f.Add(s)
	}
	drops := func(t *testing.T) (n uint64) {
		c, err := d.Counters()
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range c.Drops {
			n += of
		}
		return n
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 14 || len(in) > 3000 { // what a run takes
			return
		}
		own := d.Mac()
		// Frames for others are not looked at, and replies go to whom a packet came from.
		copy(in, own[:])
		copy(in[6:], routerMAC[:])
		before := drops(t)
		verdict, out, err := d.Run(in)
		if err != nil {
			t.Fatal(err)
		}
		dropped := drops(t) - before
		switch verdict {
		case datapath.Pass:
			if !bytes.Equal(in, out) || dropped != 0 {
				t.Errorf("left to the kernel, but changed or counted (%d)\n% x\n% x", dropped, in, out)
			}
		case datapath.Drop:
			if dropped != 1 {
				t.Errorf("dropped for %d reasons\n% x", dropped, in)
			}
		case datapath.TX:
			to := datapath.MAC(out)
			if to != backendMAC && to != routerMAC {
				t.Errorf("sent to %v\n% x\n% x", to, in, out)
			}
			if _, err := parse(in); err != nil {
				return
			}
			if _, err := parse(out); err != nil {
				t.Errorf("%v\n% x\n% x", err, in, out)
			}
		default:
			t.Errorf("verdict %d", verdict)
		}
	})
}

// fuzzVIPs are VIPs of every kind and frames of every kind for them.
func fuzzVIPs(own datapath.MAC) (vips []datapath.VIP, seeds [][]byte) {
	seed := func(p ip) { seeds = append(seeds, frame(routerMAC, own, p.bytes())) }
	for _, six := range []bool{false, true} {
		for i, mode := range []datapath.Mode{datapath.NAT, datapath.DSR, datapath.DSRIPIP, datapath.DSRGRE} {
			for _, protocol := range []datapath.Protocol{datapath.TCP, datapath.UDP} {
				port := 80 + uint16(i)
				v := benchVIP(protocol, mode, six, six != (mode == datapath.DSRGRE))
				v.Port, v.LastPort, v.SNAT = port, port, mode == datapath.NAT && protocol == datapath.UDP
				v.Backends[0].Port = port
				vips = append(vips, v)
				to := vipAt(six, port)
				segment := tcp(client(six, 1000), to, syn, 1, 2, 3)
				if protocol == datapath.UDP {
					segment = udp(client(six, 1000), to, make([]byte, 100)...)
				}
				seed(segment)
				first, rest := cut(udp(client(six, 1000), to, make([]byte, 100)...), 7, 64)
				seed(first)
				seed(rest)
				seed(tooBig(to.Addr(), tcp(to, client(six, 1000), ack)))
				seed(
					tooBig(
						client(six, 0).Addr(),
						tcp(client(six, 1000), netip.AddrPortFrom(v.Backends[0].Address, port), ack),
					),
				)
				seed(tcp(netip.AddrPortFrom(v.Backends[0].Address, port), client(six, 1000), ack))
			}
		}
		ranged := benchVIP(datapath.TCP, datapath.NAT, six, six)
		ranged.Port, ranged.LastPort, ranged.Backends[0].Port = 30000, 30100, 0
		vips = append(vips, ranged)
		seed(tcp(client(six, 1), vipAt(six, 30050), syn))
		seed(tcp(client(six, 1), vipAt(six, 82), ack, make([]byte, 1500)...))
	}
	extended := tcp(client(true, 1), vipAt(true, 81), syn)
	extended.next, extended.options = 0, []byte{60, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0}
	seed(extended)
	options := tcp(client(false, 1), vipAt(false, 81), syn)
	options.options = make([]byte, 12)
	seed(options)
	seed(icmp(client4, vip4, 8, 0, 1, []byte("ping")))
	seed(icmp(client6, vip6, 128, 0, 1, []byte("ping")))
	return vips, seeds
}
