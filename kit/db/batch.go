package db

import (
	"context"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Batcher lets concurrent callers share one commit (group commit): items that arrive while a
// transaction is being written are queued and go into the next one. Throughput is then limited by
// the disk's sequential writes rather than its fsyncs, and a single caller never waits for others.
type Batcher[T, R any] struct {
	db    *DB
	max   int
	write func(ctx context.Context, tx *Tx, items []T) ([]R, error)

	// Linger is how long a batch that is not full waits for more items. Use it for items that no
	// caller waits for: with few items per transaction, the transaction costs more than its
	// content. Set it before Run.
	Linger time.Duration

	mu     sync.Mutex
	queue  []*batch[T, R] // filled in order; all but the last are full
	wakeup chan struct{}
	filled chan struct{} // signals that the first batch is full
}

type batch[T, R any] struct {
	items   []T
	results []R
	err     error
	done    chan struct{} // closed when results and err are set
}

// NewBatcher returns a Batcher that writes at most max items in a transaction. write must return
// one result for each item, in order. If it returns an error, all callers of the batch get that
// error, so callers must validate an item before Do. Do returns only while Run is running.
func NewBatcher[T, R any](
	d *DB, max int, write func(ctx context.Context, tx *Tx, items []T) ([]R, error),
) *Batcher[T, R] {
	return &Batcher[T, R]{db: d, max: max, write: write, wakeup: make(chan struct{}, 1), filled: make(chan struct{}, 1)}
}

// Do queues an item and returns once it is durable or the write failed. If ctx ends first, the item
// may or may not become durable.
func (b *Batcher[T, R]) Do(ctx context.Context, item T) (R, error) {
	b.mu.Lock()
	var mine *batch[T, R]
	if n := len(b.queue); n > 0 && len(b.queue[n-1].items) < b.max {
		mine = b.queue[n-1]
	} else {
		mine = &batch[T, R]{done: make(chan struct{})}
		b.queue = append(b.queue, mine)
	}
	i := len(mine.items)
	mine.items = append(mine.items, item)
	full := len(mine.items) == b.max
	b.mu.Unlock()
	signal(b.wakeup)
	if full {
		signal(b.filled)
	}

	var none R
	select {
	case <-mine.done:
		if mine.err != nil {
			return none, mine.err
		}
		return mine.results[i], nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// Run commits batches until ctx ends. It still writes the items that are queued at that point.
func (b *Batcher[T, R]) Run(ctx context.Context) {
	for {
		select {
		case <-b.wakeup:
			b.flush(ctx)
		case <-ctx.Done():
			b.flush(ctx)
			return
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// linger waits until a batch is full, at most Linger.
func (b *Batcher[T, R]) linger(ctx context.Context) {
	timer := time.NewTimer(b.Linger)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.filled:
	case <-ctx.Done():
	}
}

func (b *Batcher[T, R]) flush(ending context.Context) {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.mu.Unlock()
			return
		}
		if b.Linger > 0 && len(b.queue[0].items) < b.max {
			b.mu.Unlock()
			b.linger(ending)
			b.mu.Lock()
		}
		next := b.queue[0]
		b.queue = b.queue[1:]
		b.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		// A panic fails only this batch, and its callers must still get a result.
		panicked := routine.Run(nil, "batch", func() {
			next.err = b.db.Update(ctx, func(tx *Tx) error {
				var err error
				next.results, err = b.write(ctx, tx, next.items)
				return err
			})
		})
		if panicked != nil {
			next.err = panicked
		}
		cancel()
		close(next.done)
	}
}
