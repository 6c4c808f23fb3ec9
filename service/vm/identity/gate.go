package identity

import (
	"context"
	"sync"
	"time"
)

// Limits of attempts in one process.
const (
	atOnce    = 16               // attempts in progress
	maxQueued = 256              // attempts that wait for their turn
	queueTime = 10 * time.Second // how long one waits
)

// gate lets attempts for one username in one at a time. It is safe for concurrent use.
type gate struct {
	places chan struct{}

	mu     sync.Mutex
	queued int
	turns  map[string]*turn // by username
}

// turn is whose turn it is for one username.
type turn struct {
	taken chan struct{}
	users int // those in the gate and those that wait
}

func newGate() *gate { return &gate{places: make(chan struct{}, atOnce), turns: map[string]*turn{}} }

// enter waits for a turn. The caller must call leave. It reports false if too many wait, or the wait
// is too long.
func (g *gate) enter(ctx context.Context, username string) (leave func(), ok bool) {
	g.mu.Lock()
	if g.queued >= maxQueued {
		g.mu.Unlock()
		return nil, false
	}
	g.queued++
	mine := g.turns[username]
	if mine == nil {
		mine = &turn{taken: make(chan struct{}, 1)}
		g.turns[username] = mine
	}
	mine.users++
	g.mu.Unlock()

	done := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(g.turns, username)
		}
	}
	ok = take(ctx, mine.taken, g.places)
	g.mu.Lock()
	g.queued--
	g.mu.Unlock()
	if !ok {
		done()
		return nil, false
	}
	return func() {
		<-g.places
		<-mine.taken
		done()
	}, true
}

// take takes a place in both, or in none.
func take(ctx context.Context, first, second chan struct{}) bool {
	ctx, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	select {
	case first <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	select {
	case second <- struct{}{}:
		return true
	case <-ctx.Done():
		<-first
		return false
	}
}
