package image

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Grow makes the disk in a qcow2 image of the daemon's own larger, to the size in limits.
func Grow(ctx context.Context, path string, limits Limits) error {
	cmd := exec.CommandContext( //nolint:gosec // paths are values, not options
		ctx, "prlimit", "--fsize="+strconv.FormatInt(limits.Written, 10), "--as="+strconv.FormatInt(limits.Memory, 10),
		"--cpu="+strconv.Itoa(int(limits.CPU/time.Second)), "--core=0",
		"qemu-img", "resize", "-q", "-f", string(Qcow2), path, strconv.FormatInt(limits.VirtualSize, 10))
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "MALLOC_ARENA_MAX=1"}
	confine(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	said, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return err
	}
	return failure(ctx, err, strings.TrimSpace(string(said)))
}
