//go:build linux

package qemu

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// Instance is a VM that runs in QEMU.
type Instance struct {
	folder    string
	memoryMiB int
	nics      []string // ids of the network devices
	process   *process.Process
	monitor   *qmp.Client
	done      chan struct{}

	mu        sync.Mutex
	ended     backend.End
	condition backend.Condition
	changed   chan struct{} // closed and replaced when the condition changes
}

func newInstance(s *backend.Spec, p *process.Process, monitor *qmp.Client) *Instance {
	i := &Instance{
		folder:    s.Folder,
		memoryMiB: s.MemoryMiB,
		process:   p,
		monitor:   monitor,
		done:      make(chan struct{}),
		changed:   make(chan struct{}),
	}
	for n := range s.NICs {
		i.nics = append(i.nics, "dev-"+nicID(n))
	}
	// QEMU stays when the guest powers off (-no-shutdown), so that nothing is lost while no daemon
	// runs; it is quit here. Other events can be caused by the guest in any number, so the end has
	// its own queue.
	events, others := monitor.Subscribe(qmp.EventShutdown, qmp.EventGuestPanicked), monitor.Subscribe(told...)
	ctx, stop := context.WithCancel(context.Background())
	routine.Go(nil, "VM end", func() {
		<-p.Done()
		defer close(i.done)
		defer stop()
		monitor.Close()
	})
	routine.Go(nil, "QEMU's events", func() {
		routine.Keep(ctx, nil, "QEMU's events", func(ctx context.Context) { i.watch(ctx, events) })
	})
	routine.Go(nil, "VM's condition", func() {
		routine.Keep(ctx, nil, "VM's condition", func(ctx context.Context) { i.observe(ctx, others) })
	})
	return i
}

// watch follows the VM until its end.
func (i *Instance) watch(ctx context.Context, events *qmp.Subscription) {
	if s, err := i.monitor.Status(ctx); err == nil && s.State == "shutdown" {
		// It happened while no daemon was running.
		i.finish(backend.End{Clean: true, Reason: "the guest powered off"})
		return
	}
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return
		}
		if e.Name == qmp.EventGuestPanicked {
			i.note(backend.End{Reason: "the guest panicked"})
			continue
		}
		var s qmp.Shutdown
		if err := e.Decode(&s); err != nil {
			continue
		}
		switch {
		case s.Reason == "guest-panic":
			i.finish(backend.End{Reason: "the guest panicked"})
		case s.Guest:
			i.finish(backend.End{Clean: true, Reason: "the guest powered off"})
		case s.Reason == "host-signal":
			i.finish(backend.End{Clean: true, Reason: "the process was told to end by a signal"})
		default:
			i.finish(backend.End{Clean: true, Reason: "the machine was shut down (" + s.Reason + ")"})
		}
		return
	}
}

// note records how the VM ended, unless that is known already.
func (i *Instance) note(end backend.End) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended == (backend.End{}) {
		i.ended = end
	}
}

// finish quits QEMU after its guest has ended.
func (i *Instance) finish(end backend.End) {
	i.note(end)
	if err := i.monitor.Quit(context.Background()); err != nil {
		_ = i.process.Kill() // it was already ending, or does not respond
	}
}

// PID is QEMU's.
func (i *Instance) PID() int { return i.process.PID }

// Done is closed when QEMU has ended.
func (i *Instance) Done() <-chan struct{} { return i.done }

// Ended returns how QEMU ended, once Done is closed.
func (i *Instance) Ended() backend.End {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended == (backend.End{}) {
		return backend.End{Reason: howItEnded(i.process.State(), i.folder)}
	}
	return i.ended
}

// Paused reports whether the guest's processors are paused.
func (i *Instance) Paused(ctx context.Context) (bool, error) {
	s, err := i.monitor.Status(ctx)
	return !s.Running, refusal(err, "whether the VM runs is not known")
}

// Pause pauses the guest's processors.
func (i *Instance) Pause(ctx context.Context) error {
	return refusal(i.monitor.Stop(ctx), "the VM was not paused")
}

// Resume resumes the guest's processors.
func (i *Instance) Resume(ctx context.Context) error {
	return refusal(i.monitor.Cont(ctx), "the VM does not continue")
}

// PowerDown presses the power button.
func (i *Instance) PowerDown(ctx context.Context) error {
	return refusal(i.monitor.PowerDown(ctx), "the power button was not pressed")
}

// Reset presses the reset button.
func (i *Instance) Reset(ctx context.Context) error {
	return refusal(i.monitor.Reset(ctx), "the guest was not reset")
}

// quitLimit is the timeout for QEMU to end after a quit command.
const quitLimit = 5 * time.Second

// Kill ends QEMU without asking the guest. It sends a quit command first, so that QEMU closes the
// disks cleanly and saves their bitmaps.
func (i *Instance) Kill(ctx context.Context) error {
	i.note(backend.End{Clean: true, Reason: "the VM was killed"})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quitLimit)
	defer cancel()
	if err := i.monitor.Quit(ctx); err == nil {
		select {
		case <-i.process.Done():
			return nil
		case <-ctx.Done():
		}
	}
	return i.process.Kill()
}

// Close detaches from QEMU, which keeps running.
func (i *Instance) Close() error {
	i.monitor.Close()
	return i.process.Close()
}

// Dial connects to a socket of the machine.
func (i *Instance) Dial(ctx context.Context, c backend.Channel) (io.ReadWriteCloser, error) {
	name := map[backend.Channel]string{
		backend.AgentChannel: agentSocket, backend.ConsoleChannel: serialSocket, backend.ScreenChannel: vncSocket,
	}[c]
	conn, err := process.Dial(ctx, filepath.Join(i.folder, runFolder), name, i.process.PID)
	if errors.Is(err, unix.ENOENT) {
		return nil, fault.New(fault.Conflict, "the VM has no %s", c).WithCode("no_" + string(c))
	}
	return conn, err
}

// dialMonitor connects to the monitor of a QEMU process.
func dialMonitor(ctx context.Context, folder string, p *process.Process, wait bool) (monitor *qmp.Client, err error) {
	err = process.InFolder(filepath.Join(folder, runFolder), qmpSocket, func(path string) error {
		check := func(conn net.Conn) error { return process.CheckListener(conn, p.PID) }
		monitor, err = qmp.Dial(ctx, path, qmp.Options{Wait: wait, Check: check})
		return err
	})
	return monitor, err
}

// Metrics reads the process's usage from the host and the disk counters from QEMU.
func (i *Instance) Metrics(ctx context.Context) (backend.Metrics, error) {
	m, err := process.Usage(i.process.PID)
	if err != nil {
		return m, err
	}
	var stats []struct {
		Stats struct {
			ReadBytes    int64 `json:"rd_bytes"`
			WrittenBytes int64 `json:"wr_bytes"`
		} `json:"stats"`
	}
	if err := i.monitor.Execute(ctx, "query-blockstats", nil, &stats); err != nil {
		return m, refusal(err, "what its disks did is not known")
	}
	for _, s := range stats {
		m.DiskReadBytes += s.Stats.ReadBytes
		m.DiskWrittenBytes += s.Stats.WrittenBytes
	}
	return m, nil
}
