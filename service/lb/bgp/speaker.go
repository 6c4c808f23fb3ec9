package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Speaker announces addresses by BGP. It is safe for concurrent use.
type Speaker struct {
	log       *slog.Logger
	onSession func(Session)
	// pardonAfter is how long to wait before retrying a peer that announced too many routes.
	pardonAfter time.Duration

	mu     sync.Mutex
	closed bool
	config *Config // nil while no peers are configured
	peers  map[netip.Addr]*peer
	wanted map[netip.Addr]bool // from the last Announce

	// Set only while config is not nil.
	engine    *server.BgpServer
	unwatch   context.CancelFunc
	announced map[netip.Addr]bool // what was passed to the engine
}

// peer is a configured peer.
type peer struct {
	Peer
	ipv4, ipv6 bool // families
	graceful   time.Duration
	session    Session
}

// New returns a Speaker without peers. onSession, which may be nil, is called for every change of a
// session's state, in order, but not when a peer is removed. It must return quickly.
func New(log *slog.Logger, onSession func(Session)) *Speaker {
	if onSession == nil {
		onSession = func(Session) {}
	}
	return &Speaker{
		log:         log,
		onSession:   onSession,
		pardonAfter: pardonAfter,
		peers:       map[netip.Addr]*peer{},
		wanted:      map[netip.Addr]bool{},
	}
}

const pardonAfter = 5 * time.Minute

var errClosed = errors.New("the speaker is closed")

// Configure replaces the configuration; nil ends all sessions. It does not wait for sessions to
// come up. An invalid configuration changes nothing.
func (s *Speaker) Configure(config *Config) error {
	if config != nil {
		if err := config.check(); err != nil {
			return err
		}
		config = config.clone()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	old := s.config
	if old != nil && (config == nil || old.LocalASN != config.LocalASN || old.RouterID != config.RouterID) {
		s.stop()
		old = nil
	}
	if config == nil {
		return nil
	}
	if old == nil {
		if err := s.start(config); err != nil {
			return err
		}
	}
	s.config = config
	// Announcing a route again replaces the one that peers have.
	again := old != nil && !sameMarks(old, config)
	return errors.Join(s.announce(again), s.meet())
}

// Announce replaces the set of announced addresses.
func (s *Speaker) Announce(addresses []netip.Addr) error {
	wanted := make(map[netip.Addr]bool, len(addresses))
	for _, a := range addresses {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() {
			return fault.New(fault.Invalid, "%s cannot be announced", a)
		}
		wanted[a] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.wanted = wanted
	if s.config == nil {
		return nil
	}
	return s.announce(false)
}

// Close withdraws all routes and ends the sessions. It returns when the peers are notified or ctx
// ends. With graceful restart it notifies nobody: the sessions end with the process, which must end
// soon, and routers keep the routes for the next process.
func (s *Speaker) Close(ctx context.Context) error {
	if s.leave() {
		return nil
	}
	done := routine.Start(s.log, "bgp end", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = true
		s.stop()
		return nil
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("ending BGP sessions: %w", ctx.Err())
	}
}

// leave closes the speaker without notifying peers if graceful restart is configured. It reports
// whether it did.
func (s *Speaker) leave() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config == nil || s.config.GracefulRestart == 0 {
		return false
	}
	if !s.closed {
		s.closed = true
		s.unwatch()
		s.log.Info(
			"bgp sessions end with the process; routers keep the routes for the next one", "for",
			s.config.GracefulRestart,
		)
	}
	return true
}

// start starts the engine. The caller must hold mu, also for all methods below.
func (s *Speaker) start(config *Config) error {
	engine := server.NewBgpServer(server.LoggerOption(slog.New(warnings{s.log.Handler()}), nil))
	routine.Go(s.log, "bgp engine", engine.Serve)
	ctx, cancel := context.WithCancel(context.Background())
	err := engine.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: config.LocalASN, RouterId: config.RouterID.String(), ListenPort: -1, // no listener
	}})
	if err == nil {
		err = takeNothing(ctx, engine)
	}
	if err == nil {
		err = engine.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnPeerUpdate: s.observe}, server.WatchPeer())
	}
	if err != nil {
		cancel()
		engine.Stop()
		return fmt.Errorf("starting BGP: %w", err)
	}
	s.engine, s.unwatch, s.announced = engine, cancel, map[netip.Addr]bool{}
	return nil
}

// stop ends all sessions and the engine.
func (s *Speaker) stop() {
	if s.config == nil {
		return
	}
	for _, p := range s.peers {
		if p.session.Established() {
			s.log.Info("bgp session ended", "peer", p.Address, "asn", p.ASN)
		}
	}
	s.unwatch()
	s.engine.Stop() // sends a Cease to peers and waits until it is sent, at most a second each
	clear(s.peers)
	s.config, s.engine, s.announced = nil, nil, nil
}

// announce passes changes since the last call to the engine, or with again everything.
func (s *Speaker) announce(again bool) error {
	var added, removed []*apiutil.Path
	for a := range s.wanted {
		if s.announced[a] && !again {
			continue
		}
		path, err := s.config.host(a)
		if err != nil {
			return fmt.Errorf("route of %s: %w", a, err)
		}
		added = append(added, path)
	}
	for a := range s.announced {
		if s.wanted[a] {
			continue
		}
		path, err := s.config.host(a)
		if err != nil {
			return fmt.Errorf("route of %s: %w", a, err)
		}
		removed = append(removed, path)
	}
	if len(removed) > 0 {
		if err := s.engine.DeletePath(apiutil.DeletePathRequest{Paths: removed}); err != nil {
			return fmt.Errorf("withdrawing %d routes: %w", len(removed), err)
		}
	}
	if len(added) > 0 {
		if _, err := s.engine.AddPath(apiutil.AddPathRequest{Paths: added}); err != nil {
			return fmt.Errorf("announcing %d routes: %w", len(added), err)
		}
	}
	s.announced = maps.Clone(s.wanted)
	return nil
}

// meet updates the engine's peers to match the configuration. A peer whose settings changed is
// removed and added again.
func (s *Speaker) meet() error {
	for address, known := range s.peers {
		i := slices.IndexFunc(s.config.Peers, func(p Peer) bool { return p.Address == address })
		if i >= 0 {
			ipv4, ipv6 := s.config.families(s.config.Peers[i])
			if known.Peer == s.config.Peers[i] && known.ipv4 == ipv4 && known.ipv6 == ipv6 &&
				known.graceful == s.config.GracefulRestart {
				continue
			}
		}
		if err := s.engine.DeletePeer(
			context.Background(), &api.DeletePeerRequest{Address: address.String()},
		); err != nil {
			return fmt.Errorf("ending the session with %s: %w", address, err)
		}
		if known.session.Established() {
			s.log.Info("bgp session ended", "peer", address, "asn", known.ASN)
		}
		delete(s.peers, address)
	}
	for _, p := range s.config.Peers {
		if s.peers[p.Address] != nil {
			continue
		}
		if err := s.engine.AddPeer(context.Background(), &api.AddPeerRequest{Peer: s.config.neighbor(p)}); err != nil {
			return fmt.Errorf("adding the peer %s: %w", p.Address, err)
		}
		ipv4, ipv6 := s.config.families(p)
		s.peers[p.Address] = &peer{
			Peer:     p,
			ipv4:     ipv4,
			ipv6:     ipv6,
			graceful: s.config.GracefulRestart,
			session:  Session{Peer: p.Address, ASN: p.ASN, State: "idle", Since: time.Now()},
		}
	}
	return nil
}

// warnings drops records below the level of warnings: the engine logs every step of its sessions,
// and this package logs the relevant ones itself.
type warnings struct{ slog.Handler }

// Enabled returns false for levels below warning.
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the minimum level.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the minimum level.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
