//go:build linux

package firecracker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/agent"
)

// The named pipes of the serial console, as the VM sees them.
const (
	consoleIn  = "console.in"
	consoleOut = "console.out"
)

// The states of Firecracker's VM.
const (
	notStarted = "Not started"
	running    = "Running"
	paused     = "Paused"
)

// Instance is a VM that runs in Firecracker.
type Instance struct {
	*restsocket.VM

	folder string
	agent  bool
}

var _ backend.Instance = (*Instance)(nil)

func (i *Instance) state(ctx context.Context) (string, error) {
	var info vmState
	if err := i.Do(ctx, restsocket.Call{Method: http.MethodGet, Path: "/"}, &info); err != nil {
		return "", err
	}
	switch info.State {
	case notStarted, running, paused:
		return info.State, nil
	}
	return "", fmt.Errorf("Firecracker says that the VM is %.20q, which is not one of its states", info.State)
}

// Paused reports whether the guest's processors are paused.
func (i *Instance) Paused(ctx context.Context) (bool, error) {
	state, err := i.state(ctx)
	return state == paused, err
}

// Pause pauses the guest's processors.
func (i *Instance) Pause(ctx context.Context) error { return i.Do(ctx, patchState("Paused"), nil) }

// Resume resumes the guest's processors.
func (i *Instance) Resume(ctx context.Context) error { return i.Do(ctx, patchState("Resumed"), nil) }

// PowerDown sends Ctrl-Alt-Del, or presses the power button if the guest has one.
func (i *Instance) PowerDown(ctx context.Context) error {
	return i.Do(ctx, put("/actions", action{"SendCtrlAltDel"}), nil)
}

// Dial connects to the guest agent by vsock, or to the serial console. The console's stream ends
// when Firecracker has ended and everything was read.
func (i *Instance) Dial(ctx context.Context, c backend.Channel) (io.ReadWriteCloser, error) {
	switch c {
	case backend.AgentChannel:
		if i.agent {
			return i.Guest(ctx, agent.VsockPort)
		}
	case backend.ConsoleChannel:
		return openConsole(i.folder)
	}
	return nil, fault.New(fault.Conflict, "the VM has no %s", c).WithCode("no_" + string(c))
}

// console is both pipes of a serial console.
type console struct{ in, out *os.File }

func openConsole(folder string) (io.ReadWriteCloser, error) {
	out, err := restsocket.ReadPipe(filepath.Join(folder, consoleOut))
	if err != nil {
		return nil, err
	}
	in, err := restsocket.WritePipe(filepath.Join(folder, consoleIn))
	if errors.Is(err, unix.ENXIO) {
		err = fault.Wrap(fault.Conflict, err, "the VM has ended")
	}
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return &console{in, out}, nil
}

func (c *console) Read(b []byte) (int, error)  { return c.out.Read(b) }
func (c *console) Write(b []byte) (int, error) { return c.in.Write(b) }
func (c *console) Close() error                { return errors.Join(c.in.Close(), c.out.Close()) }

// Metrics reads the process's usage from the host; see the package comment about disks. Traffic of
// taps is counted by the host at the tap.
func (i *Instance) Metrics(context.Context) (backend.Metrics, error) {
	return restsocket.Usage(i.PID())
}
