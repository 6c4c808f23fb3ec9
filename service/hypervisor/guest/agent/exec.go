//go:build linux

package agent

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// outputGrace is how long output may pause after the process has ended. After that, other processes
// that hold the output open are no longer waited for.
const outputGrace = time.Second

// The environment of processes, before the request's variables.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

func (c *call) exec(ctx context.Context, args wire.Exec) (any, error) {
	cmd, err := command(args)
	if err != nil {
		return nil, err
	}
	if args.Detach {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		go func() { _ = cmd.Wait() }() // so that it does not stay as a zombie
		return wire.Exit{PID: cmd.Process.Pid}, nil
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := startProcess(cmd, args.Stdin)
	if err != nil {
		return nil, err
	}
	return p.run(ctx, c, args)
}

func command(args wire.Exec) (*exec.Cmd, error) {
	if len(args.Argv) == 0 || args.Argv[0] == "" {
		return nil, wire.Errorf(wire.Invalid, "argv: names no program")
	}
	if args.TimeoutMS < 0 || args.TimeoutMS > int64(365*24*time.Hour/time.Millisecond) || args.MaxOutput < 0 {
		return nil, wire.Errorf(
			wire.Invalid, "timeout_ms and max_output: must not be negative, nor the timeout longer than a year",
		)
	}
	if args.Dir == "" {
		args.Dir = "/"
	}
	cmd := &exec.Cmd{
		Args: args.Argv,
		Dir:  args.Dir,
		Env:  append(environment[:len(environment):len(environment)], args.Env...),
	}
	for _, pair := range args.Env {
		if name, _, ok := strings.Cut(pair, "="); !ok || name == "" {
			return nil, wire.Errorf(wire.Invalid, "env: each must be KEY=value")
		}
	}
	if info, err := os.Stat(args.Dir); err != nil || !info.IsDir() {
		return nil, wire.Errorf(wire.NotFound, "cwd: %s is not a folder", args.Dir)
	}
	var err error
	cmd.Path, err = lookPath(args.Argv[0], args.Dir, cmd.Env)
	return cmd, err
}

// lookPath looks up a program in the PATH of the new process, not the agent's.
func lookPath(program, dir string, env []string) (string, error) {
	if strings.Contains(program, "/") {
		if !filepath.IsAbs(program) {
			program = filepath.Join(dir, program)
		}
		return program, nil
	}
	path := ""
	for _, pair := range env { // the last one counts
		if value, ok := strings.CutPrefix(pair, "PATH="); ok {
			path = value
		}
	}
	for _, folder := range filepath.SplitList(path) {
		candidate := filepath.Join(folder, program)
		if info, err := os.Stat(candidate); filepath.IsAbs(candidate) && err == nil && !info.IsDir() &&
			info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", wire.Errorf(wire.NotFound, "argv: there is no program %s in PATH", program)
}

// process is a running process with the agent's ends of its pipes.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File // nil if it has no input
	output [2]*os.File
	exited chan struct{} // closed when it has ended; it is reaped later
}

func startProcess(cmd *exec.Cmd, input bool) (_ *process, err error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			p.close()
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	var out, errs, in *os.File
	p.output[0], out = pipe()
	p.output[1], errs = pipe()
	theirs = append(theirs, out, errs)
	if input {
		in, p.stdin = pipe()
		theirs = append(theirs, in)
	}
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, errs
	if input {
		cmd.Stdin = in
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.exited)
		// Do not reap it yet: while the process is a zombie, its PID is not reused, so killing its
		// group cannot hit others.
		for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
	}()
	return p, nil
}

// close closes the agent's ends. Calling Close on a nil *os.File is safe.
func (p *process) close() {
	p.stdin.Close()
	p.output[0].Close()
	p.output[1].Close()
}

// kill kills all processes of the group. It must not be called after reaping.
func (p *process) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// run feeds the process, sends its output and waits for its end.
func (p *process) run(ctx context.Context, c *call, args wire.Exec) (any, error) {
	limit := &outputLimit{left: args.MaxOutput, limited: args.MaxOutput > 0}
	var copying sync.WaitGroup
	if p.stdin != nil {
		copying.Go(func() { p.feed(ctx, c) })
	}
	var sending sync.WaitGroup
	for i, f := range p.output {
		sending.Go(func() {
			_, _ = c.sender.Copy(ctx, c.id, wire.Output+i, &output{f, p.exited, limit}, c.budget)
		})
	}
	var timeout <-chan time.Time
	if args.TimeoutMS > 0 {
		timer := time.NewTimer(time.Duration(args.TimeoutMS) * time.Millisecond)
		defer timer.Stop()
		timeout = timer.C
	}
	timedOut := false
	select {
	case <-p.exited:
	case <-timeout:
		timedOut = true
		p.kill()
	case <-ctx.Done():
		p.kill()
	}
	<-p.exited
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		sending.Wait()
	}()
	for _, f := range p.output {
		_ = f.SetReadDeadline(time.Now().Add(outputGrace))
	}
	select {
	case <-sent:
	case <-ctx.Done():
	}
	p.kill() // what the process left behind
	p.close()
	<-sent
	copying.Wait()
	_ = p.cmd.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return exitOf(p.cmd.ProcessState, timedOut, limit.truncated.Load()), nil
}

func exitOf(state *os.ProcessState, timedOut, truncated bool) wire.Exit {
	exit := wire.Exit{PID: state.Pid(), Code: state.ExitCode(), TimedOut: timedOut, Truncated: truncated}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = unix.SignalName(status.Signal())
	}
	return exit
}

// feed writes the call's data to the process until the data ends or the process stops reading.
func (p *process) feed(ctx context.Context, c *call) {
	defer p.stdin.Close()
	for {
		_, data, err := c.inbox.Take(ctx)
		if err != nil {
			return
		}
		if _, err := p.stdin.Write(data); err != nil {
			return
		}
		if c.consumed(ctx, len(data)) != nil {
			return
		}
	}
}

// output reads one of a process's outputs, up to the common limit of both. After the process has
// ended, it waits at most outputGrace for more.
type output struct {
	file   *os.File
	exited <-chan struct{}
	limit  *outputLimit
}

func (o *output) Read(b []byte) (int, error) {
	for {
		select {
		case <-o.exited:
			_ = o.file.SetReadDeadline(time.Now().Add(outputGrace))
		default:
		}
		n, err := o.file.Read(b)
		if err != nil {
			return 0, io.EOF // closed, or out of time
		}
		if n = o.limit.take(n); n > 0 {
			return n, nil
		}
	}
}

type outputLimit struct {
	mu        sync.Mutex
	limited   bool
	left      int64
	truncated atomic.Bool
}

// take returns how many of n bytes may be sent.
func (l *outputLimit) take(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.limited {
		return n
	}
	if int64(n) > l.left {
		l.truncated.Store(true)
		n = int(l.left)
	}
	l.left -= int64(n)
	return n
}
