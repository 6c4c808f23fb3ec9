//go:build linux

package firecracker

import (
	"context"
	"errors"
	"log/slog"
	"os"
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
	Program string // firecracker, by name or path; "firecracker" if empty
	Jailer  Jailer
	Log     *slog.Logger
}

// Jailer configures whether and how VMs are jailed.
type Jailer struct {
	Enabled bool
	Binary  string // by name or path; "jailer" if empty
	// ChrootBase is the folder of the jails, on the file system of the VMs' disks;
	// /srv/jailer if empty.
	ChrootBase string
}

// Backend runs VMs with Firecracker.
type Backend struct{ o Options }

var _ backend.Backend = (*Backend)(nil)

// New returns the backend. It does not access the host.
func New(o Options) *Backend {
	if o.Program == "" {
		o.Program = "firecracker"
	}
	if o.Jailer.Binary == "" {
		o.Jailer.Binary = "jailer"
	}
	if o.Jailer.ChrootBase == "" {
		o.Jailer.ChrootBase = "/srv/jailer"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Backend{o}
}

// Name is firecracker.
func (b *Backend) Name() string { return backend.Firecracker }

// Probe checks for the programs and for KVM. Whether KVM works is detected by package accel.
func (b *Backend) Probe(ctx context.Context) backend.Info {
	if err := b.missing(); err != nil {
		return backend.Info{Detail: fault.From(err).Message}
	}
	version, err := restsocket.Version(ctx, b.o.Program, "Firecracker v")
	if err != nil {
		return backend.Info{Detail: err.Error()}
	}
	if err := restsocket.KVM(); err != nil {
		return backend.Info{Version: version, Detail: fault.From(err).Message}
	}
	if b.o.Jailer.Enabled {
		return backend.Info{Available: true, Version: version, Detail: "kvm, jailed below " + b.o.Jailer.ChrootBase}
	}
	return backend.Info{Available: true, Version: version, Detail: "kvm, not jailed"}
}

// missing returns a fault that names what VMs need and the host lacks.
func (b *Backend) missing() error {
	const get = "get it from the releases of github.com/firecracker-microvm/firecracker"
	if _, err := exec.LookPath(b.o.Program); err != nil {
		return fault.Wrap(fault.Unavailable, err, "Firecracker (%s) is missing: %s", b.o.Program, get)
	}
	if !b.o.Jailer.Enabled {
		return nil
	}
	if _, err := exec.LookPath(b.o.Jailer.Binary); err != nil {
		return fault.Wrap(
			fault.Unavailable, err, "Firecracker's jailer (%s) is missing: %s, or switch the jailer off",
			b.o.Jailer.Binary, get,
		)
	}
	if os.Geteuid() != 0 {
		return fault.New(
			fault.Unavailable,
			"Firecracker's jailer is run as root, which this daemon is not: run it as root, or switch the jailer off",
		)
	}
	return nil
}

const maxVCPUs = 32 // of Firecracker's

// Check rejects VMs that Firecracker cannot run.
func (b *Backend) Check(s *backend.Spec) error {
	switch {
	case s.RootFS != "":
		return fault.InvalidField("image", "is a root file system, which only a sandbox runs")
	case s.Firmware != "":
		return fault.InvalidField(
			"firmware",
			"cannot be run by Firecracker, which boots a kernel: leave firmware away and name a kernel, or use backend qemu",
		)
	case s.Kernel == "":
		return fault.InvalidField("kernel", "is required by Firecracker: an uncompressed Linux kernel (vmlinux)")
	case s.VCPUs < 1 || s.VCPUs > maxVCPUs:
		return fault.InvalidField("vcpus", "must be 1 to %d with Firecracker", maxVCPUs)
	}
	for _, d := range s.Disks {
		if !filepath.IsAbs(d.Target) {
			return fault.InvalidField(
				"storage",
				"keeps disks where Firecracker cannot reach them, which takes files and devices: use another storage, or backend qemu",
			)
		}
		if d.Format != "raw" {
			return fault.InvalidField(
				"storage",
				"keeps disks as %s, and Firecracker takes raw ones only: use a storage of raw disks such as lvm-thin, or backend qemu",
				d.Format,
			)
		}
	}
	for _, n := range s.NICs {
		if n.Tap == "" {
			return fault.InvalidField(
				"network.mode", "user cannot be had with Firecracker: use bridge, tap or none, or backend qemu",
			)
		}
	}
	return nil
}

// startLimit is the timeout for Firecracker to answer and start the VM.
const startLimit = time.Minute

// endMark is what Firecracker logs on a clean exit, in all its versions.
var endMark = regexp.MustCompile(`Firecracker exit(ing|ed) successfully`)

// Start launches Firecracker, then configures and starts the VM through its API.
func (b *Backend) Start(ctx context.Context, s *backend.Spec) (backend.Instance, error) {
	if err := b.Check(s); err != nil {
		return nil, err
	}
	if err := b.missing(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	p, place, err := b.program(s)
	if err != nil {
		return nil, errors.Join(err, b.remove(s))
	}
	vm, err := restsocket.Launch(ctx, p)
	if err != nil {
		return nil, errors.Join(err, b.remove(s))
	}
	for _, call := range calls(s, place) {
		if err := vm.Do(ctx, call, nil); err != nil {
			return nil, errors.Join(vm.Abandon(err, p.Folder, p.Root), b.remove(s))
		}
	}
	return &Instance{VM: vm, folder: s.Folder, agent: s.Agent}, nil
}

// program returns what is launched for a VM, and a function that maps host paths to paths that
// Firecracker sees. It creates the VM's jail, if enabled.
func (b *Backend) program(s *backend.Spec) (restsocket.Program, func(string) string, error) {
	path, err := exec.LookPath(b.o.Program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return restsocket.Program{}, nil, err
	}
	p := restsocket.Program{
		Name:     "Firecracker",
		Path:     path,
		Args:     append([]string{"--id", s.ID}, ownArgs()...),
		Folder:   s.Folder,
		Root:     s.Folder,
		OwnerUID: s.UID,
		OwnerGID: s.GID,
		Stdin:    consoleIn,
		Stdout:   consoleOut,
		EndMark:  endMark,
	}
	if b.o.Jailer.Enabled {
		return b.jail(s, p)
	}
	p.UID, p.GID = s.UID, s.GID
	if s.UID != 0 {
		// The device belongs to a group.
		var stat unix.Stat_t
		if err := unix.Stat("/dev/kvm", &stat); err == nil {
			p.Groups = append(p.Groups, stat.Gid)
		}
	}
	return p, func(path string) string { return path }, nil
}

// ownArgs returns Firecracker's arguments, in a jail or not.
func ownArgs() []string {
	return []string{
		"--api-sock", restsocket.InRun(restsocket.APISocket), "--log-path", restsocket.InRun(restsocket.LogPipe),
		"--level", "Info",
	}
}

// Find reattaches to the VM's process. If the VM was never started because its start was
// interrupted, it is removed, and Find returns nil.
func (b *Backend) Find(ctx context.Context, s *backend.Spec) (backend.Instance, error) {
	vm, err := restsocket.Find(
		restsocket.Program{Name: "Firecracker", Folder: s.Folder, Root: rootOf(s), EndMark: endMark},
	)
	if err != nil || vm == nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	i := &Instance{VM: vm, folder: s.Folder, agent: s.Agent}
	state, err := i.state(ctx)
	if err == nil && state != notStarted {
		return i, nil
	}
	if vm.HasEnded() {
		return nil, vm.Close()
	}
	if err == nil {
		return nil, errors.Join(vm.Close(), b.Clean(ctx, s))
	}
	return nil, errors.Join(err, vm.Close())
}

// Clean ends processes that were launched for the VM but not recorded, and removes its jail.
func (b *Backend) Clean(_ context.Context, s *backend.Spec) error {
	damaged, err := restsocket.Sweep(s.Folder, []string{s.Folder, rootOf(s)}, []string{s.ID, "--id=" + s.ID})
	if err != nil {
		return err
	}
	if damaged != nil {
		b.o.Log.Warn("the record of a VM's process is damaged", "vm", s.ID, "error", damaged)
	}
	return b.remove(s)
}

// remove removes the files of a VM without a process.
func (b *Backend) remove(s *backend.Spec) error {
	return errors.Join(
		restsocket.Forget(s.Folder, s.Folder),
		os.RemoveAll(filepath.Join(s.Folder, consoleIn)), os.RemoveAll(filepath.Join(s.Folder, consoleOut)),
		removeJail(s),
	)
}
