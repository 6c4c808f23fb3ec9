//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

const (
	defaultWritableMiB = 10 << 10
	maxName            = 64               // what a hostname may have
	cleanLimit         = 30 * time.Second // for what is done when the caller waits no longer
)

// Options configures the backend.
type Options struct {
	Program string // runsc, by name or path; "runsc" if empty
	Agent   string // the path of a static mainstay-guest; required
	// WritableMiB limits the size on the host of one sandbox's changes to its root file system; 10
	// GiB if 0.
	WritableMiB int
}

// Backend runs sandboxes.
type Backend struct{ options Options }

var _ backend.Backend = (*Backend)(nil)

// New returns the backend. It does not access the host.
func New(o Options) *Backend {
	if o.Program == "" {
		o.Program = "runsc"
	}
	if o.WritableMiB == 0 {
		o.WritableMiB = defaultWritableMiB
	}
	return &Backend{options: o}
}

// Probe checks for runsc and the agent, and for root rights. Whether the host's kernel can run
// sandboxes is known only once one runs.
func (b *Backend) Probe(ctx context.Context) backend.Info {
	if err := b.missing(); err != nil {
		return backend.Info{Detail: fault.From(err).Message}
	}
	out, err := exec.CommandContext(
		ctx, b.options.Program, "--version",
	).Output() //nolint:gosec // the operator's program
	first, _, _ := strings.Cut(string(out), "\n")
	version, ours := strings.CutPrefix(first, "runsc version ")
	if err != nil || !ours {
		return backend.Info{
			Detail: fmt.Sprintf("%s is not gVisor's runsc: it does not tell its version", b.options.Program),
		}
	}
	return backend.Info{Available: true, Version: strings.TrimSpace(version), Detail: "systrap"}
}

// missing returns a fault that names what sandboxes need and the host lacks.
func (b *Backend) missing() error {
	if os.Geteuid() != 0 {
		return fault.New(fault.Unavailable, "sandboxes are run as root, which this daemon is not")
	}
	if _, err := exec.LookPath(b.options.Program); err != nil {
		return fault.Wrap(
			fault.Unavailable,
			err,
			"sandboxes are run by gVisor's runsc, which is missing: put it at %s, see https://gvisor.dev/docs/user_guide/install",
			b.options.Program,
		)
	}
	if info, err := os.Stat(b.options.Agent); err != nil || !info.Mode().IsRegular() ||
		!filepath.IsAbs(b.options.Agent) {
		return fault.Wrap(
			fault.Unavailable, err, "sandboxes need the guest agent, a static mainstay-guest, which is not at %q",
			b.options.Agent,
		)
	}
	return nil
}

// Check rejects VMs that cannot run as sandboxes.
func (b *Backend) Check(s *backend.Spec) error {
	for _, not := range []struct {
		field string
		given bool
		why   string
	}{
		{"kernel", s.Kernel != "", "a sandbox has the kernel of gVisor"},
		{"initrd", s.Initrd != "", "a sandbox has the kernel of gVisor"},
		{"kernel_args", s.KernelArgs != "", "a sandbox has the kernel of gVisor"},
		{"firmware", s.Firmware != "", "a sandbox has no firmware"},
		{"disk_gib", len(s.Disks) > 0, "a sandbox has no disks, only the root file system of its image"},
		{"network.mode", len(s.NICs) > 0, "a sandbox has no network yet: must be none"},
		{"image", s.RootFS == "", "a sandbox needs the folder of a root file system"},
		{"name", s.Name == "" || len(s.Name) > maxName, "it is the sandbox's host name, which has 1 to 64 bytes"},
		{"vcpus", s.VCPUs < 1, "must be at least 1"},
		{"memory_mib", s.MemoryMiB < 1, "must be at least 1"},
	} {
		if not.given {
			return fault.InvalidField(not.field, "%s: %s", not.field, not.why)
		}
	}
	return nil
}

// Start starts a sandbox, after removing the remains of an earlier one of the VM.
func (b *Backend) Start(ctx context.Context, s *backend.Spec) (backend.Instance, error) {
	return b.start(ctx, s, "run")
}

// Restore starts a sandbox from the checkpoint in a folder, with its memory and its changes to the
// same root file system. Sessions of the agent and of consoles are not restored, but programs that
// the agent started are. The VM may differ from the original: until RotateSecret, host name and
// agent secret are those of the checkpoint.
func (b *Backend) Restore(ctx context.Context, s *backend.Spec, folder string) (backend.Instance, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, fault.Wrap(fault.NotFound, err, "there is no checkpoint of the sandbox")
	}
	return b.start(ctx, s, "restore", "--image-path="+folder)
}

// start creates a sandbox with a runsc command. If it fails, it leaves nothing.
func (b *Backend) start(ctx context.Context, s *backend.Spec, command ...string) (*Instance, error) {
	if err := b.missing(); err != nil {
		return nil, err
	}
	if err := b.Check(s); err != nil {
		return nil, err
	}
	if info, err := os.Stat(s.RootFS); err != nil || !info.IsDir() {
		return nil, fault.Wrap(fault.Invalid, err, "image: there is no folder with a root file system")
	}
	if strings.ContainsAny(s.Folder, ",:") {
		return nil, fmt.Errorf("runsc cannot be told of the folder %q, which has a comma or colon", s.Folder)
	}
	if err := b.Clean(ctx, s); err != nil {
		return nil, err
	}
	p, err := b.create(ctx, s, command...)
	if err != nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
		defer cancel()
		return nil, errors.Join(err, b.Clean(limited, s))
	}
	return b.instance(s, p), nil
}

func (b *Backend) create(ctx context.Context, s *backend.Spec, command ...string) (*process.Process, error) {
	_, err := os.Stat(filepath.Join(s.Folder, secretFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text, err := config(s, b.options.Agent, err == nil)
	if err != nil {
		return nil, err
	}
	lock, free, err := lockFolder(s.Folder)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if !free {
		return nil, fault.New(fault.Conflict, "the sandbox is being started or cleaned up already")
	}
	state := stateFolder(s)
	if err := os.Mkdir(state, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(state, configFile), text, 0o600); err != nil {
		return nil, err
	}
	if err := b.begin(ctx, lock, state, command...); err != nil {
		return nil, err
	}
	raw, err := process.Head(filepath.Join(state, pidFile), mostSaid)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return nil, fmt.Errorf("runsc does not say which process the sandbox is: %w", err)
	}
	p, err := process.Hold(pid)
	if err != nil {
		return nil, fmt.Errorf("the sandbox has ended at once: %w", err)
	}
	if err := p.Note(s.Folder); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Find returns the sandbox that an earlier daemon started. A sandbox whose start never finished is
// not found; Clean removes it.
func (b *Backend) Find(_ context.Context, s *backend.Spec) (backend.Instance, error) {
	p, err := process.Find(s.Folder)
	if p == nil || err != nil {
		return nil, err
	}
	return b.instance(s, p), nil
}

// Clean kills a sandbox's remaining processes and removes all of its state except the secret.
func (b *Backend) Clean(ctx context.Context, s *backend.Spec) error {
	state := stateFolder(s)
	if _, err := os.Lstat(state); errors.Is(err, fs.ErrNotExist) {
		return process.Forget(s.Folder)
	}
	lock, err := sweepAndLock(ctx, b.options.Program, s.Folder, state)
	if err != nil {
		return err
	}
	defer unlock(lock)
	// The record goes first. If the rest fails, Clean can be repeated.
	if err := process.Forget(s.Folder); err != nil {
		return err
	}
	return os.RemoveAll(state)
}
