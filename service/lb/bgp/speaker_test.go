//go:build linux

package bgp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/bgp"
)

// The tests with routers are not parallel: the protocol engine has variables that all
// speakers of a process share, and a process of the product has one speaker.

// speaker is a Speaker under test with what it logged.
type speaker struct {
	*bgp.Speaker
	t   *testing.T
	mu  sync.Mutex
	log bytes.Buffer
}

func (s *speaker) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *speaker) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func newSpeaker(t *testing.T) *speaker {
	s := &speaker{t: t}
	s.Speaker = bgp.New(slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug})), nil)
	t.Cleanup(func() {
		s.close()
		if t.Failed() {
			t.Logf("speaker:\n%s", s.logged())
		}
	})
	return s
}

func (s *speaker) close() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		s.t.Error(err)
	}
}

func (s *speaker) configure(c *bgp.Config) {
	s.t.Helper()
	if err := s.Configure(c); err != nil {
		s.t.Fatal(err)
	}
}

func (s *speaker) announce(addresses ...string) {
	s.t.Helper()
	var parsed []netip.Addr
	for _, a := range addresses {
		parsed = append(parsed, netip.MustParseAddr(a))
	}
	if err := s.Announce(parsed); err != nil {
		s.t.Fatal(err)
	}
}

// established waits for sessions with all of these routers.
func (s *speaker) established(routers ...*router) {
	s.t.Helper()
	for _, r := range routers {
		eventually(s.t, func() (bool, string) {
			session := s.session(r)
			return session.Established(), fmt.Sprintf("session with %s is %s", r.address(), session.State)
		})
	}
}

func (s *speaker) session(r *router) bgp.Session {
	for _, session := range s.Sessions() {
		if session.Peer == r.address() {
			return session
		}
	}
	return bgp.Session{State: "none"}
}

func config(peers ...bgp.Peer) *bgp.Config {
	return &bgp.Config{LocalASN: speakerASN, RouterID: netip.MustParseAddr("10.9.0.254"), Peers: peers}
}

func TestRoutersGetExactlyTheAnnouncedRoutesWithTheirMarks(t *testing.T) {
	bird, frr := startBird(t, settings{password: "s3cret+bird"}), startFRR(t, settings{password: "s3cretfrr"})
	bird6 := startBird(t, settings{ipv6: true, password: "s3cret+six"})
	s := newSpeaker(t)
	c := config(bird.peer(), frr.peer(), bird6.peer())
	c.Communities = []uint32{65001<<16 | 100, 0xffffff01}
	c.LargeCommunities = [][3]uint32{{speakerASN, 1, 2}}
	c.NextHop6 = netip.MustParseAddr("2001:db8:9::fe")
	s.configure(c)
	s.announce("192.0.2.1", "192.0.2.2", "2001:db8:1::1")

	large := fmt.Sprintf("(%d, 1, 2)", speakerASN)
	bird.has(
		"192.0.2.1/32", "192.0.2.2/32", "2001:db8:1::1/128", "BGP.next_hop: 10.9.0.254",
		"BGP.next_hop: 2001:db8:9::fe", "BGP.community: (65001,100) (65535,65281)", large,
		fmt.Sprintf("BGP.as_path: %d", speakerASN),
	)
	bird6.has("2001:db8:1::1/128", "BGP.next_hop: 2001:db8:9::fe", "(65001,100)", large)
	frr.has(
		"192.0.2.1/32",
		"192.0.2.2/32",
		"2001:db8:1::1/128",
		`"ip":"10.9.0.254"`,
		`"ip":"2001:db8:9::fe"`,
		"65001:100 no-export",
		fmt.Sprintf("%d:1:2", speakerASN),
	)
	// The IPv6 session has no next hop for IPv4.
	if seen := bird6.routes(); strings.Contains(seen, "192.0.2.1") {
		t.Errorf("IPv4 routes over IPv6 without a next hop: %s", seen)
	}

	s.announce("192.0.2.2", "192.0.2.3")
	for _, r := range []*router{bird, frr} {
		r.has("192.0.2.2/32", "192.0.2.3/32")
		r.hasNot("192.0.2.1/32", "2001:db8:1::1")
	}
	bird6.hasNot("2001:db8:1::1")
	s.announce()
	for _, r := range []*router{bird, frr} {
		r.hasNot("192.0.2.2/32", "192.0.2.3/32")
	}
	s.established(bird, frr, bird6) // the sessions stay

	for _, secret := range []string{"s3cret+bird", "s3cretfrr", "s3cret+six"} {
		if strings.Contains(s.logged(), secret) {
			t.Errorf("a password is in the log")
		}
	}
	for _, line := range []string{`msg="bgp session established" peer=` + frr.address().String(), fmt.Sprintf("asn=%d", frr.asn())} {
		if !strings.Contains(s.logged(), line) {
			t.Errorf("%q is not in the log: %s", line, s.logged())
		}
	}
	if strings.Contains(s.logged(), "level=DEBUG") || strings.Contains(s.logged(), "Peer Up") {
		t.Errorf("the engine's chatter is in the log: %s", s.logged())
	}
}

func TestCloseWithdrawsAtOnce(t *testing.T) {
	bird, frr := startBird(t, settings{}), startFRR(t, settings{})
	s := newSpeaker(t)
	c := config(bird.peer(), frr.peer())
	for i := range c.Peers {
		c.Peers[i].HoldTime = time.Hour // routes that stay until then would stay for the test
	}
	s.configure(c)
	s.announce("192.0.2.1")
	bird.has("192.0.2.1/32")
	frr.has("192.0.2.1/32")
	s.close()
	bird.hasNot("192.0.2.1/32")
	frr.hasNot("192.0.2.1/32")
	if n := len(s.Sessions()); n > 0 {
		t.Errorf("%d sessions after Close", n)
	}
	if err := s.Announce(nil); err == nil {
		t.Error("announced after Close")
	}
	if err := s.Configure(c); err == nil {
		t.Error("configured after Close")
	}
}

func TestAWrongPasswordOrASNDoesNotEstablishAndDisturbsNobody(t *testing.T) {
	good, wrong, missing, stranger := startBird(t, settings{password: "right"}), startBird(
		t, settings{password: "right"},
	), startFRR(t, settings{password: "right"}), startBird(t, settings{})
	s := newSpeaker(t)
	c := config(good.peer(), wrong.peer(), missing.peer(), stranger.peer())
	c.Peers[1].Password, c.Peers[2].Password, c.Peers[3].ASN = "wrong", "", 65099
	// Nobody is there, and nothing of it is to be seen but its state.
	c.Peers = append(
		c.Peers, bgp.Peer{Address: netip.MustParseAddr("10.9.0.200"), ASN: 65000, HoldTime: 9 * time.Second},
	)
	s.configure(c)
	s.announce("192.0.2.1")
	good.has("192.0.2.1/32")
	s.established(good) // the router has the route a moment before the speaker is told
	// The others had as much time, and then as much again to try twice.
	first := s.session(good).Since
	eventually(t, func() (bool, string) { return time.Since(first) > 4*time.Second, "" })
	for _, r := range []*router{wrong, missing, stranger} {
		if session := s.session(r); session.Established() {
			t.Errorf("the session with %s is %s", r.address(), session.State)
		}
		if seen := r.routes(); strings.Contains(seen, "192.0.2.1") {
			t.Errorf("%s has the route: %s", r.address(), seen)
		}
	}
	if s.session(good).Since != first || !s.session(good).Established() {
		t.Error("the good session was disturbed")
	}
	if n := len(s.Sessions()); n != 5 {
		t.Errorf("%d sessions", n)
	}
}

func TestRoutersThatComeBackGetTheirRoutesAgain(t *testing.T) {
	killed, silent, steady := startBird(t, settings{}), startBird(t, settings{hold: 3}), startFRR(t, settings{})
	s := newSpeaker(t)
	s.configure(config(killed.peer(), silent.peer(), steady.peer()))
	s.announce("192.0.2.1")
	for _, r := range []*router{killed, silent, steady} {
		r.has("192.0.2.1/32")
	}
	s.established(killed, silent, steady)
	before := map[*router]bgp.Session{killed: s.session(killed), silent: s.session(silent), steady: s.session(steady)}

	killed.kill()
	silent.stop() // its connection stays, so that only the hold time tells
	stopped := time.Now()
	eventually(t, func() (bool, string) {
		session := s.session(killed)
		return !session.Established() &&
				session.Reason != "", fmt.Sprintf(
				"the session is %s, %q",
				session.State,
				session.Reason,
			)
	})
	eventually(t, func() (bool, string) {
		session := s.session(silent)
		return session.Reason == "hold-timer-expired", fmt.Sprintf(
			"the session is %s, %q", session.State, session.Reason,
		)
	})
	// The last word came within the second before; 9 s were proposed, and 3 s agreed upon.
	if took := s.session(silent).Since.Sub(stopped); took < 1500*time.Millisecond || took > 8*time.Second {
		t.Errorf("the session with a silent router ended after %s", took)
	}
	s.announce("192.0.2.1", "192.0.2.2") // what changes meanwhile counts
	killed.start()
	silent.resume()
	for _, r := range []*router{killed, silent} {
		r.has("192.0.2.1/32", "192.0.2.2/32")
		s.established(r)
		if session := s.session(r); !session.Since.After(before[r].Since) {
			t.Errorf("established since %s, and before that since %s", session.Since, before[r].Since)
		}
		if line := `msg="bgp session lost" peer=` + r.address().String(); !strings.Contains(s.logged(), line) {
			t.Errorf("%q is not in the log: %s", line, s.logged())
		}
	}
	if session := s.session(steady); session != before[steady] {
		t.Errorf("the third session was disturbed: %+v", session)
	}
}

func TestConfigureLeavesUnchangedSessionsAlone(t *testing.T) {
	kept, changed, removed, added := startBird(t, settings{}), startBird(
		t, settings{},
	), startBird(t, settings{}), startFRR(t, settings{})
	s := newSpeaker(t)
	s.announce("192.0.2.1") // before anybody is there
	s.configure(config(kept.peer(), changed.peer(), removed.peer()))
	for _, r := range []*router{kept, changed, removed} {
		r.has("192.0.2.1/32")
	}
	s.established(kept, changed, removed)
	since, sinceChanged := s.session(kept).Since, s.session(changed).Since

	c := config(kept.peer(), changed.peer(), added.peer())
	c.Peers[1].HoldTime = 30 * time.Second
	c.Communities = []uint32{65001<<16 | 7}
	s.configure(c)
	removed.hasNot("192.0.2.1/32")
	added.has("192.0.2.1/32", "65001:7")
	kept.has("192.0.2.1/32", "(65001,7)") // marked anew over the session that is there
	changed.has("192.0.2.1/32", "(65001,7)")
	s.established(kept, changed, added)
	if got := s.session(kept); got.Since != since {
		t.Errorf("the session with an unchanged peer is %s since %s, not %s", got.State, got.Since, since)
	}
	if got := s.session(changed); got.Since == sinceChanged {
		t.Error("the session with a changed peer was not begun anew")
	}

	bad := config(kept.peer())
	bad.Peers[0].HoldTime = time.Second
	if err := s.Configure(bad); !fault.Is(err, fault.Invalid) {
		t.Errorf("error %v", err)
	}
	if n := len(s.Sessions()); n != 3 || s.session(kept).Since != since {
		t.Errorf("a bad configuration changed something: %v", s.Sessions())
	}

	s.configure(nil)
	for _, r := range []*router{kept, changed, added} {
		r.hasNot("192.0.2.1/32")
	}
	if n := len(s.Sessions()); n > 0 {
		t.Errorf("%d sessions with nobody configured", n)
	}
	s.configure(config(added.peer()))
	added.has("192.0.2.1/32")
}

func TestAnotherRouterIDBeginsAllSessionsAnew(t *testing.T) {
	bird := startBird(t, settings{})
	s := newSpeaker(t)
	s.configure(config(bird.peer()))
	s.announce("192.0.2.1")
	bird.has("192.0.2.1/32", "[AS4200000001i]")
	s.established(bird)
	since := s.session(bird).Since
	c := config(bird.peer())
	c.RouterID = netip.MustParseAddr("10.9.0.253")
	s.configure(c)
	eventually(t, func() (bool, string) {
		session := s.session(bird)
		return session.Established() && session.Since.After(since), fmt.Sprintf("%+v", session)
	})
	bird.has("192.0.2.1/32")
}

func TestRoutesOfRoutersAreNotPassedOn(t *testing.T) {
	source, other := startBird(t, settings{announce: "203.0.113.0/24"}), startFRR(t, settings{})
	s := newSpeaker(t)
	s.announce("192.0.2.1")
	s.configure(config(source.peer(), other.peer()))
	source.has("192.0.2.1/32")
	other.has("192.0.2.1/32")
	s.announce("192.0.2.2") // so that whatever the source said has long been taken in
	other.has("192.0.2.2/32")
	if seen := other.routes(); strings.Contains(seen, "203.0.113.0") {
		t.Errorf("passed on: %s", seen)
	}
}
