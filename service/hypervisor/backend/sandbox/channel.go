//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// hangUp is how long a console's programs may take to end before they are killed.
const hangUp = time.Second

// Dial starts a process in the sandbox and connects the stream to its input and output: a relay to
// the agent, or a shell on a terminal. It ends when the stream is closed.
func (i *Instance) Dial(_ context.Context, c backend.Channel) (io.ReadWriteCloser, error) {
	switch c {
	case backend.AgentChannel:
		if !i.agent {
			return nil, fault.New(fault.Conflict, "this sandbox was created without the guest agent")
		}
		return i.dialAgent()
	case backend.ConsoleChannel:
		return i.dialConsole()
	case backend.ScreenChannel:
		return nil, fault.New(fault.Conflict, "a sandbox has no screen")
	}
	return nil, fault.New(fault.NotFound, "a sandbox has no channel %q", c)
}

func (i *Instance) dialAgent() (io.ReadWriteCloser, error) {
	// Pipes are used because gVisor loses writes to a full host socket.
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer theirOut.Close()
	s := &agentStream{in: in, out: out, ended: make(chan struct{})}
	s.cmd = i.exec(guestAgent, "relay")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = theirIn, theirOut, &s.said
	s.cmd.WaitDelay = hangUp // do not wait for what the guest still holds open
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	routine.Go(nil, "sandbox exec", func() {
		defer close(s.ended)
		s.err = s.cmd.Wait()
	})
	return s, nil
}

// exec is a run of a program in the sandbox.
func (i *Instance) exec(argv ...string) *exec.Cmd {
	args := append(i.backend.global(i.state), "exec", "--env=TERM=xterm-256color", id)
	return i.backend.command(context.Background(), append(args, argv...)...)
}

// agentStream is a session with the agent.
type agentStream struct {
	in, out *os.File // of the agent

	cmd     *exec.Cmd
	said    firstBytes
	started sync.Once
	reason  error // why it did not start, once started is done; nil if it did

	ended chan struct{}
	err   error // of the run, once ended is closed
}

// Write writes to the agent. It may notice before Read that the agent did not start.
func (s *agentStream) Write(b []byte) (int, error) {
	n, err := s.in.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		err = s.failed(err)
	}
	return n, err
}

// Read reads the agent's output. After the first bytes, the runsc process that started the relay is
// no longer needed. It is killed to save memory.
func (s *agentStream) Read(b []byte) (int, error) {
	n, err := s.out.Read(b)
	if n > 0 {
		s.started.Do(func() { _ = s.cmd.Process.Kill() })
	} else if errors.Is(err, io.EOF) {
		err = s.failed(err)
	}
	return n, err
}

// failed returns the error of a stream that ended with err: why the agent did not start, or err.
func (s *agentStream) failed(err error) error {
	s.started.Do(func() { s.reason = s.whyNot() })
	if s.reason != nil {
		return s.reason
	}
	return err
}

// whyNot returns why an agent did not start.
func (s *agentStream) whyNot() error {
	select {
	case <-s.ended:
	case <-time.After(hangUp):
		return io.EOF
	}
	return fmt.Errorf(
		"the agent did not start in the sandbox: %w: %s", errors.Join(s.err, io.EOF), words(s.said.bytes()),
	)
}

// Close ends the session. The relay notices the end of its input.
func (s *agentStream) Close() error {
	_ = s.cmd.Process.Kill()
	return errors.Join(s.in.Close(), s.out.Close())
}

// firstBytes keeps the first 4 KiB that are written to it and discards the rest.
type firstBytes struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (f *firstBytes) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	const most = 4096
	f.kept.Write(b[:min(len(b), max(0, most-f.kept.Len()))])
	return len(b), nil
}

func (f *firstBytes) bytes() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.kept.Bytes())
}

func (i *Instance) dialConsole() (io.ReadWriteCloser, error) {
	master, theirs, err := terminal()
	if err != nil {
		return nil, fmt.Errorf("a terminal for the console: %w", err)
	}
	defer theirs.Close()
	c := &console{File: master, cmd: i.exec("/bin/sh"), ended: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs, theirs, theirs
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(err, master.Close())
	}
	routine.Go(nil, "sandbox exec", func() {
		defer close(c.ended)
		_ = c.cmd.Wait()
	})
	return c, nil
}

// terminal opens a pair of pseudoterminals.
func terminal() (master, replica *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	master = os.NewFile(uintptr(fd), "console")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err == nil {
		replica, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, replica, nil
}

// console is a shell on a terminal.
type console struct {
	*os.File // the terminal's master

	cmd   *exec.Cmd
	ended chan struct{}
	once  sync.Once
}

// Read reads what the shell shows. A terminal that nobody holds any more has ended.
func (c *console) Read(b []byte) (int, error) {
	n, err := c.File.Read(b)
	if errors.Is(err, unix.EIO) {
		err = io.EOF
	}
	return n, err
}

// Close hangs up.
func (c *console) Close() (err error) {
	c.once.Do(func() {
		_ = c.cmd.Process.Signal(unix.SIGHUP) // runsc passes it on to what runs in the foreground
		err = c.File.Close()
		routine.Go(nil, "sandbox exec", func() {
			select {
			case <-c.ended:
			case <-time.After(hangUp):
				_ = c.cmd.Process.Kill()
			}
		})
	})
	return err
}
