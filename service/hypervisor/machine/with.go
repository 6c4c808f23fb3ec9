package machine

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Check says why a VM cannot be worked on as it is; nil: it can.
type Check func(ctx context.Context, r *record.VM) error

// Any is the Check of work that takes a VM in every state.
func Any(context.Context, *record.VM) error { return nil }

// Work is what somebody does with a VM while nobody else works on it.
type Work func(ctx context.Context, m *Machine, r record.VM) error

// With takes the work lock of a VM in the caller's scope, checks the VM as it is then, calls work,
// and releases the lock.
func (s *Set) With(ctx context.Context, id string, check Check, work Work) error {
	m, release, err := s.begin(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	return s.work(ctx, m, check, work)
}

// WithInBackground is With that returns once the lock is taken. What comes of the work, done is
// told.
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
	// Who does not see the VM neither waits for its work nor learns that there is any.
	if _, err := s.store.VM(ctx, id); err != nil {
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
	if err := check(ctx, &r); err != nil {
		return err
	}
	return work(ctx, m, r)
}

// Work waits for its turn to change the VM, which release ends. It is for those who wait in a way
// of their own; others use With.
func (m *Machine) Work(ctx context.Context) (release func(), err error) {
	select {
	case m.work <- struct{}{}:
		return m.release, nil
	case <-ctx.Done():
		return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "the VM is being worked on; try again").
			WithRetryAfter(time.Second)
	}
}

// TryWork is Work for who does not wait.
func (m *Machine) TryWork() (release func(), ok bool) {
	select {
	case m.work <- struct{}{}:
		return m.release, true
	default:
		return nil, false
	}
}

func (m *Machine) release() { <-m.work }

// Breakable is the context of work on the disk, which BreakOff ends. done is called when the work
// is. The VM's work is locked.
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

// BreakOff ends the work on the disk that is under way, with a cause.
func (m *Machine) BreakOff(cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.breakOff != nil {
		m.breakOff(cause)
	}
}
