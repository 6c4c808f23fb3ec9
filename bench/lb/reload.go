//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

const backendsEach = 10

// reload measures changes of many VIPs while packets go through another VIP and are counted.
func reload(ctx context.Context, o options) error {
	lab := netlab.New()
	defer lab.Close()
	client, err := lab.Host("client")
	if err != nil {
		return err
	}
	node, err := lab.Host("node")
	if err != nil {
		return err
	}
	backend, err := lab.Host("backend")
	if err != nil {
		return err
	}
	err = errors.Join(
		netlab.Join(client, inDevice, node, inDevice), netlab.Join(node, outDevice, backend, outDevice),
		client.Address(inDevice, netip.PrefixFrom(sourceAddress, 24)),
		node.Address(inDevice, netip.PrefixFrom(nodeAddress, 24)),
		node.Address(outDevice, netip.PrefixFrom(nodeOut, 24)),
		backend.Address(outDevice, netip.PrefixFrom(sinkAddress, 24)),
		backend.Address("lo", netip.PrefixFrom(vipAddress, 32)),
		backend.Route(netip.PrefixFrom(sourceAddress, 32), nodeOut),
		client.Route(netip.PrefixFrom(vipAddress, 32), nodeAddress), node.Sysctl("net/ipv4/ip_forward", "1"),
		client.TX(inDevice, false), node.TX(outDevice, false), node.TX(inDevice, false),
		backend.TX(outDevice, false),
	)
	if err != nil {
		return err
	}
	l := &line{node: node, sink: backend}
	hop, err := l.hop()
	if err != nil {
		return err
	}
	var d *datapath.Datapath
	err = node.Do(func() (err error) {
		d, err = datapath.Open(
			ctx, datapath.Options{Interface: inDevice, Mode: datapath.Generic, Log: slog.New(slog.DiscardHandler)},
		)
		return err
	})
	if err != nil {
		return err
	}
	defer d.Close()
	watched := manyVIPs(1, hop)[0]
	watched.Address, watched.Backends = vipAddress, watched.Backends[:1]
	watched.Backends[0].Address = sinkAddress
	vips := append([]datapath.VIP{watched}, manyVIPs(o.vips, hop)...)
	if err := d.Apply(vips[:1]); err != nil {
		return err
	}
	lost, stop, err := echoes(client, backend)
	if err != nil {
		return err
	}
	fmt.Printf(
		"\n%d VIPs with %d backends each, while packets pass through another VIP, one each 200 us at most\n\n| change | time |\n|---|---|\n",
		o.vips, backendsEach,
	)
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"all VIPs are new", func() {}},
		{"nothing changes", func() {}},
		{"one backend goes down", func() { vips[500%len(vips)].Backends[0].State = datapath.Down }},
		{"every VIP gets another weight", func() {
			for i := range vips[1:] {
				vips[1+i].Backends[3].Weight = 7
			}
		}},
		{"every VIP gets another backend", func() {
			for i := range vips[1:] {
				vips[1+i].Backends[4].Address = netip.MustParseAddr("10.200.0.1")
			}
		}},
		{"all go", func() { vips = vips[:1] }},
	} {
		step.change()
		begun := time.Now()
		if err := d.Apply(vips); err != nil {
			return err
		}
		fmt.Printf("| %s | %.0f ms |\n", step.name, float64(time.Since(begun).Microseconds())/1000)
	}
	stop()
	sent, missing := lost()
	fmt.Printf("\n%d packets were sent meanwhile and %d lost.\n", sent, missing)
	return nil
}

func manyVIPs(n int, hop datapath.NextHop) (vips []datapath.VIP) {
	address, backend := netip.MustParseAddr("10.100.0.0"), netip.MustParseAddr("10.101.0.0")
	for range n {
		address = address.Next()
		v := datapath.VIP{
			VIPKey: datapath.VIPKey{Address: address, Port: 80, LastPort: 80, Protocol: datapath.UDP},
			Mode:   datapath.DSR,
		}
		for range backendsEach {
			backend = backend.Next()
			v.Backends = append(v.Backends, datapath.Backend{
				BackendKey: datapath.BackendKey{Address: backend, Port: 80},
				Weight:     1,
				State:      datapath.Healthy,
				Hop:        hop,
			})
		}
		vips = append(vips, v)
	}
	return vips
}

// echoes sends numbered packets to the VIP and counts those that return.
func echoes(client, backend *netlab.Host) (result func() (sent, lost int64), stop func(), err error) {
	to := netip.AddrPortFrom(vipAddress, 80)
	var server *net.UDPConn
	var c net.Conn
	err = errors.Join(
		backend.Do(func() (err error) { server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(to)); return err }),
		client.Do(func() (err error) { c, err = net.Dial("udp", to.String()); return err }),
	)
	if err != nil {
		return nil, nil, err
	}
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	var sent, got atomic.Int64
	go func() {
		buf := make([]byte, 64)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			got.Add(1)
		}
	}()
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(200 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if _, err := c.Write([]byte("packet")); err == nil {
				sent.Add(1)
			}
		}
	}()
	stop = func() {
		close(done)
		<-stopped
		time.Sleep(200 * time.Millisecond) // for the last replies
		_ = c.Close()
		_ = server.Close()
	}
	return func() (int64, int64) { return sent.Load(), sent.Load() - got.Load() }, stop, nil
}
