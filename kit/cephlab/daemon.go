//go:build linux

package cephlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// needed are the programs of a cluster, and the packages of Debian and Ubuntu that they are in.
var needed = [][2]string{
	{"ceph", "ceph-common"}, {"rbd", "ceph-common"}, {"monmaptool", "ceph-base"}, {"ceph-mon", "ceph-mon"},
	{"ceph-osd", "ceph-osd"}, {"ceph-mgr", "ceph-mgr"}, {"radosgw", "radosgw"}, {"radosgw-admin", "ceph-common"},
}

// Missing returns the packages of Debian and Ubuntu that this machine lacks.
func Missing() (packages []string) {
	for _, n := range needed {
		if _, err := exec.LookPath(n[0]); err != nil && !slices.Contains(packages, n[1]) {
			packages = append(packages, n[1])
		}
	}
	return packages
}

// Daemon is a program of a cluster that runs until it is ended.
type Daemon struct {
	Name    string // osd.0
	Program string // ceph-osd
	Group   uint32 // of its process; 0: that of this process
}

// Daemons returns the daemons of the cluster, in the order in which they start.
func (l *Lab) Daemons() []Daemon {
	all := []Daemon{{Name: "mon.m", Program: "ceph-mon"}}
	if l.Manager {
		all = append(all, Daemon{Name: "mgr.x", Program: "ceph-mgr"})
	}
	for i := range l.OSDs {
		all = append(all, Daemon{Name: fmt.Sprintf("osd.%d", i), Program: "ceph-osd"})
	}
	if l.Gateway {
		all = append(all, ObjectGateway)
	}
	return all
}

// PIDs returns the processes of a daemon: one, or none.
func (l *Lab) PIDs(d Daemon) (pids []int) {
	// A process's folder may go while it is read.
	entries, _ := os.ReadDir("/proc")
	want := l.arguments(d)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
		if filepath.Base(args[0]) == d.Program && slices.Equal(args[1:], want) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (l *Lab) arguments(d Daemon) []string { return []string{"-c", l.Conf(), "-n", d.Name, "-f"} }

// Start starts a daemon, unless it runs. It goes on when this process ends. What Ceph's other programs, such as
// rbd-mirror, need to run as a daemon of the cluster is a key in its keyring.
func (l *Lab) Start(d Daemon) error {
	if len(l.PIDs(d)) > 0 {
		return nil
	}
	// The log of a daemon that died is kept until it dies again.
	log := l.path(filepath.Join("log", d.Name+".log"))
	if err := os.Rename(log, log+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	said, err := os.OpenFile(l.said(d), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = said.Close() }()               // the daemon has its own
	cmd := exec.Command(d.Program, l.arguments(d)...) //nolint:gosec // the programs are ours to choose
	cmd.Stdout, cmd.Stderr, cmd.Dir = said, said, l.Dir
	cmd.Env = append(environ(), "CEPH_CONF="+l.Conf())   // rbd-mirror reads the file again for each pool
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for it
	if d.Group != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(os.Geteuid()), Gid: d.Group} //nolint:gosec // ids fit
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", d.Name, err)
	}
	l.children = append(l.children, cmd)
	return nil
}

// said returns the path of what a daemon prints.
func (l *Lab) said(d Daemon) string { return l.path(filepath.Join("log", d.Name+".out")) }

// environ is the environment of the programs. Ceph's own variables would reach for other clusters.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CEPH_") })
}

// endWithin is how long daemons may take to end before they are killed.
const endWithin = 20 * time.Second

// Stop ends daemons, and returns when they have ended.
func (l *Lab) Stop(ctx context.Context, daemons ...Daemon) error {
	ctx, cancel := context.WithTimeout(ctx, 2*endWithin)
	defer cancel()
	killed := time.Now().Add(endWithin)
	l.signal(syscall.SIGTERM, daemons)
	for l.run(daemons) {
		if time.Now().After(killed) {
			l.signal(syscall.SIGKILL, daemons)
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("the daemons do not end: %w", err)
		}
	}
	return nil
}

// Kill ends all daemons at once, as a loss of power does, and what this process has started with Start.
func (l *Lab) Kill() {
	daemons := l.Daemons()
	for _, cmd := range l.children {
		_ = cmd.Process.Kill() // it may have ended
	}
	for l.signal(syscall.SIGKILL, daemons); l.run(daemons); {
		time.Sleep(interval)
	}
	l.reap()
}

func (l *Lab) signal(s syscall.Signal, daemons []Daemon) {
	for _, d := range daemons {
		for _, pid := range l.PIDs(d) {
			_ = syscall.Kill(pid, s) // it may have ended just now
		}
	}
}

func (l *Lab) run(daemons []Daemon) bool {
	return slices.ContainsFunc(daemons, func(d Daemon) bool { return len(l.PIDs(d)) > 0 })
}

// reap forgets the daemons of this process that have ended.
func (l *Lab) reap() {
	for _, cmd := range l.children {
		_ = cmd.Wait() // how it ended is of no interest
	}
	l.children = nil
}

// Run runs one of Ceph's programs on the cluster to its end, and returns what it prints. in may be nil.
func (l *Lab) Run(ctx context.Context, in []byte, program string, args ...string) (string, error) {
	return run(ctx, in, program, append([]string{"-c", l.Conf()}, args...)...)
}

// runWithin is how long a program may take.
const runWithin = time.Minute

func run(ctx context.Context, in []byte, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdin = environ(), bytes.NewReader(in)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, tail(said.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

// tail returns the end of what a program said.
func tail(said []byte) string {
	const most = 1000
	said = bytes.TrimSpace(said)
	return strings.ToValidUTF8(string(said[max(0, len(said)-most):]), "?")
}

// interval is how often something is looked at that another process does.
const interval = 100 * time.Millisecond

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(interval):
		return nil
	}
}

// happensWithin is how long something may take to happen.
const happensWithin = 90 * time.Second

// Await tries something until it works. It fails if a daemon of these ends meanwhile.
func (l *Lab) Await(caller context.Context, what string, daemons []Daemon, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(caller, happensWithin)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		for _, d := range daemons {
			if len(l.PIDs(d)) == 0 {
				said, _ := os.ReadFile(l.said(d)) // what can be had
				return fault.Wrap(fault.Unavailable, err, "%s ended, and its log is in %s: %s", d.Name, l.path("log"), tail(said))
			}
		}
		switch {
		case pause(ctx) == nil:
		case caller.Err() != nil:
			return fmt.Errorf("broken off before %s: %w", what, context.Cause(caller))
		default:
			return fault.Wrap(fault.Unavailable, err, "it took too long until %s", what)
		}
	}
}
