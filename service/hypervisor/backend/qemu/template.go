//go:build linux

package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/accel"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// program is what QEMU's program said of itself, and the file that said it. It is asked again when
// the file has changed, since asking takes as long as the rest of an instant start.
type program struct {
	file    os.FileInfo
	version string
	boards  map[Type]string
}

// aliased finds the board that an alias stands for in the output of -machine help.
var aliased = regexp.MustCompile(`(?m)^q35 .*\(alias of (pc-q35-[0-9.]+)\)`)

// describe returns the version of QEMU, and the boards with their versions.
func (b *Backend) describe(ctx context.Context) (program, error) {
	path, err := exec.LookPath(b.o.Program)
	if err != nil {
		return program{}, missing(err)
	}
	file, err := os.Stat(path)
	if err != nil {
		return program{}, err
	}
	b.mu.Lock()
	known := b.program
	b.mu.Unlock()
	if known.file != nil && os.SameFile(known.file, file) && known.file.ModTime().Equal(file.ModTime()) {
		return known, nil
	}
	version, err := b.version(ctx)
	if err != nil {
		return program{}, err
	}
	help, err := exec.CommandContext(ctx, path, "-machine", "help").Output() //nolint:gosec // the operator's choice
	if err != nil {
		return program{}, fault.Wrap(fault.Unavailable, err, "%s does not list its machines", b.o.Program)
	}
	found := aliased.FindSubmatch(help)
	if found == nil {
		return program{}, fault.New(fault.Unavailable, "%s has no machine q35", b.o.Program)
	}
	now := program{file: file, version: version, boards: map[Type]string{Q35: string(found[1]), MicroVM: string(MicroVM)}}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.program = now
	return now, nil
}

// Traits returns the traits of a VM. Its shape is that of the command line of a VM that is the same
// but for its name, folder, user, addresses and the files of its disks.
func (b *Backend) Traits(ctx context.Context, s *backend.Spec) (backend.Traits, error) {
	if s.Firmware != "" {
		return backend.Traits{}, fault.New(fault.Conflict, "VMs with UEFI firmware have no templates")
	}
	now, err := b.describe(ctx)
	if err != nil {
		return backend.Traits{}, err
	}
	found, err := b.accelerator(ctx)
	if err != nil {
		return backend.Traits{}, err
	}
	like := *s
	like.ID, like.Name, like.Folder, like.UID, like.GID = "", "", "", 0, 0
	like.Disks = make([]backend.Disk, len(s.Disks))
	for i, d := range s.Disks {
		d.Target = ""
		like.Disks[i] = d
	}
	like.NICs = make([]backend.NIC, len(s.NICs))
	m, err := b.machine(&like, found.Accelerator)
	if err != nil {
		return backend.Traits{}, err
	}
	m.Board = now.boards[m.Type]
	sum := sha256.Sum256([]byte(strings.Join(m.Args(), "\x00")))
	cpu := m.cpu()
	if found.Accelerator == accel.KVM {
		cpu += " (" + hostCPU() + ")"
	}
	return backend.Traits{
		Version: now.version, Machine: m.Board, CPU: cpu, Accelerator: string(found.Accelerator),
		Shape: hex.EncodeToString(sum[:]),
	}, nil
}

// hostCPU returns the name of the host's processors.
func hostCPU() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(raw)) {
		if key, name, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(name)
		}
	}
	return "unknown"
}

// StartForTemplate starts a VM whose memory is a file.
func (b *Backend) StartForTemplate(
	ctx context.Context, s *backend.Spec, memory string,
) (backend.TemplateSource, error) {
	now, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	i, err := b.startWith(ctx, s, func(m *Machine) {
		m.Halted, m.Board, m.Memory = true, now.boards[m.Type], &Memory{Path: memory}
		for n := range m.NICs {
			m.NICs[n].Alone = true
		}
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(i.setLinks(ctx, false), i.monitor.Cont(ctx)); err != nil {
		return nil, i.abandon(refusal(err, "the VM for a template does not run"))
	}
	return i, nil
}

// StartFromTemplate starts a VM that has a template's memory, mapped privately: the guest's changes
// stay its own, and what it does not change is shared with the other VMs of the template.
func (b *Backend) StartFromTemplate(
	ctx context.Context, s *backend.Spec, memory, state *os.File,
) (backend.FromTemplate, error) {
	now, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	number := 0
	i, err := b.startWith(ctx, s, func(m *Machine) {
		m.Halted, m.Board, m.Memory, m.State = true, now.boards[m.Type], &Memory{File: memory}, state
		number = m.fileNumber(state)
	})
	if err != nil {
		return nil, err
	}
	if err := i.load(ctx, number); err != nil {
		return nil, i.abandon(refusal(err, "the template was not loaded"))
	}
	return i, nil
}

// abandon ends a VM that never ran for anybody.
func (i *Instance) abandon(why error) error {
	_ = i.process.Kill() // it may have ended
	<-i.done
	if said := lastWords(i.folder); errors.Is(why, qmp.ErrLost) && said != "nothing" {
		why = fmt.Errorf("%w; it said: %s", why, said)
	}
	return errors.Join(why, i.Close())
}

// withoutMemory makes QEMU leave memory that is in a shared file out of what it saves, and expect
// none in what it loads.
func (i *Instance) withoutMemory(ctx context.Context, on bool) error {
	return i.monitor.Execute(ctx, "migrate-set-capabilities", map[string]any{
		"capabilities": []any{map[string]any{"capability": "x-ignore-shared", "state": on}},
	}, nil)
}

// loadPause is the delay between questions whether a state is loaded, for which QEMU sends no event.
const loadPause = 2 * time.Millisecond

// load loads a state from an inherited file. A state that is damaged ends QEMU.
func (i *Instance) load(ctx context.Context, file int) error {
	if err := i.withoutMemory(ctx, true); err != nil {
		return err
	}
	if err := i.monitor.Execute(
		ctx, "migrate-incoming", map[string]any{"uri": fmt.Sprintf("fd:%d", file)}, nil,
	); err != nil {
		return err
	}
	for {
		s, err := i.monitor.Status(ctx)
		switch {
		case err != nil:
			return err
		case s.State == "paused" || s.State == "prelaunch":
			// Full snapshots would note that they are without memory, and could not be loaded elsewhere.
			return i.withoutMemory(ctx, false)
		case s.State != "inmigrate":
			return fmt.Errorf("QEMU is in the state %s", s.State)
		}
		select {
		case <-time.After(loadPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Connect connects the network devices.
func (i *Instance) Connect(ctx context.Context) error {
	return refusal(i.setLinks(ctx, true), "the network is not connected")
}

// setLinks connects or disconnects the network devices.
func (i *Instance) setLinks(ctx context.Context, up bool) error {
	for _, id := range i.nics {
		if err := i.monitor.Execute(ctx, "set_link", map[string]any{"name": id, "up": up}, nil); err != nil {
			return err
		}
	}
	return nil
}

// stateSocket is where QEMU sends its state, in its run folder.
const stateSocket = "state.sock"

// SaveState pauses the VM and writes the state of its devices. QEMU sends it to a socket: what is
// written, and where, is the daemon's.
func (i *Instance) SaveState(ctx context.Context, w io.Writer) error {
	if err := i.monitor.Stop(ctx); err != nil {
		return refusal(err, "the VM was not paused")
	}
	if err := i.withoutMemory(ctx, true); err != nil {
		return refusal(err, "the state was not saved")
	}
	l, err := listen(filepath.Join(i.folder, runFolder), stateSocket)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	received := routine.Start(nil, "state of a VM", func() error { return i.receive(ctx, l, w) })
	if err := i.monitor.Execute(
		ctx, "migrate", map[string]any{"uri": "unix:" + socket(stateSocket)}, nil,
	); err != nil {
		_ = l.Close() // which ends receive
		return errors.Join(refusal(err, "the state was not saved"), ignoreClosed(<-received))
	}
	if err := <-received; err != nil {
		return err
	}
	return refusal(i.awaitSaved(ctx), "the state was not saved")
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// listen listens on a socket in a folder, to which only the folder's owner gets.
func listen(folder, name string) (l net.Listener, err error) {
	err = process.InFolder(folder, name, func(path string) error {
		if l, err = net.Listen("unix", path); err != nil {
			return err
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false) // the path ends with this call, and the folder is removed
		return os.Chmod(path, 0o666)                  //nolint:gosec // the folder is of mode 0700
	})
	return l, err
}

// maxState limits the state of a VM's devices without its memory, in bytes.
const maxState = 256 << 20

// receive copies what the VM's own process sends to w.
func (i *Instance) receive(ctx context.Context, l net.Listener, w io.Writer) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it was only read
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := process.CheckPeer(conn, i.process.PID); err != nil {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(conn, maxState+1))
	if err == nil && n > maxState {
		err = fault.New(fault.Conflict, "the state of the VM's devices is longer than %d bytes", maxState)
	}
	return err
}

// awaitSaved waits until QEMU says that it sent everything.
func (i *Instance) awaitSaved(ctx context.Context) error {
	for {
		var m struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := i.monitor.Execute(ctx, "query-migrate", nil, &m); err != nil {
			return err
		}
		switch m.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fault.New(fault.Conflict, "QEMU could not save it: %s", m.Error)
		}
		select {
		case <-time.After(loadPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var (
	_ backend.Templater      = (*Backend)(nil)
	_ backend.TemplateSource = (*Instance)(nil)
	_ backend.FromTemplate   = (*Instance)(nil)
)
