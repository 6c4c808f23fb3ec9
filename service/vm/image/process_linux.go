package image

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// nobodyBase is the first of the ids on the host that stand for those in a guest's folder. No account
	// and no container has them.
	nobodyBase  = 2_000_000_000
	nobodyCount = 1 << 16
	// killWait is how long output is read after a tool was killed.
	killWait = 5 * time.Second
)

// tool is a program to run. It runs as root of a user namespace that maps to nobody on the host, in mount and
// process namespaces of its own.
type tool struct {
	name  string
	args  []string
	dir   string
	stdin io.Reader
	// hint says what to install if the host does not have the program.
	hint string
}

// run runs a tool, with its output to out. When ctx ends, the tool and all that it has started are killed.
func (t tool) run(ctx context.Context, out io.Writer) error {
	path, err := exec.LookPath(t.name)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "this host has no program %s: %s", t.name, t.hint).
			WithCode("image_tool_missing")
	}
	args := t.args
	if os.Geteuid() != 0 {
		// The system's helpers map the ids that /etc/subuid gives the service's account.
		args = append([]string{
			"--user", "--map-root-user", "--map-auto", "--mount", "--pid", "--fork", "--kill-child", "--", path,
		}, args...)
		if path, err = exec.LookPath("unshare"); err != nil {
			return fault.Wrap(fault.Unavailable, err, "this host has no program unshare: apt-get install util-linux uidmap")
		}
	}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // arguments are checked values
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = t.dir, t.stdin, out, out, killWait
	cmd.Env = environment(t.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: nobodyBase, Size: nobodyCount}}
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ids, ids
		cmd.SysProcAttr.GidMappingsEnableSetgroups = true
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// The signal of a parent's death is that of the thread which started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, syscall.EPERM) && cmd.ProcessState == nil:
		return fault.Wrap(fault.Unavailable, err, "the host allows this service no user namespaces, in which images are built")
	case err != nil:
		return fault.Wrap(fault.Unavailable, err, "%s failed (%s); the log of the image says why", t.name, err)
	}
	return nil
}

// environment is what tools get: nothing of the service's own but proxies.
func environment(dir string) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/nonexistent",
		"TMPDIR=" + dir, "DEBIAN_FRONTEND=noninteractive",
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "https_proxy", "no_proxy":
			env = append(env, v)
		}
	}
	return env
}

// give makes a folder that tools may write to.
func give(folder string) error {
	if err := os.Mkdir(folder, 0o711); err != nil { //nolint:gosec // accounts of the guest reach what is below
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(folder, nobodyBase, nobodyBase)
}

// owned opens a file that a tool has made. Whatever ran in the tool's namespaces may have put something else
// there, so links are not followed.
func owned(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // below our own folder
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		stat, ok := info.Sys().(*syscall.Stat_t)
		mine := uint32(os.Geteuid()) //nolint:gosec // not negative
		if mine == 0 {
			mine = nobodyBase
		}
		if !ok || !info.Mode().IsRegular() || stat.Nlink != 1 || stat.Uid != mine {
			err = fault.New(fault.Internal, "a file that was made for an image is not what it should be")
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// remove removes a folder with all that tools have left in it.
func remove(folder string) error {
	err := os.RemoveAll(folder)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	// What is the guest's is owned by ids that only the namespace may touch.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if failed := (tool{name: "rm", args: []string{"-rf", "--", folder}, dir: "/"}).run(ctx, io.Discard); failed != nil {
		return errors.Join(err, failed)
	}
	return os.RemoveAll(folder)
}

// allocated returns the bytes of storage that a file takes.
func allocated(info os.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Blocks * sectorSize
	}
	return info.Size()
}
