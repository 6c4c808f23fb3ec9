package machine

import (
	"context"
	"io"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// console is a VM's serial console: one stream of the VM's, which all viewers see and all
// may write to. What was printed last is replayed to who comes later.
type console struct {
	stream io.ReadWriteCloser

	mu      sync.Mutex
	recent  []byte // a ring of what was printed last
	next    int    // where the ring continues
	viewers map[*viewer]bool
	closed  bool
}

// scrollback is how much is replayed, in bytes.
const scrollback = 64 << 10

// backlog is how many pieces a viewer may be behind before it is let go.
const backlog = 64

// viewer is somebody who looks at a console.
type viewer struct {
	c      *console
	pieces chan []byte
	rest   []byte // of the piece that is being read
}

// WatchConsole reads a VM's console from its start, so that what it prints while nobody
// looks is there for who comes later.
func (s *Set) WatchConsole(m *Machine, instance backend.Instance) {
	ctx, cancel := context.WithTimeout(context.Background(), CallLimit)
	defer cancel()
	stream, err := instance.Dial(ctx, backend.ConsoleChannel)
	if err != nil {
		s.log.Warn("a VM's console cannot be opened", "vm", m.ID, "error", err)
		return
	}
	c := &console{stream: stream, viewers: map[*viewer]bool{}}
	m.mu.Lock()
	if m.instance != instance {
		m.mu.Unlock()
		_ = stream.Close() // it has ended meanwhile
		return
	}
	m.console = c
	m.mu.Unlock()
	s.Go("VM console", func() {
		select {
		case <-s.ending.Done():
		case <-instance.Done():
		}
		_ = stream.Close() // ends read
	})
	s.watchers.Go(func() {
		defer c.end()
		routine.Keep(s.ending, s.log, "VM console", c.read)
	})
}

// read hands on what is printed.
func (c *console) read(context.Context) {
	buffer := make([]byte, 4096)
	for {
		n, err := c.stream.Read(buffer)
		if n > 0 {
			c.printed(append([]byte(nil), buffer[:n]...))
		}
		if err != nil {
			return
		}
	}
}

// end lets go of the viewers.
func (c *console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for v := range c.viewers {
		close(v.pieces)
	}
	c.viewers = nil
}

func (c *console) printed(piece []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(piece)
	for v := range c.viewers {
		select {
		case v.pieces <- piece:
		default:
			// A viewer that does not keep up must not hold up the guest.
			delete(c.viewers, v)
			close(v.pieces)
		}
	}
}

// keep puts a piece into the ring, which grows up to scrollback.
func (c *console) keep(piece []byte) {
	if room := scrollback - len(c.recent); room > 0 {
		n := min(room, len(piece))
		c.recent = append(c.recent, piece[:n]...)
		piece = piece[n:]
	}
	for len(piece) > 0 {
		n := copy(c.recent[c.next:], piece)
		piece, c.next = piece[n:], (c.next+n)%scrollback
	}
}

// view begins to look: what was printed last comes first.
func (c *console) view() (*viewer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fault.New(fault.Conflict, "the VM's console is closed")
	}
	v := &viewer{c: c, pieces: make(chan []byte, backlog)}
	if len(c.recent) > 0 {
		v.pieces <- append(append([]byte(nil), c.recent[c.next:]...), c.recent[:c.next]...)
	}
	c.viewers[v] = true
	return v, nil
}

// Read reads what is printed.
func (v *viewer) Read(b []byte) (int, error) {
	for len(v.rest) == 0 {
		piece, ok := <-v.pieces
		if !ok {
			return 0, io.EOF
		}
		v.rest = piece
	}
	n := copy(b, v.rest)
	v.rest = v.rest[n:]
	return n, nil
}

// Write types.
func (v *viewer) Write(b []byte) (int, error) { return v.c.stream.Write(b) }

// Close ends looking.
func (v *viewer) Close() error {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	if v.c.viewers[v] {
		delete(v.c.viewers, v)
		close(v.pieces)
	}
	return nil
}

// Console looks at the console of a VM that runs, until it is closed.
func (m *Machine) Console(r *record.VM) (io.ReadWriteCloser, error) {
	m.mu.Lock()
	c, runs := m.console, m.instance != nil
	m.mu.Unlock()
	switch {
	case !runs:
		return nil, fault.New(fault.Conflict, "the VM is %s; it has a console while it runs", r.State).
			WithCode("wrong_state")
	case c == nil:
		return nil, fault.New(fault.Conflict, "the VM's console is not open").WithCode("no_console")
	}
	return c.view()
}
