//go:build linux

package ceph

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// errUnanswered ends helpers.
var errUnanswered = errors.New("a call was not answered in time")

// errClosed ends helpers that are not needed any more.
var errClosed = errors.New("the connection was closed")

// helper is a process of mainstay-ceph that has connected.
type helper struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	log     *slog.Logger
	welcome wire.Welcome
	ended   chan struct{} // closed when the process is gone

	writing sync.Mutex // of in

	mu      sync.Mutex
	last    uint64
	pending map[uint64]*call
	cause   error // of its end
}

// call is a request that is not answered yet.
type call struct {
	answer chan wire.Response // has room for it
	told   func(float64)      // gets the part that is done; nil: nobody asks
	within time.Duration
	late   *time.Timer // nil: it may take as long as it takes
}

// start starts a helper and waits until it has connected, or ctx ends.
func start(ctx context.Context, program string, hello wire.Hello, log *slog.Logger) (*helper, error) {
	cmd := exec.Command(program) //nolint:gosec // as configured
	cmd.Dir = "/"
	// Nothing of the gateway's environment matters to librados, and it may hold secrets.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	// It ends with its input, also if this process is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &helper{cmd: cmd, in: in, log: log, ended: make(chan struct{}), pending: map[uint64]*call{}}
	welcome := make(chan wire.Welcome, 1)
	var reading sync.WaitGroup
	reading.Add(2)
	go func() {
		defer reading.Done()
		_ = routine.Run(log, "what mainstay-ceph logs", func() { h.repeat(said) })
	}()
	go func() {
		defer reading.Done()
		_ = routine.Run(log, "answers of mainstay-ceph", func() { h.read(bufio.NewReader(out), welcome) })
	}()
	go func() { _ = routine.Run(log, "end of mainstay-ceph", func() { h.wait(&reading) }) }()
	if err := h.write(&hello); err != nil {
		h.kill(err)
		<-h.ended
		return nil, fmt.Errorf("%s has ended: %w", program, h.reason())
	}
	select {
	case h.welcome = <-welcome:
		if h.welcome.Error != nil {
			h.kill(errClosed)
			return nil, h.welcome.Error
		}
		return h, nil
	case <-h.ended:
		return nil, fmt.Errorf("%s has ended: %w", program, h.reason())
	case <-ctx.Done():
		h.kill(errUnanswered)
		return nil, context.Cause(ctx)
	}
}

func (h *helper) write(v any) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	return wire.Send(h.in, v)
}

// repeat logs what the helper logs.
func (h *helper) repeat(said io.Reader) {
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		h.log.Warn("mainstay-ceph says", "text", lines.Text())
	}
	_, _ = io.Copy(io.Discard, said) // a line that is too long
}

// read passes answers on until there are no more.
func (h *helper) read(out io.Reader, welcome chan<- wire.Welcome) {
	defer h.kill(errors.New("it has closed its output"))
	var first wire.Welcome
	if err := wire.Receive(out, &first); err != nil {
		h.kill(unexpected(err))
		return
	}
	welcome <- first
	for {
		var r wire.Response
		if err := wire.Receive(out, &r); err != nil {
			h.kill(unexpected(err))
			return
		}
		h.mu.Lock()
		c := h.pending[r.ID]
		if r.Progress == nil {
			delete(h.pending, r.ID)
		}
		h.mu.Unlock()
		if c == nil {
			h.kill(fmt.Errorf("there is no request %d", r.ID))
			return
		}
		if r.Progress != nil {
			if c.late != nil {
				c.late.Reset(c.within)
			}
			if c.told != nil {
				c.told(*r.Progress)
			}
			continue
		}
		if c.late != nil {
			c.late.Stop()
		}
		c.answer <- r
	}
}

// unexpected returns the error of a helper that says nothing more. Its end is not the end of what is read through it.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// wait waits for the end of the process.
func (h *helper) wait(reading *sync.WaitGroup) {
	reading.Wait()
	err := h.cmd.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.cause = err
	}
	for _, c := range h.pending {
		if c.late != nil {
			c.late.Stop()
		}
	}
	close(h.ended)
}

// kill ends the process at once.
func (h *helper) kill(cause error) {
	h.mu.Lock()
	if h.cause == nil {
		h.cause = cause
	}
	h.mu.Unlock()
	_ = h.in.Close()
	_ = h.cmd.Process.Kill() // it may have ended by itself
}

// reason returns why the process has ended.
func (h *helper) reason() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// gone reports whether the process has ended, or is about to.
func (h *helper) gone() bool { return h.reason() != nil }

// send sends a request. If neither an answer nor progress comes within that time, the process is killed, whether the
// caller still waits or not. Zero is for ever.
func (h *helper) send(r wire.Request, within time.Duration, told func(float64)) (*call, error) {
	c := &call{answer: make(chan wire.Response, 1), told: told, within: within}
	h.mu.Lock()
	if h.cause != nil {
		h.mu.Unlock()
		return nil, h.reason()
	}
	h.last++
	r.ID = h.last
	h.pending[r.ID] = c
	if within > 0 {
		c.late = time.AfterFunc(within, func() {
			_ = routine.Run(h.log, "a call of mainstay-ceph that is late", func() { h.kill(errUnanswered) })
		})
	}
	h.mu.Unlock()
	if err := h.write(&r); err != nil {
		h.kill(err)
		return nil, h.reason()
	}
	return c, nil
}

// closeWithin is how long a process may take to end with its input: longer than the cluster may take to shut it out.
const closeWithin = 6 * time.Second

// close ends the process, and what it is still asked for.
func (h *helper) close() {
	h.mu.Lock()
	if h.cause == nil {
		h.cause = errClosed
	}
	h.mu.Unlock()
	_ = h.in.Close()
	time.AfterFunc(closeWithin, func() {
		_ = routine.Run(h.log, "end of mainstay-ceph", func() { h.kill(errClosed) })
	})
}
