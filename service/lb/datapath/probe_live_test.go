//go:build linux

package datapath_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

func TestChecksReachEachBackendAtTheVIPByItsTunnel(t *testing.T) {
	t.Parallel()
	for _, attach := range []string{datapath.Generic, datapath.Native} {
		t.Run(attach, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 2)
			if attach == datapath.Native {
				n.nativePeers()
			}
			d := n.open(func(o *datapath.Options) { o.Mode = attach })
			n.decapsulate()
			n.listen(datapath.TCP, 80)
			// The node may have the VIPs itself; checks must not come back to it.
			n.must(n.node.Address("lo", netip.PrefixFrom(vip4, 32), netip.PrefixFrom(vip6, 128)))
			for _, mode := range []datapath.Mode{datapath.DSR, datapath.DSRIPIP, datapath.DSRGRE} {
				for _, six := range []bool{false, true} {
					for _, backend6 := range []bool{false, true} {
						if backend6 != six && !mode.Tunnels() {
							continue
						}
						t.Run(fmt.Sprintf("%v,vip6=%v,backend6=%v", mode, six, backend6), func(t *testing.T) {
							v := n.vip(datapath.TCP, mode, 80, six, backend6)
							if err := d.Apply([]datapath.VIP{v}); err != nil {
								t.Fatal(err)
							}
							for i, b := range v.Backends {
								ctx, cancel := context.WithTimeout(t.Context(), patience)
								c, err := d.DialProbe(ctx, v.VIPKey, b.BackendKey, 80)
								cancel()
								if err != nil {
									t.Fatal(err)
								}
								if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
									t.Fatal(err)
								}
								name, err := ask(c, 10_000, 10_000)
								if err != nil || name != n.backends[i].Name {
									t.Errorf("backend %d was answered for by %s: %v", i, name, err)
								}
								if err := c.Close(); err != nil {
									t.Error(err)
								}
							}
							ctx, cancel := context.WithTimeout(t.Context(), patience)
							defer cancel()
							if _, err := d.DialProbe(ctx, v.VIPKey, v.Backends[0].BackendKey, 81); !errors.Is(
								err, syscall.ECONNREFUSED,
							) {
								t.Errorf("a port that nobody listens on: %v", err)
							}
						})
					}
				}
			}
		})
	}
}

func TestACheckThatNobodyAnswersEndsWithItsContext(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 1)
	d := n.open()
	v := n.vip(datapath.TCP, datapath.DSR, 80, false, false)
	v.Backends[0].Hop.Destination = datapath.MAC{2, 0, 0, 0, 0, 77}
	n.must(d.Apply([]datapath.VIP{v}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.DialProbe(ctx, v.VIPKey, v.Backends[0].BackendKey, 80); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	v.Backends[0].Hop = datapath.NextHop{}
	n.must(d.Apply([]datapath.VIP{v}))
	if _, err := d.DialProbe(t.Context(), v.VIPKey, v.Backends[0].BackendKey, 80); err == nil ||
		!strings.Contains(err.Error(), "no way to the backend") {
		t.Error(err)
	}
	if _, err := d.DialProbe(t.Context(), v.VIPKey, datapath.BackendKey{Address: vip4, Port: 80}, 80); err == nil {
		t.Error("a backend that does not exist was dialled")
	}
}
