package machine

import (
	"context"
	"io"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/relay"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// WatchConsole reads a VM's console from its start, so that what it prints while nobody
// looks is there for who comes later. All viewers see it, and all may type.
func (s *Set) WatchConsole(m *Machine, instance backend.Instance) {
	ctx, cancel := context.WithTimeout(context.Background(), CallLimit)
	defer cancel()
	stream, err := instance.Dial(ctx, backend.ConsoleChannel)
	if err != nil {
		s.log.Warn("a VM's console cannot be opened", "vm", m.ID, "error", err)
		return
	}
	console := relay.NewLog(relay.DefaultCapacity, stream)
	m.mu.Lock()
	if m.instance != instance {
		m.mu.Unlock()
		_ = stream.Close() // it has ended meanwhile
		return
	}
	m.console = console
	m.mu.Unlock()
	s.Go("VM console", func() {
		select {
		case <-s.ending.Done():
		case <-instance.Done():
		}
		_ = stream.Close() // ends the copying
	})
	s.watchers.Go(func() {
		defer func() { _ = console.Close() }() // it never fails
		routine.Keep(s.ending, s.log, "VM console", func(context.Context) {
			// There is one for each VM, so the buffer is small, whatever the stream would take by itself.
			_, _ = io.CopyBuffer(console, struct{ io.Reader }{stream}, make([]byte, 4096)) // it has ended
		})
	})
}

// Console looks at the console of a VM that runs, from a position on. Close it.
func (m *Machine) Console(r *record.VM, from relay.Position) (*relay.Viewer, error) {
	m.mu.Lock()
	console, runs := m.console, m.instance != nil
	m.mu.Unlock()
	switch {
	case !runs:
		return nil, fault.New(fault.Conflict, "the VM is %s; it has a console while it runs", r.State).
			WithCode("wrong_state")
	case console == nil:
		return nil, fault.New(fault.Conflict, "the VM's console is not open").WithCode("no_console")
	}
	return console.View(from), nil
}
