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

// WatchConsole reads a VM's console from the start, so that later viewers also see what was printed
// before they connected. All viewers see the same output, and all may type. The output is also written to kept,
// which never fails, and is closed at the end.
func (s *Set) WatchConsole(m *Machine, instance backend.Instance, kept io.WriteCloser) {
	ctx, cancel := context.WithTimeout(context.Background(), CallLimit)
	defer cancel()
	stream, err := instance.Dial(ctx, backend.ConsoleChannel)
	if err != nil {
		s.log.Warn("a VM's console cannot be opened", "vm", m.ID, "error", err)
		_ = kept.Close() // nothing was written
		return
	}
	console := relay.NewLog(relay.DefaultCapacity, stream)
	m.mu.Lock()
	if m.instance != instance {
		m.mu.Unlock()
		_ = stream.Close() // it has ended since
		_ = kept.Close()   // nothing was written
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
		defer func() { _ = kept.Close() }()    // what is not kept is lost on nobody
		routine.Keep(s.ending, s.log, "VM console", func(context.Context) {
			// There is one per VM, so the buffer is small. Hiding other methods of stream keeps
			// io.CopyBuffer from ignoring it.
			_, _ = io.CopyBuffer(io.MultiWriter(console, kept), struct{ io.Reader }{stream}, make([]byte, 4096)) // it has ended
		})
	})
}

// Console returns a viewer of a running VM's console, starting at from. The caller must close it.
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
