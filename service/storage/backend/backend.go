// Package backend keeps the connections to the storage systems, and takes in what they have.
//
//	backend.go    Set: the drivers of the backends
//	discovery.go  passes over a storage system
//
// # Invariants
//
//   - A driver is used only after its storage system was found to be the one that the backend is pinned to.
//   - Every question to a storage system is bounded in time. One that does not answer delays only those who
//     ask for it.
//   - One pass at a time goes over a backend. It holds a bounded number of volumes in memory.
//
// It imports caller, driver and record.
package backend

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// answerWithin bounds short questions to a storage system.
const answerWithin = 10 * time.Second

// Config holds the dependencies of a Set.
type Config struct {
	Store *record.Store
	Log   *slog.Logger
	Now   func() time.Time
	// Check returns a fault if no storage system can be reached as a backend says.
	Check func(b record.Backend) error
	// Open connects to the storage system of a backend.
	Open func(ctx context.Context, b record.Backend) (driver.Driver, error)
	// Ending is done when the service ends.
	Ending context.Context
}

// Set holds the drivers of all backends. It is safe for concurrent use.
type Set struct {
	cfg Config

	mu     sync.Mutex
	open   map[string]*connection // by the backend's id
	passes map[string]*pass
	// dropped are drivers of what was replaced. Jobs may still use them, so they are closed with the Set.
	dropped []driver.Driver
}

// connection is the driver of a backend. mu is held while it is opened.
type connection struct {
	mu     sync.Mutex
	driver driver.Driver // nil: not connected
}

// New returns a Set.
func New(c Config) *Set {
	return &Set{cfg: c, open: map[string]*connection{}, passes: map[string]*pass{}}
}

// Check returns a fault if no storage system can be reached as a backend says.
func (s *Set) Check(b record.Backend) error { return s.cfg.Check(b) }

// Close closes all drivers. Nobody uses them any more.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []error
	for _, d := range s.dropped {
		all = append(all, d.Close())
	}
	s.dropped = nil
	for _, c := range s.open {
		c.mu.Lock()
		if c.driver != nil {
			all = append(all, c.driver.Close())
		}
		c.driver = nil
		c.mu.Unlock()
	}
	return errors.Join(all...)
}

func (s *Set) connection(id string) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open[id]
	if c == nil {
		c = &connection{}
		s.open[id] = c
	}
	return c
}

// Driver returns the driver of a backend. It fails with a fault of kind Unavailable if the storage system does not
// answer in time, and of kind Conflict if it is another one than before.
func (s *Set) Driver(ctx context.Context, b record.Backend) (driver.Driver, error) {
	c := s.connection(b.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.driver != nil {
		return c.driver, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, errSilent)
	defer cancel()
	d, err := s.cfg.Open(ctx, b)
	if err != nil {
		return nil, s.unreached(ctx, &b, err)
	}
	if err := s.inspect(ctx, b, d, nil); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	c.driver = d
	return d, nil
}

// drop has a backend connected to anew if another storage system is in the place of the one that its driver has: it may
// be back by then, for example after its file system was mounted again.
func (s *Set) drop(id string, d driver.Driver, cause error) {
	if !fault.Is(cause, fault.Conflict) {
		return
	}
	c := s.connection(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.driver != d {
		return
	}
	c.driver = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = append(s.dropped, d)
}

var errSilent = fault.New(fault.Unavailable, "it has not answered within %s", answerWithin)

// inspect stores what a storage system tells about itself.
func (s *Set) inspect(ctx context.Context, b record.Backend, d driver.Driver, cluster *record.Cluster) error {
	seen, err := d.Inspect(ctx)
	if err != nil {
		return s.unreached(ctx, &b, err)
	}
	c, err := s.cfg.Store.SeeCluster(caller.ByItself(ctx), b.ID, d.Capabilities(), seen)
	if cluster != nil {
		*cluster = c
	}
	return err
}

// unreached stores that a storage system could not be asked, and returns the fault about it: of kind Conflict if it is
// another one, else of kind Unavailable.
func (s *Set) unreached(ctx context.Context, b *record.Backend, cause error) error {
	kind := fault.Unavailable
	if fault.Is(cause, fault.Conflict) {
		kind = fault.Conflict
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errSilent) {
		// Whoever asked has left, or the service ends. That says nothing about the storage system.
		return fault.Wrap(fault.Unavailable, cause, "the question to the backend %s was broken off", b.Name)
	}
	err := fault.Wrap(kind, cause, "the backend %s cannot be used: %s", b.Name, fault.From(cause).Message)
	own := caller.ByItself(context.WithoutCancel(ctx))
	return errors.Join(err, s.cfg.Store.Unreached(own, b.ID, err.Message))
}
