//go:build linux

package netlab_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/netlab/netlabtest"
)

func TestHostsOfASwitchReachEachOther(t *testing.T) {
	t.Parallel()
	lab := netlabtest.New(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	sw, err := lab.Switch("switch")
	must(err)
	a, err := lab.Host("a")
	must(err)
	b, err := lab.Host("b")
	must(err)
	must(netlab.Plug(sw, a, "eth0", netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("fd00::1/64")))
	must(netlab.Plug(sw, b, "eth0", netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("fd00::2/64")))
	for _, address := range []string{"10.0.0.2:80", "[fd00::2]:80"} {
		var l net.Listener
		must(b.Do(func() (err error) { l, err = net.Listen("tcp", address); return err }))
		defer l.Close()
		var c net.Conn
		must(a.Do(func() (err error) { c, err = net.Dial("tcp", address); return err }))
		defer c.Close()
		accepted, err := l.Accept()
		must(err)
		defer accepted.Close()
		if got, want := accepted.RemoteAddr().String(), c.LocalAddr().String(); got != want {
			t.Errorf("connection from %s, want %s", got, want)
		}
	}
}
