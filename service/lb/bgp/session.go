package bgp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Session is the state of the session with a peer.
type Session struct {
	Peer netip.Addr
	ASN  uint32
	// State is idle, active, opensent, openconfirm or established.
	State string
	// Since is when the session was established, or else when it was lost or, if it never was
	// established, when the peer was configured.
	Since time.Time
	// Reason is why the session was last lost; empty if it never was.
	Reason string
}

// Established is the state of a session over which routes are exchanged.
const Established = "established"

// Established reports whether the session is established, so that the peer has the routes.
func (s Session) Established() bool { return s.State == Established }

// Sessions returns the sessions with all configured peers, ordered by address.
func (s *Speaker) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	sessions := make([]Session, 0, len(s.peers))
	for _, p := range s.peers {
		sessions = append(sessions, p.session)
	}
	slices.SortFunc(
		sessions, func(a, b Session) int { return cmp.Or(a.Peer.Compare(b.Peer), cmp.Compare(a.ASN, b.ASN)) },
	)
	return sessions
}

// observe handles a peer event of the BGP library.
func (s *Speaker) observe(event *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
	if event.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	session, before, ok := s.move(event.Peer.State)
	if !ok {
		return
	}
	switch {
	case session.Established() && !before.Established():
		s.log.Info("bgp session established", "peer", session.Peer, "asn", session.ASN)
	case before.Established() && !session.Established():
		s.log.Info("bgp session lost", "peer", session.Peer, "asn", session.ASN, "reason", session.Reason)
	}
	s.onSession(session)
}

func (s *Speaker) move(state apiutil.PeerState) (after, before Session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[state.NeighborAddress]
	if p == nil {
		return Session{}, Session{}, false // removed in the meantime
	}
	before = p.session
	tooMany := state.AdminState == api.PeerState_ADMIN_STATE_PFX_CT
	p.session.State = stateName(state.SessionState)
	if p.session.Established() != before.Established() {
		p.session.Since = time.Now()
		if before.Established() {
			p.session.Reason = state.DisconnectMessage
		}
		if before.Established() && tooMany {
			p.session.Reason = fmt.Sprintf(
				"the peer announced more than %d routes; the session will be retried after %s", maxRoutes,
				s.pardonAfter,
			)
			time.AfterFunc(s.pardonAfter, func() {
				_ = routine.Run(s.log, "bgp peer", func() { s.pardon(p) }) // logged
			})
		}
	}
	return p.session, before, p.session != before
}

// pardon retries a session that ended because the peer announced too many routes.
func (s *Speaker) pardon(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.engine == nil || s.peers[p.Address] != p {
		return // the peer was removed in the meantime
	}
	request := &api.EnablePeerRequest{Address: p.Address.String()}
	if err := s.engine.EnablePeer(context.Background(), request); err != nil {
		s.log.Error("a bgp session cannot be tried again", "peer", p.Address, "error", err)
	}
}

func stateName(state bgp.FSMState) string {
	return strings.ToLower(strings.TrimPrefix(state.String(), "BGP_FSM_"))
}
