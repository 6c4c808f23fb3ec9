//go:build linux

package datapath_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// conversation is connections in use, at backends that the hash would no longer choose.
type conversation struct {
	n    *network
	vips []datapath.VIP
	all  []spoken
}

type spoken struct {
	net.Conn
	name string
}

// begin opens connections in modes nat, with and without SNAT, and dsr, and drains the backends that
// they are at: whoever forgets a flow sends it elsewhere.
func begin(n *network, d *datapath.Datapath) *conversation {
	n.t.Helper()
	n.routeBack()
	c := &conversation{n: n}
	for i, mode := range []datapath.Mode{datapath.NAT, datapath.NAT, datapath.DSR} {
		port := uint16(80 + i) //nolint:gosec // small
		n.listen(datapath.TCP, port)
		v := n.vip(datapath.TCP, mode, port, false, false)
		v.SNAT = i == 1
		c.vips = append(c.vips, v)
	}
	for i := range c.vips {
		for b := 1; b < len(c.vips[i].Backends); b++ {
			c.vips[i].Backends[b].State = datapath.Draining
		}
	}
	n.must(d.Apply(c.vips))
	for i := range c.vips {
		for range 5 {
			conn, err := n.dial(datapath.TCP, vipAt(false, c.vips[i].Port))
			n.must(err)
			name, err := ask(conn, 10, 10)
			n.must(err)
			c.all = append(c.all, spoken{conn, name})
		}
		for b := range c.vips[i].Backends {
			c.vips[i].Backends[b].State = []datapath.State{datapath.Draining, datapath.Healthy}[min(b, 1)]
		}
	}
	n.must(d.Apply(c.vips))
	return c
}

// transfer moves data over all connections at once.
func (c *conversation) transfer(size int64) (wait func()) {
	done := make(chan error, len(c.all))
	for _, s := range c.all {
		go func() {
			name, err := ask(s, size, size)
			if err == nil && name != s.name {
				err = fmt.Errorf("went from %s to %s", s.name, name)
			}
			done <- err
		}()
	}
	return func() {
		c.n.t.Helper()
		for range c.all {
			c.n.must(<-done)
		}
	}
}

func TestAnotherSizeOfTheTablesKeepsConnectionsInMidTransfer(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	d := n.open()
	c := begin(n, d)
	wait := c.transfer(4 << 20)
	for _, flows := range []int{4096, 131072, 65536} {
		n.must(d.Close())
		d = n.open(func(o *datapath.Options) { o.Flows = flows })
		n.must(d.Apply(c.vips))
	}
	wait()
	if left, _ := filepath.Glob(filepath.Join(n.pins(), "*-next")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestMapsOfAnEarlierVersionAreCarriedOver(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	d := n.open()
	c := begin(n, d)
	frame := frame(routerMAC, d.Mac(), tcp(client(false, 1), vipAt(false, 80), rst).bytes())
	_, _, err := d.Run(frame) // one drop, of a stray
	n.must(err)
	n.must(d.Close())
	n.must(datapath.PinEarlier(n.pins(), "replies4", 60, 65536))
	n.must(datapath.PinEarlier(n.pins(), "drops", 8, 20))
	d = n.open()
	n.must(d.Apply(c.vips))
	c.transfer(100_000)()
	counters, err := d.Counters()
	n.must(err)
	if counters.Drops["stray"] != 1 {
		t.Errorf("counters were lost: %v", counters.Drops)
	}
}

func TestAMapWhoseKeysAreOthersIsRefusedWithAWayOut(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	n.must(n.open().Close())
	n.must(os.Remove(filepath.Join(n.pins(), "replies4")))
	n.must(datapath.PinEmpty(n.pins(), "clients", "replies4"))
	err := n.node.Do(func() error {
		_, err := datapath.Open(
			t.Context(), datapath.Options{Interface: device, Mode: datapath.Generic, Dir: n.dir, Log: discard},
		)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "--detach") {
		t.Errorf("got %v", err)
	}
	if !n.attached() {
		t.Error("the program that balances was taken off")
	}
}

// A process that is killed between replacing the program and renaming the maps leaves the maps that
// are in use under their next names.
func TestMapsThatAKilledProcessLeftHalfReplacedAreTaken(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	d := n.open()
	c := begin(n, d)
	n.must(d.Close())
	at := func(name string) string { return filepath.Join(n.pins(), name) }
	for _, name := range []string{"flows4", "replies4"} {
		n.must(os.Rename(at(name), at(name+"-next")))
		n.must(datapath.PinEmpty(n.pins(), name+"-next", name))
	}
	n.must(datapath.PinEmpty(n.pins(), "flows6", "flows6-next")) // one that never came into use
	n.must(datapath.PinEmpty(n.pins(), "clients", "other-next")) // not one of the maps
	d = n.open()
	n.must(d.Apply(c.vips))
	c.transfer(100_000)()
	if left, _ := filepath.Glob(at("*-next")); len(left) != 1 {
		t.Errorf("%v are left, want what is not a map's", left)
	}
}
