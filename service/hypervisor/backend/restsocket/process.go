//go:build linux

package restsocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// The run folder's name in a VM's folder or jail, and the names in it.
const (
	RunFolder   = "run"
	APISocket   = "api.sock"
	VsockSocket = "vsock.sock"
	LogPipe     = "log"
)

// InRun returns the path of a socket or pipe relative to the parent of the run folder, which is the
// program's working folder.
func InRun(name string) string { return RunFolder + "/" + name }

// Program describes a program to launch.
type Program struct {
	Name   string // for people
	Path   string
	Args   []string
	Folder string // the VM's; its working folder
	Root   string // the folder with the run folder: the VM's, or a jail's
	// OwnerUID and OwnerGID own the run folder. UID, GID and the additional Groups are those of the
	// process. 0: the daemon's.
	OwnerUID, OwnerGID int
	UID, GID           int
	Groups             []uint32
	// Stdin and Stdout are named pipes in the VM's folder that are created and held for the
	// program; empty: no input, and the log.
	Stdin, Stdout string
	// EndMark matches what the program logs on a clean exit, for daemons that are not its parent
	// and do not get its exit status.
	EndMark *regexp.Regexp
}

// VM is a running program.
type VM struct {
	name, run    string
	endMark      *regexp.Regexp
	process      *process.Process
	http         *http.Client
	log          *sayings
	exited       chan struct{} // closed when status is known; nil if it never will be
	status       *os.ProcessState
	done, closed chan struct{}
	letGo        sync.Once

	mu     sync.Mutex
	killed bool
}

// Launch starts a program and returns when its API socket accepts connections. If that fails, the
// error contains the program's output, and nothing is left but the folders that it was given.
func Launch(ctx context.Context, p Program) (*VM, error) {
	v, err := launch(p)
	if err != nil {
		return nil, errors.Join(err, Forget(p.Folder, p.Root))
	}
	err = v.process.Note(p.Folder)
	if err == nil {
		err = v.comeUp(ctx)
	}
	if err == nil {
		return v, nil
	}
	return nil, v.Abandon(err, p.Folder, p.Root)
}

// Abandon kills a VM that failed to start, removes its remains from the folders, and returns the
// reason together with the program's output.
func (v *VM) Abandon(reason error, folder, root string) error {
	err := v.process.Kill()
	if err == nil {
		<-v.Done() // so that nothing of it is left
		err = Forget(folder, root)
	}
	if fault.From(reason).Kind == fault.Internal {
		reason = fmt.Errorf("%s did not come up; it said: %s (%w)", v.name, v.log.lastWords(), reason)
	}
	return errors.Join(reason, err, v.Close())
}

// Forget removes the files of a program without a process.
func Forget(folder, root string) error {
	return errors.Join(
		os.RemoveAll(filepath.Join(root, RunFolder)), os.RemoveAll(filepath.Join(folder, process.RecordFile)),
	)
}

func launch(p Program) (*VM, error) {
	run := filepath.Join(p.Root, RunFolder)
	if err := prepare(p, run); err != nil {
		return nil, err
	}
	// The log is opened before anything can be written to it, so that nothing is missed.
	log, err := listen(run)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(p.Path, p.Args...) //nolint:gosec // the operator's program; arguments are values of ours
	cmd.Dir = p.Folder
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"} // nothing of the daemon's secrets
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
	} // a signal to the daemon's terminal is not for it
	if p.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{
			Uid:    uint32(p.UID),
			Gid:    uint32(p.GID),
			Groups: p.Groups,
		} //nolint:gosec // checked by who chose them
	}
	held, err := attach(cmd, p, run)
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range held {
		_ = f.Close() // the program has its own
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.Name, err), log.pipe.Close())
	}
	running, err := process.Hold(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, errors.Join(err, log.pipe.Close())
	}
	v := newVM(p.Name, run, p.EndMark, running, log)
	v.exited = make(chan struct{})
	routine.Go(nil, p.Name, func() {
		defer close(v.exited)
		_ = cmd.Wait() // the status says it
		v.status = cmd.ProcessState
	})
	routine.Go(nil, "VM end", v.watch)
	return v, nil
}

// prepare recreates the run folder and the pipes.
func prepare(p Program, run string) error {
	if err := Forget(p.Folder, p.Root); err != nil {
		return err
	}
	if err := os.Mkdir(run, 0o700); err != nil {
		return err
	}
	if p.OwnerUID != 0 {
		if err := os.Lchown(run, p.OwnerUID, p.OwnerGID); err != nil {
			return err
		}
	}
	for _, name := range []string{p.Stdin, p.Stdout} {
		if name == "" {
			continue
		}
		path := filepath.Join(p.Folder, name)
		if err := errors.Join(os.RemoveAll(path), MakePipe(path, 0, 0)); err != nil {
			return err
		}
	}
	return MakePipe(filepath.Join(run, LogPipe), p.OwnerUID, p.OwnerGID)
}

// attach opens the program's standard input, output and error.
func attach(cmd *exec.Cmd, p Program, run string) (held []*os.File, err error) {
	log := filepath.Join(run, LogPipe)
	for _, one := range []struct {
		pipe string
		set  func(*os.File)
	}{
		{inFolder(p.Folder, p.Stdin, ""), func(f *os.File) { cmd.Stdin = f }},
		{inFolder(p.Folder, p.Stdout, log), func(f *os.File) { cmd.Stdout = f }},
		{log, func(f *os.File) { cmd.Stderr = f }},
	} {
		if one.pipe == "" {
			continue
		}
		f, err := HoldPipe(one.pipe)
		if err != nil {
			return held, err
		}
		held = append(held, f)
		one.set(f)
	}
	return held, nil
}

func inFolder(folder, name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return filepath.Join(folder, name)
}

func newVM(name, run string, endMark *regexp.Regexp, p *process.Process, log *sayings) *VM {
	v := &VM{
		name:    name,
		run:     run,
		endMark: endMark,
		process: p,
		log:     log,
		done:    make(chan struct{}),
		closed:  make(chan struct{}),
	}
	v.http = v.client()
	return v
}

// comeUp waits until the API socket accepts connections or the process has ended.
func (v *VM) comeUp(ctx context.Context) error {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := v.dialSocket(ctx, APISocket)
		if err == nil {
			return conn.Close()
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-v.done:
			return errors.New("it ended")
		}
	}
}

// Find returns the program that an earlier daemon launched for a VM, or nil if its process has
// ended. Of p, it uses Name, Folder, Root and EndMark.
func Find(p Program) (*VM, error) {
	held, err := process.Find(p.Folder)
	if err != nil || held == nil {
		return nil, err
	}
	run := filepath.Join(p.Root, RunFolder)
	log, err := listen(run)
	if err != nil {
		// The log is not essential: the end of the process is noticed without it.
		log = &sayings{}
	}
	v := newVM(p.Name, run, p.EndMark, held, log)
	routine.Go(nil, "VM end", v.watch)
	return v, nil
}

// logLimit is how long to wait for the end of a log. Children of the program may hold it open.
const logLimit = time.Second

// watch follows the process until it ends or Close is called.
func (v *VM) watch() {
	if v.log.pipe != nil {
		routine.Go(nil, "VM log", v.log.follow)
	}
	select {
	case <-v.process.Done():
	case <-v.closed:
		return
	}
	if v.exited != nil {
		<-v.exited
	}
	if v.log.pipe != nil {
		select {
		case <-v.log.read:
		case <-time.After(logLimit):
		}
	}
	close(v.done)
}

// PID is that of the program.
func (v *VM) PID() int { return v.process.PID }

// Done is closed when the program has ended.
func (v *VM) Done() <-chan struct{} { return v.done }

// HasEnded reports whether the program has ended.
func (v *VM) HasEnded() bool { return v.process.HasEnded() }

// Ended returns how the program ended.
func (v *VM) Ended() backend.End {
	v.mu.Lock()
	defer v.mu.Unlock()
	var status syscall.WaitStatus
	if v.status != nil {
		status, _ = v.status.Sys().(syscall.WaitStatus)
	}
	switch {
	case v.killed:
		return backend.End{Clean: true, Reason: "the VM was killed"}
	case status.Signaled() && (status.Signal() == unix.SIGTERM || status.Signal() == unix.SIGINT):
		return backend.End{Clean: true, Reason: "the process was told to end by a signal"}
	case v.status != nil && v.status.Success(), v.status == nil && v.endMark.MatchString(v.log.String()):
		return backend.End{Clean: true, Reason: "the guest powered off"}
	}
	how := "ended"
	if v.status != nil {
		how = "ended with " + v.status.String()
	}
	return backend.End{Reason: fmt.Sprintf("%s %s; it said: %s", v.name, how, v.log.lastWords())}
}

// Kill kills the program.
func (v *VM) Kill(context.Context) error {
	v.mu.Lock()
	v.killed = v.killed || !v.process.HasEnded()
	v.mu.Unlock()
	return v.process.Kill()
}

// Close detaches from the VM, which keeps running.
func (v *VM) Close() (err error) {
	v.letGo.Do(func() {
		close(v.closed)
		err = v.process.Close()
		if v.log.pipe != nil {
			err = errors.Join(err, v.log.pipe.Close())
		}
	})
	return err
}

func (v *VM) dialSocket(ctx context.Context, name string) (net.Conn, error) {
	return process.Dial(ctx, v.run, name, v.process.PID)
}

// Socket connects to one of the program's sockets.
func (v *VM) Socket(ctx context.Context, name string) (io.ReadWriteCloser, error) {
	return v.dialSocket(ctx, name)
}

// Guest connects to a vsock port of the guest.
func (v *VM) Guest(ctx context.Context, port uint32) (io.ReadWriteCloser, error) {
	conn, err := v.dialSocket(ctx, VsockSocket)
	if err != nil {
		return nil, err
	}
	if err := connectGuest(ctx, conn, port); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
