package machine

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Check returns an error if the VM cannot be worked on in its current state.
type Check func(ctx context.Context, r *record.VM) error

// Any is a Check that accepts a VM in every state.
func Any(context.Context, *record.VM) error { return nil }

// Work is called with exclusive access to a VM.
type Work func(ctx context.Context, m *Machine, r record.VM) error

// With takes a VM's work lock in the caller's scope, reads its row and checks it, calls work, and
// releases the lock.
func (s *Set) With(ctx context.Context, id string, check Check, work Work) error {
	m, release, err := s.begin(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	return s.work(ctx, m, check, work)
}

// WithInBackground is like With, but returns once the lock is taken. It passes the result of the
// work to done.
func (s *Set) WithInBackground(
	ctx context.Context, id, name string, check Check, work Work, done func(error),
) error {
	m, release, err := s.begin(ctx, id)
	if err != nil {
		return err
	}
	s.Go(name, func() {
		defer release()
		done(s.work(ctx, m, check, work))
	})
	return nil
}

func (s *Set) begin(ctx context.Context, id string) (m *Machine, release func(), err error) {
	// A caller that cannot see the VM must neither wait for its lock nor learn that it exists.
	r, err := s.store.VM(ctx, id)
	if err == nil {
		err = r.IsHere() // while its lock is held for long
	}
	if err != nil {
		return nil, nil, err
	}
	m = s.Get(id)
	release, err = m.Work(ctx)
	return m, release, err
}

func (s *Set) work(ctx context.Context, m *Machine, check Check, work Work) error {
	r, err := s.store.VM(ctx, m.ID)
	if err != nil {
		return err
	}
	if err := r.IsHere(); err != nil {
		return err
	}
	if err := check(ctx, &r); err != nil {
		return err
	}
	return work(ctx, m, r)
}

// Work takes the work lock, waiting until ctx ends, and returns the function that releases it. Use
// With unless you need another way to wait.
func (m *Machine) Work(ctx context.Context) (release func(), err error) {
	if release, ok := m.TryWork(); ok {
		return release, nil
	}
	defer m.wait()()
	select {
	case m.work <- struct{}{}:
		return m.release, nil
	case <-ctx.Done():
		return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "the VM is being worked on; try again").
			WithRetryAfter(time.Second)
	}
}

// TryWork is like Work, but does not wait.
func (m *Machine) TryWork() (release func(), ok bool) {
	select {
	case m.work <- struct{}{}:
		return m.release, true
	default:
		return nil, false
	}
}

func (m *Machine) release() { <-m.work }

// Breakable returns a context for work on the disk that BreakOff cancels. The caller must call done
// when the work is finished, and holds the work lock.
func (m *Machine) Breakable(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.breakOff = cancel
	return ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.breakOff = nil
		cancel(nil)
	}
}

// BreakOff cancels the current work on the disk, with a cause.
func (m *Machine) BreakOff(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.breakOff != nil {
		m.breakOff(cause)
	}
}

// ErrYielded is the cause with which Yielding cancels work.
var ErrYielded = fault.New(fault.Conflict, "other work on the VM was asked for")

// wait registers a caller who waits for the work lock, and returns the function that ends that.
func (m *Machine) wait() (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting++
	if m.yield != nil {
		m.yield(ErrYielded)
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.waiting--
	}
}

// Yielding returns a context for work that gives way: it is cancelled with ErrYielded as soon as
// somebody waits for the work lock, and by BreakOff. The caller must call done when the work is
// finished, and holds the work lock.
func (m *Machine) Yielding(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.breakOff, m.yield = cancel, cancel
	if m.waiting > 0 {
		cancel(ErrYielded)
	}
	return ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.breakOff, m.yield = nil, nil
		cancel(nil)
	}
}
