//go:build linux

package bgp_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/lb/bgp"
)

// router is a BIRD or FRR that the speaker is a neighbour of.
type router struct {
	t          *testing.T
	number     int
	dir        string
	start      func()           // starts the program
	ask        func() *exec.Cmd // asks it for all routes and their attributes
	program    *exec.Cmd
	log        bytes.Buffer
	configured settings
}

// settings are how the router sees the speaker.
type settings struct {
	password string
	hold     int    // seconds; 0 is 90
	ipv6     bool   // the session, and so the router's address
	announce string // a prefix that the router has itself
}

func (r *router) address() netip.Addr {
	if r.configured.ipv6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:9::%x", r.number))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.9.0.%d", r.number))
}

// peer is the router as the speaker's peer.
func (r *router) peer() bgp.Peer {
	return bgp.Peer{Address: r.address(), ASN: r.asn(), Password: r.configured.password, HoldTime: 9 * time.Second}
}

// asn is one of its own, so that no router takes a path for a loop.
func (r *router) asn() uint32 { return 65000 + uint32(r.number) }

const speakerASN = 4200000001

func newRouter(t *testing.T, s settings) *router {
	t.Helper()
	r := &router{t: t, number: nextRouter(t), configured: s}
	if r.configured.hold == 0 {
		r.configured.hold = 90
	}
	dir, err := os.MkdirTemp("", "bgp") // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	r.dir = dir
	t.Cleanup(func() {
		r.kill()
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("router %s:\n%s", r.address(), r.log.String())
		}
	})
	return r
}

// run starts program; what it prints is kept for a test that fails.
func (r *router) run(program *exec.Cmd) {
	r.t.Helper()
	program.Stdout, program.Stderr = &r.log, &r.log
	startInside(r.t, program)
	r.program = program
}

// kill ends the router without a word to its neighbour.
func (r *router) kill() {
	if r.program == nil {
		return
	}
	_ = r.program.Process.Kill()
	_ = r.program.Wait()
	r.program = nil
}

// stop makes the router silent while its connections stay; resume is the opposite.
func (r *router) stop()   { r.signal(syscall.SIGSTOP) }
func (r *router) resume() { r.signal(syscall.SIGCONT) }

func (r *router) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.program.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *router) file(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// startBird starts a BIRD.
func startBird(t *testing.T, s settings) *router {
	t.Helper()
	bird := require.Program(t, "bird", "bird2")
	birdc := require.Program(t, "birdc", "bird2")
	r := newRouter(t, s)
	password, static, neighbor := "", "", "10.9.0.254"
	if s.password != "" {
		password = fmt.Sprintf("password %q;", s.password)
	}
	if s.announce != "" {
		static = fmt.Sprintf("protocol static { ipv4; route %s blackhole; }\n", s.announce)
	}
	if s.ipv6 {
		neighbor = "2001:db8:9::fe"
	}
	conf := r.file("bird.conf", fmt.Sprintf(`log stderr all;
router id 10.9.0.%d;
protocol device {}
%s
protocol bgp speaker {
	local %s as %d;
	neighbor %s as %d;
	strict bind on;
	passive on;
	hold time %d;
	error wait time 1, 1;
	%s
	ipv4 { import all; export all; };
	ipv6 { import all; export none; };
}
`, r.number, static, r.address(), r.asn(), neighbor, speakerASN, r.configured.hold, password))
	socket := filepath.Join(r.dir, "ctl")
	r.start = func() {
		r.run(exec.CommandContext(t.Context(), bird, "-f", "-c", conf, "-s", socket, "-P", filepath.Join(r.dir, "pid")))
	}
	r.ask = func() *exec.Cmd {
		return exec.CommandContext(t.Context(), birdc, "-s", socket, "show", "route", "protocol", "speaker", "all")
	}
	r.start()
	return r
}

// startFRR starts FRR's bgpd.
func startFRR(t *testing.T, s settings) *router {
	t.Helper()
	const bgpd = "/usr/lib/frr/bgpd"
	if _, err := os.Stat(bgpd); err != nil {
		require.Missing(t, "FRR is not installed (apt-get install frr): %v", err)
	}
	vtysh := require.Program(t, "vtysh", "frr")
	r := newRouter(t, s)
	password := ""
	if s.password != "" {
		password = "neighbor 10.9.0.254 password " + s.password
	}
	if err := os.Chmod(r.dir, 0o777); err != nil { //nolint:gosec // bgpd gives up root
		t.Fatal(err)
	}
	conf := r.file("bgpd.conf", fmt.Sprintf(`log stdout
router bgp %d
 bgp router-id 10.9.0.%d
 no bgp ebgp-requires-policy
 timers bgp %d %d
 neighbor 10.9.0.254 remote-as %d
 neighbor 10.9.0.254 passive
 %s
 address-family ipv6 unicast
  neighbor 10.9.0.254 activate
`, r.asn(), r.number, r.configured.hold/3, r.configured.hold, speakerASN, password))
	r.start = func() {
		r.run(exec.CommandContext(
			t.Context(), bgpd, "-n", "-Z", "-f", conf, "-i", filepath.Join(r.dir, "pid"), "-z",
			filepath.Join(r.dir, "zebra"), "--vty_socket", r.dir, "-P", "0", "-l", r.address().String(),
		))
	}
	r.ask = func() *exec.Cmd {
		return exec.CommandContext(
			t.Context(), vtysh, "--vty_socket", r.dir, "-c", "show bgp ipv4 unicast json detail", "-c",
			"show bgp ipv6 unicast json detail",
		)
	}
	r.start()
	return r
}

// routes is what the router says of the routes that it has.
func (r *router) routes() string {
	out, err := r.ask().CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out) // it is starting
	}
	return string(out)
}

// has waits until the router's routes have all these texts in them.
func (r *router) has(wanted ...string) string {
	r.t.Helper()
	var seen string
	eventually(r.t, func() (bool, string) {
		seen = r.routes()
		for _, w := range wanted {
			if !strings.Contains(seen, w) {
				return false, fmt.Sprintf("router %s has not %q: %s", r.address(), w, seen)
			}
		}
		return true, ""
	})
	return seen
}

// hasNot waits until none of these texts is in the router's routes.
func (r *router) hasNot(unwanted ...string) {
	r.t.Helper()
	eventually(r.t, func() (bool, string) {
		seen := r.routes()
		for _, u := range unwanted {
			if strings.Contains(seen, u) {
				return false, fmt.Sprintf("router %s still has %q: %s", r.address(), u, seen)
			}
		}
		return true, ""
	})
}

// eventually waits until done, at most as long as sessions need to come up again. If
// that is too long, the test fails with what was seen.
func eventually(t *testing.T, done func() (ok bool, seen string)) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		ok, seen := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(seen)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
