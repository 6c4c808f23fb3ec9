//go:build linux

package cloudhypervisor

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
)

// Options configures the backend.
type Options struct {
	Program string // cloud-hypervisor, by name or path; "cloud-hypervisor" if empty
	// Firmware boots disks of VMs that name neither a kernel nor a firmware; empty: these
	// are refused.
	Firmware string
	Log      *slog.Logger
}

// Backend runs VMs with Cloud Hypervisor.
type Backend struct{ o Options }

var _ backend.Backend = (*Backend)(nil)

// New returns the backend. It does not access the host.
func New(o Options) *Backend {
	if o.Program == "" {
		o.Program = "cloud-hypervisor"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Backend{o}
}

// Name is cloud-hypervisor.
func (b *Backend) Name() string { return backend.CloudHypervisor }

// Probe checks for the program and for KVM. Whether KVM works is detected by package accel.
func (b *Backend) Probe(ctx context.Context) backend.Info {
	if err := b.missing(); err != nil {
		return backend.Info{Detail: fault.From(err).Message}
	}
	version, err := restsocket.Version(ctx, b.o.Program, "cloud-hypervisor v")
	if err != nil {
		return backend.Info{Detail: err.Error()}
	}
	if err := restsocket.KVM(); err != nil {
		return backend.Info{Version: version, Detail: fault.From(err).Message}
	}
	return backend.Info{Available: true, Version: version, Detail: "kvm"}
}

func (b *Backend) missing() error {
	if _, err := exec.LookPath(b.o.Program); err != nil {
		return fault.Wrap(
			fault.Unavailable, err,
			"Cloud Hypervisor (%s) is missing: get it from the releases of github.com/cloud-hypervisor/cloud-hypervisor",
			b.o.Program,
		)
	}
	return nil
}

// Check rejects VMs that Cloud Hypervisor cannot run.
func (b *Backend) Check(s *backend.Spec) error {
	switch {
	case s.RootFS != "":
		return fault.InvalidField("image", "is a root file system, which only a sandbox runs")
	case s.Kernel != "" && s.Firmware != "":
		return fault.InvalidField(
			"firmware", "cannot be had together with a kernel: Cloud Hypervisor boots one of them",
		)
	case s.Kernel == "" && s.Firmware == "" && b.o.Firmware == "":
		return fault.InvalidField(
			"kernel",
			"is required by Cloud Hypervisor, or a firmware that was built for it (CLOUDHV.fd or hypervisor-fw); backend qemu has its own",
		)
	case s.Kernel == "" && len(s.Disks) == 0:
		return fault.InvalidField("image", "is required: without an image, a kernel or a disk there is nothing to boot")
	case s.Initrd != "" && s.Kernel == "":
		return fault.InvalidField("initrd", "needs a kernel")
	}
	for _, d := range s.Disks {
		if !filepath.IsAbs(d.Target) || imageTypes[d.Format] == "" {
			return fault.InvalidField(
				"storage",
				"keeps disks where Cloud Hypervisor cannot read them, which takes raw and qcow2 files and devices: use another storage, or backend qemu",
			)
		}
	}
	for _, n := range s.NICs {
		if n.Tap == "" {
			return fault.InvalidField(
				"network.mode", "user cannot be had with Cloud Hypervisor: use bridge, tap or none, or backend qemu",
			)
		}
	}
	return nil
}

// startLimit is the timeout for the program to answer and boot the VM.
const startLimit = time.Minute

// endMark is the event that is logged when a VM ends cleanly.
var endMark = regexp.MustCompile(`"source":\s*"vm",\s*"event":\s*"shutdown"`)

// Start launches the program, then creates and boots the VM through its API.
func (b *Backend) Start(ctx context.Context, s *backend.Spec) (backend.Instance, error) {
	if err := b.Check(s); err != nil {
		return nil, err
	}
	if err := b.missing(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	vm, err := restsocket.Launch(ctx, b.program(s))
	if err != nil {
		return nil, err
	}
	for _, call := range []restsocket.Call{put("vm.create", configOf(s, b.o.Firmware)), put("vm.boot", nil)} {
		if err := vm.Do(ctx, call, nil); err != nil {
			return nil, vm.Abandon(err, s.Folder, s.Folder)
		}
	}
	return &Instance{VM: vm, agent: s.Agent}, nil
}

// apiArgument tells where the API socket is.
var apiArgument = "path=" + restsocket.InRun(restsocket.APISocket)

// program returns what is launched for a VM.
func (b *Backend) program(s *backend.Spec) restsocket.Program {
	p := restsocket.Program{
		Name:    "Cloud Hypervisor",
		Path:    b.o.Program,
		Folder:  s.Folder,
		Root:    s.Folder,
		EndMark: endMark,
		Args: []string{
			"--api-socket", apiArgument, "--event-monitor", "path=" + restsocket.InRun(restsocket.LogPipe),
		},
		OwnerUID: s.UID,
		OwnerGID: s.GID,
		UID:      s.UID,
		GID:      s.GID,
	}
	if s.UID != 0 {
		// The device belongs to a group.
		var stat unix.Stat_t
		if err := unix.Stat("/dev/kvm", &stat); err == nil {
			p.Groups = append(p.Groups, stat.Gid)
		}
	}
	return p
}

// Find reattaches to the VM's process. If the VM was never booted because its start was
// interrupted, it is removed, and Find returns nil.
func (b *Backend) Find(ctx context.Context, s *backend.Spec) (backend.Instance, error) {
	vm, err := restsocket.Find(b.program(s))
	if err != nil || vm == nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	i := &Instance{VM: vm, agent: s.Agent}
	switch state, err := i.state(ctx); {
	case err == nil && (state == running || state == paused):
		return i, nil
	case vm.HasEnded():
		return nil, vm.Close()
	case err == nil, fault.Is(err, fault.Conflict):
		// It answers, and there is no VM in it, or none that was booted.
		return nil, errors.Join(vm.Close(), b.Clean(ctx, s))
	default:
		return nil, errors.Join(err, vm.Close())
	}
}

// Clean ends processes that were launched for the VM but not recorded.
func (b *Backend) Clean(_ context.Context, s *backend.Spec) error {
	damaged, err := restsocket.Sweep(s.Folder, []string{s.Folder}, []string{apiArgument})
	if err != nil {
		return err
	}
	if damaged != nil {
		b.o.Log.Warn("the record of a VM's process is damaged", "vm", s.ID, "error", damaged)
	}
	return restsocket.Forget(s.Folder, s.Folder)
}
