//go:build linux

package cloudhypervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/agent"
)

// The states of the program's VM that are looked for.
const (
	running = "Running"
	paused  = "Paused"
)

// Instance is a VM that runs in Cloud Hypervisor.
type Instance struct {
	*restsocket.VM

	agent bool
}

var _ backend.Instance = (*Instance)(nil)

func (i *Instance) state(ctx context.Context) (string, error) {
	var info struct {
		State string `json:"state"`
	}
	if err := i.Do(ctx, get("vm.info"), &info); err != nil {
		return "", err
	}
	switch info.State {
	case "Created", "Shutdown", "BreakPoint", running, paused:
		return info.State, nil
	}
	return "", fmt.Errorf("Cloud Hypervisor says that the VM is %.20q, which is not one of its states", info.State)
}

// Paused reports whether the guest's processors are paused.
func (i *Instance) Paused(ctx context.Context) (bool, error) {
	state, err := i.state(ctx)
	return state == paused, err
}

// Pause pauses the guest's processors.
func (i *Instance) Pause(ctx context.Context) error { return i.Do(ctx, put("vm.pause", nil), nil) }

// Resume resumes the guest's processors.
func (i *Instance) Resume(ctx context.Context) error { return i.Do(ctx, put("vm.resume", nil), nil) }

// PowerDown presses the power button.
func (i *Instance) PowerDown(ctx context.Context) error {
	return i.Do(ctx, put("vm.power-button", nil), nil)
}

// Reset restarts the guest without asking it.
func (i *Instance) Reset(ctx context.Context) error { return i.Do(ctx, put("vm.reboot", nil), nil) }

// Dial connects to the guest agent by vsock, or to the serial console.
func (i *Instance) Dial(ctx context.Context, c backend.Channel) (io.ReadWriteCloser, error) {
	switch c {
	case backend.AgentChannel:
		if i.agent {
			return i.Guest(ctx, agent.VsockPort)
		}
	case backend.ConsoleChannel:
		return i.Socket(ctx, serialSocket)
	}
	return nil, fault.New(fault.Conflict, "the VM has no %s", c).WithCode("no_" + string(c))
}

// Metrics reads the process's usage from the host, and the counters of the guest's disks and
// network interfaces from the program.
func (i *Instance) Metrics(ctx context.Context) (backend.Metrics, error) {
	m, err := process.Usage(i.PID())
	if err != nil {
		return m, err
	}
	var devices map[string]map[string]json.RawMessage
	if err := i.Do(ctx, get("vm.counters"), &devices); err != nil {
		return m, err
	}
	count(&m, devices)
	return m, nil
}

// count adds the counters of a VM's devices. Other counters are ignored and can have odd values:
// latencies start at the largest 64-bit number.
func count(m *backend.Metrics, devices map[string]map[string]json.RawMessage) {
	for _, counters := range devices {
		for name, into := range map[string]*int64{
			"read_bytes": &m.DiskReadBytes, "write_bytes": &m.DiskWrittenBytes,
			"rx_bytes": &m.NetReceivedBytes, "tx_bytes": &m.NetSentBytes,
		} {
			if n, err := strconv.ParseInt(string(counters[name]), 10, 64); err == nil && n > 0 && *into+n > 0 {
				*into += n
			}
		}
	}
}
