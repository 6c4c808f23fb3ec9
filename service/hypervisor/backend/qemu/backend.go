//go:build linux

package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/accel"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// Options of New.
type Options struct {
	Program string // such as qemu-system-x86_64, by name or path
	Accel   string // auto, kvm or tcg
	// CacheFile remembers which accelerator works; see package accel.
	CacheFile string
	Log       *slog.Logger
}

// Backend runs VMs with QEMU.
type Backend struct {
	o Options

	mu       sync.Mutex
	detected *accel.Result // nil: not yet
	program  program       // as it was last asked
}

// New returns the backend. It does not access the host.
func New(o Options) *Backend { return &Backend{o: o} }

// Probe detects which accelerator works. The first call takes a moment.
func (b *Backend) Probe(ctx context.Context) backend.Info {
	version, err := b.version(ctx)
	if err != nil {
		return backend.Info{Detail: fault.From(err).Message}
	}
	result, err := b.accelerator(ctx)
	if err != nil {
		return backend.Info{Version: version, Detail: err.Error()}
	}
	return backend.Info{
		Available:   true,
		Version:     version,
		Accelerator: string(result.Accelerator),
		Detail:      string(result.Accelerator) + ": " + result.Reason,
	}
}

func (b *Backend) version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, b.o.Program, "--version").Output() //nolint:gosec // the operator's choice
	if errors.Is(err, exec.ErrNotFound) {
		return "", missing(err)
	}
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "%s does not run", b.o.Program)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	_, version, _ := strings.Cut(line, "version ")
	return version, nil
}

func missing(err error) error {
	return fault.Wrap(fault.Unavailable, err, "VMs are run by QEMU, which is missing: apt-get install qemu-system-x86")
}

func (b *Backend) accelerator(ctx context.Context) (accel.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.detected != nil {
		return *b.detected, nil
	}
	if b.o.Accel != "auto" {
		b.detected = &accel.Result{Accelerator: accel.Accelerator(b.o.Accel), Reason: "as configured"}
		return *b.detected, nil
	}
	result, err := accel.Detect(ctx, accel.Options{QEMU: b.o.Program, CacheFile: b.o.CacheFile})
	if err != nil {
		return result, err
	}
	b.detected = &result
	return result, nil
}

// Check rejects VMs that QEMU cannot run.
func (b *Backend) Check(s *backend.Spec) error {
	switch {
	case s.RootFS != "":
		return fault.InvalidField("image", "is a root file system, which only a sandbox runs")
	case s.Kernel == "" && len(s.Disks) == 0:
		return fault.InvalidField("image", "is required: without an image, a kernel or a disk there is nothing to boot")
	case s.Initrd != "" && s.Kernel == "":
		return fault.InvalidField("initrd", "needs a kernel")
	}
	return CheckExtra(s.ExtraArgs)
}

// machine translates a Spec into a Machine.
func (b *Backend) machine(s *backend.Spec, accelerator accel.Accelerator) (*Machine, error) {
	m := &Machine{
		Name:        s.Name,
		UUID:        s.ID,
		Folder:      s.Folder,
		Type:        Q35,
		Accelerator: string(accelerator),
		VCPUs:       s.VCPUs,
		MemoryMiB:   s.MemoryMiB,
		Kernel:      s.Kernel,
		Initrd:      s.Initrd,
		KernelArgs:  s.KernelArgs,
		Agent:       s.Agent,
		Screen:      true,
		Extra:       s.ExtraArgs,
		UID:         s.UID,
		GID:         s.GID,
	}
	if s.Kernel != "" && s.Firmware == "" {
		m.Type, m.Screen = MicroVM, false
		if m.KernelArgs == "" {
			m.KernelArgs = "console=ttyS0 reboot=t panic=-1 quiet"
		}
	}
	if s.Firmware != "" {
		m.Firmware = s.Firmware
		m.FirmwareVars = cmp.Or(s.FirmwareVars, filepath.Join(s.Folder, backend.VarsFile))
		if err := firmwareVars(s, m.FirmwareVars); err != nil {
			return nil, err
		}
	}
	for _, d := range s.Disks {
		m.Disks = append(m.Disks, machineDisk(d))
	}
	for _, share := range s.Shares {
		m.Shares = append(m.Shares, Share{Tag: share.Tag, ReadOnly: share.ReadOnly, Folder: share.Folder})
	}
	for i, n := range s.NICs {
		m.NICs = append(m.NICs, NIC{ID: nicID(i), MAC: n.MAC, Tap: n.Tap, Forwards: n.Forwards})
	}
	if accelerator == accel.KVM && s.UID != 0 {
		// The device belongs to a group.
		var stat unix.Stat_t
		if err := unix.Stat("/dev/kvm", &stat); err == nil {
			m.Groups = append(m.Groups, stat.Gid)
		}
	}
	return m, nil
}

func machineDisk(d backend.Disk) Disk {
	return Disk{
		ID: d.ID, Path: d.Target, Format: d.Format, ReadOnly: d.ReadOnly, Seed: d.Seed, Medium: d.Medium, Serial: d.Serial,
		Port: d.Port,
	}
}

func nicID(i int) string { return "net" + strconv.Itoa(i) }

// mostVars limits the size of the firmware's variables, in bytes. OVMF's take half a MiB.
const mostVars = 64 << 20

// firmwareVars creates a machine's own copy of its firmware's variables.
func firmwareVars(s *backend.Spec, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	template := strings.Replace(s.Firmware, "_CODE", "_VARS", 1)
	// It may be a file in the VM's folder, which its process can write to.
	raw, err := process.Head(template, mostVars+1)
	if err == nil && len(raw) > mostVars {
		return fault.New(
			fault.Conflict, "the file %s for the firmware's variables is longer than %d bytes",
			filepath.Base(template), mostVars,
		)
	}
	if err != nil {
		return fault.Wrap(
			fault.Unavailable, err, "the firmware %s has no file %s beside it for its variables", s.Firmware,
			filepath.Base(template),
		)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return err
	}
	if s.UID == 0 {
		return nil
	}
	return os.Lchown(path, s.UID, s.GID)
}

// startLimit is the timeout for QEMU's monitor to answer.
const startLimit = time.Minute

// Start launches QEMU.
func (b *Backend) Start(ctx context.Context, s *backend.Spec) (backend.Instance, error) {
	return b.start(ctx, s, false)
}

func (b *Backend) start(ctx context.Context, s *backend.Spec, halted bool) (*Instance, error) {
	return b.startWith(ctx, s, func(m *Machine) { m.Halted = halted })
}

// startWith launches QEMU with a machine that change completes.
func (b *Backend) startWith(ctx context.Context, s *backend.Spec, change func(*Machine)) (*Instance, error) {
	if _, err := exec.LookPath(b.o.Program); err != nil {
		return nil, missing(err)
	}
	found, err := b.accelerator(ctx)
	if err != nil {
		return nil, err
	}
	m, err := b.machine(s, found.Accelerator)
	if err != nil {
		return nil, err
	}
	change(m)
	halted := m.Halted
	limited := slices.ContainsFunc(s.Disks, func(d backend.Disk) bool { return d.Limits != backend.DiskLimits{} })
	m.Halted = halted || limited // until the limits are set
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	p, monitor, err := Launch(ctx, b.o.Program, m)
	if err != nil {
		return nil, err
	}
	i := newInstance(s, p, monitor)
	if !limited {
		return i, nil
	}
	if err = i.limitAll(ctx, s.Disks); err == nil && !halted {
		err = i.Resume(ctx)
	}
	if err != nil {
		_ = i.process.Kill() // it never ran
		<-i.done
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// endWait is how long a process that does not answer may take to be gone.
const endWait = 2 * time.Second

// Find reattaches to the VM's process.
func (b *Backend) Find(ctx context.Context, s *backend.Spec) (backend.Instance, error) {
	p, err := process.Find(s.Folder)
	if err != nil || p == nil {
		return nil, err
	}
	monitor, err := dialMonitor(ctx, s.Folder, p, false)
	if err != nil {
		// One that is ending closes its sockets before it is gone.
		select {
		case <-p.Done():
			return nil, p.Close()
		case <-time.After(endWait):
		case <-ctx.Done():
		}
		return nil, errors.Join(fmt.Errorf("QEMU (process %d) runs and does not answer: %w", p.PID, err), p.Close())
	}
	i := newInstance(s, p, monitor)
	// They may have been stored before a daemon was killed that had not set them yet.
	if err := i.limitAll(ctx, s.Disks); err != nil {
		b.o.Log.Warn("the limits of a VM's disks are perhaps not as stored", "vm", s.ID, "error", err)
	}
	return i, nil
}

// Clean ends the VM's processes, including one that a daemon launched but was killed before it
// could record it. Such a process still waits for its first client.
func (b *Backend) Clean(ctx context.Context, s *backend.Spec) error {
	if p, err := process.Find(s.Folder); err != nil {
		b.o.Log.Warn("the record of a VM's process is damaged", "vm", s.ID, "error", err)
	} else if p != nil {
		if err := end(ctx, p); err != nil {
			return err
		}
	}
	mark := "-uuid\x00" + s.ID + "\x00"
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range commands {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return err
		}
		raw, err := process.CommandLine(pid)
		if err != nil || !strings.Contains(string(raw), mark) {
			continue
		}
		if folder, err := os.Readlink(filepath.Join(filepath.Dir(path), "cwd")); err != nil || folder != s.Folder {
			continue // it only looks like it
		}
		p, err := process.Hold(pid)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return err
		}
		if err := end(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// end kills a process and waits until it is gone.
func end(ctx context.Context, p *process.Process) error {
	err := p.Kill()
	if err == nil {
		select {
		case <-p.Done():
		case <-ctx.Done():
			err = fmt.Errorf("QEMU (process %d) was killed and does not end: %w", p.PID, ctx.Err())
		}
	}
	return errors.Join(err, p.Close())
}

var (
	_ backend.Backend  = (*Backend)(nil)
	_ backend.Instance = (*Instance)(nil)
	_ io.Closer        = (*Instance)(nil)
)
