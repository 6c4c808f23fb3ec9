// Package fanout asks many peers the same at the same time, and puts their answers together: the
// lists of a fleet, a search in all sites.
//
// # Invariants
//
//   - A peer answers whole and in time, or not at all: half an answer would look like a whole one.
//   - Every peer whose answer is missing is named, with the reason.
//   - All answers together stay within one budget, and at most AtOnce peers are asked at a time. A
//     peer that fails gives back what it has taken, so that one that never ends costs the others
//     nothing.
//   - A panic in asking a peer costs that peer's answer only.
//
// It imports routine.
package fanout

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

// ErrBudget is why an answer is missing that the budget has no room for.
var ErrBudget = errors.New("fanout: the answers would be too large together")

// ErrBroke is why an answer is missing when asking for it has panicked. The log has the details.
var ErrBroke = errors.New("fanout: asking it broke")

// Options are how peers are asked.
type Options struct {
	// AtOnce is how many peers are asked at a time, at least 1.
	AtOnce int
	// Budget is what all answers may take together.
	Budget *Budget
	// Log has panics; nil is slog.Default.
	Log *slog.Logger
}

// Peer is one to ask.
type Peer[T any] struct {
	Name string
	// Deadline is how long the peer may take from when it is asked; ctx ends then.
	Deadline time.Duration
	// Ask gets the answer, and takes of the budget what that has.
	Ask func(ctx context.Context, of *Share) ([]T, error)
}

// Missing is a peer without an answer.
type Missing struct {
	Name string
	Err  error // of Ask, or ErrBroke
}

// Ask asks the peers, and returns what they answered and who did not, both in the order of peers. It
// fails only if ctx ends.
func Ask[T any](ctx context.Context, peers []Peer[T], o Options) ([]T, []Missing, error) {
	answers := make([][]T, len(peers))
	errs := make([]error, len(peers))
	var next atomic.Int64
	var work sync.WaitGroup
	for range min(max(o.AtOnce, 1), len(peers)) {
		work.Go(func() {
			_ = routine.Run(o.Log, "fanout", func() { // what panics is below
				for i := next.Add(1) - 1; i < int64(len(peers)) && ctx.Err() == nil; i = next.Add(1) - 1 {
					answers[i], errs[i] = askOne(ctx, &peers[i], o)
				}
			})
		})
	}
	work.Wait()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	var all []T
	var missing []Missing
	for i := range peers {
		all = append(all, answers[i]...)
		if errs[i] != nil {
			missing = append(missing, Missing{peers[i].Name, errs[i]})
		}
	}
	return all, missing, nil
}

func askOne[T any](ctx context.Context, p *Peer[T], o Options) (answer []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.Deadline)
	defer cancel()
	share := &Share{of: o.Budget}
	err = ErrBroke // unless it returns
	_ = routine.Run(o.Log, "fanout", func() { answer, err = p.Ask(ctx, share) })
	if err != nil {
		share.giveBack()
		return nil, err
	}
	return answer, nil
}

// Budget bounds what several answers take together. It is safe for concurrent use.
type Budget struct {
	maxItems, maxBytes int64
	items, bytes       atomic.Int64
}

// NewBudget makes a Budget of items, and of the bytes that are read for them.
func NewBudget(items, bytes int64) *Budget { return &Budget{maxItems: items, maxBytes: bytes} }

// Share is what one answer takes of a budget. It belongs to the goroutine that asks.
type Share struct {
	of           *Budget
	items, bytes int64
}

// Of makes a Share for an answer that is asked for alone.
func (b *Budget) Of() *Share { return &Share{of: b} }

// Take takes n items, or fails with ErrBudget.
func (s *Share) Take(n int) error {
	s.items += int64(n)
	if s.of.items.Add(int64(n)) > s.of.maxItems {
		return ErrBudget
	}
	return nil
}

// Reader reads from r until the bytes are used up, and fails with ErrBudget then.
func (s *Share) Reader(r io.Reader) io.Reader { return &counted{s, r} }

func (s *Share) giveBack() {
	s.of.items.Add(-s.items)
	s.of.bytes.Add(-s.bytes)
}

type counted struct {
	share *Share
	r     io.Reader
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.share.bytes += int64(n)
	if c.share.of.bytes.Add(int64(n)) > c.share.of.maxBytes {
		return n, ErrBudget
	}
	return n, err
}
