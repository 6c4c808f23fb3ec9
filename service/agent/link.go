package agent

import (
	"context"
	"sync"
	"time"
)

// LinkState is the state of the link to the control plane.
type LinkState string

// The states; see the package comment.
const (
	Enrolling  LinkState = "enrolling"
	Connecting LinkState = "connecting"
	Online     LinkState = "online"
	Offline    LinkState = "offline"
	Refused    LinkState = "refused"
)

// link is the state of the link, shared by all loops.
type link struct {
	now func() time.Time

	mu       sync.Mutex
	state    LinkState
	since    time.Time
	lastBeat time.Time // when a heartbeat was last answered; zero means never
	lastErr  string
	skew     *time.Duration // the server's clock minus ours; nil means unknown
	session  *session       // of the current identity
	up       chan struct{}  // closed while online
	interval time.Duration
	revision int64 // of the desired state, as last reported by the server

	lost     chan struct{} // receives a value when a loop has lost the link
	advanced chan struct{} // receives a value when revision has changed
}

func newLink(now func() time.Time) *link {
	return &link{
		now:      now,
		state:    Connecting,
		since:    now(),
		up:       make(chan struct{}),
		interval: 30 * time.Second,
		lost:     make(chan struct{}, 1),
		advanced: make(chan struct{}, 1),
	}
}

// to enters a state. The caller holds mu.
func (l *link) to(s LinkState, why string) {
	l.lastErr = why
	if s == l.state {
		return
	}
	if l.state == Online {
		l.up = make(chan struct{})
	}
	if s == Online {
		close(l.up)
	}
	l.state, l.since = s, l.now()
}

func (l *link) current() LinkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *link) set(s LinkState, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to(s, why)
}

// answered records an answered heartbeat.
func (l *link) answered(s *session, interval, skew time.Duration, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.interval, l.skew, l.lastBeat = s, interval, &skew, l.now()
	changed := l.state != Online || revision != l.revision
	l.revision = revision
	l.to(Online, "")
	if changed {
		signal(l.advanced)
	}
}

// fail records that a loop could not reach the control plane. Nothing else is sent until a
// heartbeat is answered.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Online {
		l.to(Offline, explain(err))
		signal(l.lost)
	}
}

// wait returns a session once there is a link. A caller that had to wait for the link then waits a
// short random time, so that loops and agents do not all start at once.
func (l *link) wait(ctx context.Context, random func() float64) (*session, error) {
	for {
		l.mu.Lock()
		s, up, online := l.session, l.up, l.state == Online
		l.mu.Unlock()
		if online {
			return s, nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		l.mu.Lock()
		interval := l.interval
		l.mu.Unlock()
		spread := time.NewTimer(time.Duration(random() * float64(min(interval/4, maxSpread))))
		select {
		case <-spread.C:
		case <-ctx.Done():
			spread.Stop()
			return nil, ctx.Err()
		}
	}
}

// maxSpread is the maximum random wait after the link is restored.
const maxSpread = 10 * time.Second

// online returns the session, and whether there is a link.
func (l *link) online() (*session, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session, l.state == Online
}

func (l *link) wantedRevision() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

// clockSkew returns how far the server's clock is ahead of ours, or nil if that is unknown.
func (l *link) clockSkew() *time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.skew
}

// signal sends to a channel of capacity 1 unless a value is already pending.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
