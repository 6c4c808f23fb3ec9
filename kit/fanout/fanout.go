// Package fanout queries many peers concurrently and combines their results: the lists of a fleet,
// a search in all sites.
//
// # Invariants
//
//   - A peer's result is complete and in time, or missing: half a result would look like a whole one.
//   - Every peer without a result is reported, with the reason.
//   - All results together stay within one budget, and at most AtOnce peers are queried at a time.
//     A peer that fails returns its share of the budget, so that a peer that sends without end
//     costs the others nothing.
//   - A panic while querying a peer costs only that peer's result.
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

// ErrBudget means that a result did not fit into the budget.
var ErrBudget = errors.New("fanout: the answers would be too large together")

// ErrBroke means that querying a peer panicked. The log has the details.
var ErrBroke = errors.New("fanout: asking it broke")

// Options configure Ask.
type Options struct {
	// AtOnce is how many peers are queried at a time, at least 1.
	AtOnce int
	// Budget limits all results together.
	Budget *Budget
	// Log receives panics. Nil means slog.Default.
	Log *slog.Logger
}

// Peer is a peer to query.
type Peer[T any] struct {
	Name string
	// Deadline is the time limit for the peer, from when its query starts; then ctx ends.
	Deadline time.Duration
	// Ask queries the peer and takes its result's size from the budget.
	Ask func(ctx context.Context, of *Share) ([]T, error)
}

// Missing is a peer without a result.
type Missing struct {
	Name string
	Err  error // of Ask, or ErrBroke
}

// Ask queries the peers, and returns their results and the peers without one, both in the order of
// peers. It fails only if ctx ends.
func Ask[T any](ctx context.Context, peers []Peer[T], o Options) ([]T, []Missing, error) {
	answers := make([][]T, len(peers))
	errs := make([]error, len(peers))
	var next atomic.Int64
	var work sync.WaitGroup
	for range min(max(o.AtOnce, 1), len(peers)) {
		work.Go(func() {
			_ = routine.Run(o.Log, "fanout", func() { // panics are handled below
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

// Budget limits the total size of several results. It is safe for concurrent use.
type Budget struct {
	maxItems, maxBytes int64
	items, bytes       atomic.Int64
}

// NewBudget returns a Budget of items, and of the bytes that are read for them.
func NewBudget(items, bytes int64) *Budget { return &Budget{maxItems: items, maxBytes: bytes} }

// Share is one result's share of a budget. It belongs to the goroutine of its query.
type Share struct {
	of           *Budget
	items, bytes int64
}

// Of returns a Share for a single query outside of Ask.
func (b *Budget) Of() *Share { return &Share{of: b} }

// Take takes n items, or returns ErrBudget.
func (s *Share) Take(n int) error {
	s.items += int64(n)
	if s.of.items.Add(int64(n)) > s.of.maxItems {
		return ErrBudget
	}
	return nil
}

// Reader returns a reader of r that fails with ErrBudget once the bytes are used up.
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
