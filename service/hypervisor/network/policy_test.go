//go:build linux

package network

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

// soon is how long a test waits for what must not come.
const soon = 400 * time.Millisecond

type (
	np     = netpolicy.Policy
	npRule = netpolicy.Rule
)

// policy makes a policy with these defaults; rules are for ingress if their names begin with "in".
func policy(ingress, egress netpolicy.Action, rules ...npRule) *np {
	p := &np{Ingress: netpolicy.Direction{Default: ingress}, Egress: netpolicy.Direction{Default: egress}}
	for _, r := range rules {
		if strings.HasPrefix(r.Name, "in") {
			p.Ingress.Rules = append(p.Ingress.Rules, r)
		} else {
			p.Egress.Rules = append(p.Egress.Rules, r)
		}
	}
	return p
}

func npr(name string, action netpolicy.Action, peer string, ports ...netpolicy.Port) npRule {
	r := npRule{Name: name, Action: action, Ports: ports}
	if peer != "" {
		r.Peers = []netpolicy.Peer{{CIDR: peer}}
	}
	return r
}

func tcp(from int, to ...int) netpolicy.Port {
	p := netpolicy.Port{Protocol: "tcp", Port: from}
	if len(to) > 0 {
		p.EndPort = to[0]
	}
	return p
}

// set sets the policy of a VM.
func (s *site) set(vm string, p *np) {
	s.t.Helper()
	var c *netpolicy.Compiled
	if p != nil {
		var err error
		c, err = netpolicy.Compile(p)
		s.must(err)
	}
	s.must(s.do(func() error { return s.m.SetPolicy(s.t.Context(), vm, c) }))
}

func (s *site) state(vm string) (state PolicyState) {
	s.t.Helper()
	s.must(s.do(func() (err error) { state, err = s.m.PolicyState(vm); return err }))
	return state
}

// pair is two guests of one tenant on the managed bridge, with a world outside.
type pair struct {
	*site
	a, b       Attached
	ga, gb, up *netlab.Host
}

func newPair(t *testing.T, o Options) pair {
	t.Helper()
	s := newSite(t, o)
	// As on hosts that load br_netfilter as it should be; the kernel's own default is to filter all bridges.
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		s.must(s.host.Sysctl("net/bridge/bridge-nf-call-"+name, "0"))
	}
	p := pair{site: s, a: s.attach(Port{VM: "a", MAC: hw(1)}), b: s.attach(Port{VM: "b", MAC: hw(2)})}
	p.ga, p.gb = s.guest("a", hw(1), p.a), s.guest("b", hw(2), p.b)
	static(s, p.ga, p.a.IP)
	static(s, p.gb, p.b.IP)
	p.up = s.world()
	s.must(ping(p.ga, p.b.IP.String(), 5))
	return p
}

// serve answers TCP connections at an address with what they send.
func serve(t *testing.T, h *netlab.Host, address string) {
	t.Helper()
	l, err := listen(h, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					if _, err := fmt.Fprintln(c, lines.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
}

func (s *site) reaches(h *netlab.Host, address string) {
	s.t.Helper()
	if err := dial(h, address, patience); err != nil {
		s.t.Errorf("%s is not reached: %v", address, err)
	}
}

func (s *site) misses(h *netlab.Host, address string) {
	s.t.Helper()
	if dial(h, address, soon) == nil {
		s.t.Errorf("%s is reached", address)
	}
}

func at(ip netip.Addr, port int) string { return fmt.Sprintf("%s:%d", ip, port) }

func TestPoliciesOfBothEndsJudgeTheTrafficOfOneBridge(t *testing.T) {
	t.Parallel()
	s := newPair(t, Options{})
	for _, port := range []int{80, 443, 8000, 8010, 8011} {
		serve(t, s.gb, at(s.b.IP, port))
	}
	net := s.m.o.Address.Masked().String()
	s.set("a", policy("deny", "deny",
		npr("web", "allow", net, tcp(80), tcp(8000, 8010)),
		npr("not-8005", "deny", "", tcp(8005)),
	))
	s.reaches(s.ga, at(s.b.IP, 80))
	s.reaches(s.ga, at(s.b.IP, 8010))
	s.misses(s.ga, at(s.b.IP, 443))
	s.misses(s.ga, at(s.b.IP, 8011))
	if ping(s.ga, s.b.IP.String(), 1) == nil {
		t.Error("ICMP passes a default of deny")
	}
	s.reaches(s.gb, at(s.b.IP, 80)) // of itself
	serve(t, s.ga, at(s.a.IP, 22))
	s.misses(s.gb, at(s.a.IP, 22)) // ingress of a
	s.misses(s.host, at(s.a.IP, 22))

	// The other end has a say, too.
	s.set("b", policy("deny", "allow", npr("in-web", "allow", s.a.IP.String()+"/32", tcp(80))))
	s.reaches(s.ga, at(s.b.IP, 80))
	s.misses(s.ga, at(s.b.IP, 8010))
	s.misses(s.host, at(s.b.IP, 80))
	state := s.state("b")
	if !state.Attached || !state.Enforced || state.Ingress.Rules[0].Packets < 3 || state.Ingress.Default.Packets < 2 {
		t.Errorf("%+v", state)
	}

	s.set("a", nil)
	s.set("b", nil)
	s.reaches(s.ga, at(s.b.IP, 8011))
	s.reaches(s.gb, at(s.a.IP, 22))
	s.must(s.do(func() error {
		c, err := connect()
		if err != nil {
			return err
		}
		if left, err := policyTables(c, s.m.o); len(left) > 0 || err != nil {
			return fmt.Errorf("tables stay without policies: %v %w", left, err)
		}
		return nil
	}))
}

// talk is a TCP connection whose other end repeats lines.
type talk struct {
	net.Conn
	lines *bufio.Reader
}

func (s *site) talk(h *netlab.Host, address string) *talk {
	s.t.Helper()
	var c net.Conn
	s.must(h.Do(func() (err error) { c, err = net.DialTimeout("tcp4", address, patience); return err }))
	s.t.Cleanup(func() { _ = c.Close() })
	return &talk{c, bufio.NewReader(c)}
}

// goes reports whether a line comes back in time.
func (c *talk) goes(within time.Duration) bool {
	if c.SetDeadline(time.Now().Add(within)) != nil {
		return false
	}
	if _, err := fmt.Fprintln(c, "hello"); err != nil {
		return false
	}
	line, err := c.lines.ReadString('\n')
	return err == nil && line == "hello\n"
}

func TestAChangeCutsFlowsThatItForbidsAndNoOthers(t *testing.T) {
	t.Parallel()
	s := newPair(t, Options{})
	for _, h := range []struct {
		*netlab.Host
		ip string
	}{{s.gb, s.b.IP.String()}, {s.up, worldIP}} {
		serve(t, h.Host, h.ip+":80")
		serve(t, h.Host, h.ip+":443")
	}
	serve(t, s.ga, at(s.a.IP, 22))
	all := map[string]*talk{
		"bridge web": s.talk(s.ga, at(s.b.IP, 80)), "bridge tls": s.talk(s.ga, at(s.b.IP, 443)),
		"world web": s.talk(s.ga, worldIP+":80"), "world tls": s.talk(s.ga, worldIP+":443"),
		"from b": s.talk(s.gb, at(s.a.IP, 22)), "from host": s.talk(s.host, at(s.a.IP, 22)),
	}
	check := func(when string, going ...string) {
		t.Helper()
		for name, c := range all {
			want := false
			for _, g := range going {
				want = want || g == name
			}
			within := soon
			if want {
				within = patience
			}
			if c.goes(within) != want {
				t.Errorf("%s: %s goes on: %v, want %v", when, name, !want, want)
			}
			if !want {
				delete(all, name)
			}
		}
	}
	check("without a policy", "bridge web", "bridge tls", "world web", "world tls", "from b", "from host")
	// The first policy: the flows of the bridge were not tracked until now.
	s.set("a", policy("allow", "allow", npr("not-host", "deny", "203.0.113.0/24"), npr("in-host", "deny", "10.87.0.1/32")))
	check("first policy", "bridge web", "bridge tls", "world web", "world tls", "from b")
	s.set("a", policy("deny", "deny", npr("web", "allow", "", tcp(80)), npr("tls", "allow", worldIP+"/32", tcp(443)),
		npr("in-ssh", "allow", "10.87.0.0/16", tcp(22))))
	check("second policy", "bridge web", "world web", "world tls", "from b")
	s.set("a", policy("allow", "deny", npr("web", "allow", s.b.IP.String()+"/32", tcp(80))))
	check("third policy", "bridge web", "from b")
	s.set("a", policy("deny", "deny"))
	check("deny all")
}

// pours sends lines without being asked, until the connection ends.
func pours(t *testing.T, h *netlab.Host, address string) {
	t.Helper()
	l, err := listen(h, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					if _, err := fmt.Fprintln(c, "line"); err != nil {
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
			}()
		}
	}()
}

// comes reports whether a line comes in time that was sent after the call. Older ones may still be on
// their way.
func (c *talk) comes(within time.Duration) bool {
	if c.SetDeadline(time.Now().Add(within)) != nil {
		return false
	}
	for range 20 {
		if _, err := c.lines.ReadString('\n'); err != nil {
			return false
		}
	}
	return true
}

func TestADownloadThatBeganBeforeTheFirstPolicyGoesOnIfItMay(t *testing.T) {
	t.Parallel()
	s := newPair(t, Options{})
	pours(t, s.gb, at(s.b.IP, 80))
	pours(t, s.gb, at(s.b.IP, 443))
	web, tls := s.talk(s.ga, at(s.b.IP, 80)), s.talk(s.ga, at(s.b.IP, 443))
	if !web.comes(patience) || !tls.comes(patience) {
		t.Fatal("nothing comes")
	}
	// Packets of the end that did not begin the flow come first, and are no beginning.
	s.set("a", policy("allow", "deny", npr("web", "allow", "", tcp(80))))
	for range 5 {
		if !web.comes(patience) {
			t.Fatal("a download that is allowed is cut")
		}
	}
	if tls.comes(2 * soon) {
		t.Error("a download that is forbidden goes on")
	}
	s.set("a", policy("deny", "deny", npr("web", "allow", "", tcp(80))))
	for range 5 {
		if !web.comes(patience) {
			t.Fatal("a download that is allowed is cut by the second policy")
		}
	}
}
