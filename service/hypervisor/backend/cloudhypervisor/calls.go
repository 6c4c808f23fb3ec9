//go:build linux

package cloudhypervisor

import (
	"net/http"
	"strconv"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
)

// defaultArgs is the kernel command line if none is given.
const defaultArgs = "console=ttyS0 panic=-1"

// guestCID is the vsock address of every guest. Only its own program sees it.
const guestCID = 3

// serialSocket is the serial console.
const serialSocket = "serial.sock"

// vmConfig is the body of vm.create.
type vmConfig struct {
	CPUs     cpus        `json:"cpus"`
	Memory   memory      `json:"memory"`
	Payload  payload     `json:"payload"`
	Disks    []disk      `json:"disks,omitempty"`
	Net      []net       `json:"net,omitempty"`
	Vsock    *vsock      `json:"vsock,omitempty"`
	Serial   consoleMode `json:"serial"`
	Console  consoleMode `json:"console"`
	Platform platform    `json:"platform"`
}

type cpus struct {
	Boot int `json:"boot_vcpus"`
	Max  int `json:"max_vcpus"`
}

type memory struct {
	Size int64 `json:"size"` // bytes
}

type payload struct {
	Firmware  string `json:"firmware,omitempty"`
	Kernel    string `json:"kernel,omitempty"`
	Args      string `json:"cmdline,omitempty"`
	Initramfs string `json:"initramfs,omitempty"`
}

type disk struct {
	ID       string `json:"id"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readonly"`
	// Type is given explicitly, so that a guest cannot turn its raw disk into another format. Older
	// versions ignore it.
	Type string `json:"image_type"`
	// BackingFiles allows a backing file, from which the daemon made the image.
	BackingFiles bool `json:"backing_files,omitempty"`
}

type net struct {
	ID  string `json:"id"`
	Tap string `json:"tap"`
	MAC string `json:"mac,omitempty"`
}

type vsock struct {
	CID    int    `json:"cid"`
	Socket string `json:"socket"`
}

type consoleMode struct {
	Mode   string `json:"mode"`
	Socket string `json:"socket,omitempty"`
}

type platform struct {
	UUID string `json:"uuid"`
}

// configOf returns the configuration of a VM. firmware boots it if the VM names neither a kernel
// nor a firmware.
func configOf(s *backend.Spec, firmware string) vmConfig {
	c := vmConfig{
		CPUs: cpus{s.VCPUs, s.VCPUs}, Memory: memory{int64(s.MemoryMiB) << 20},
		Payload:  payload{Kernel: s.Kernel, Initramfs: s.Initrd, Firmware: s.Firmware},
		Serial:   consoleMode{Mode: "Socket", Socket: restsocket.InRun(serialSocket)},
		Console:  consoleMode{Mode: "Off"},
		Platform: platform{s.ID},
	}
	if s.Kernel != "" {
		if c.Payload.Args = s.KernelArgs; c.Payload.Args == "" {
			c.Payload.Args = defaultArgs
		}
	} else if s.Firmware == "" {
		c.Payload.Firmware = firmware
	}
	for i, d := range s.Disks {
		c.Disks = append(c.Disks, disk{
			ID:           "disk" + strconv.Itoa(i),
			Path:         d.Target,
			ReadOnly:     d.ReadOnly,
			Type:         imageTypes[d.Format],
			BackingFiles: d.Format == "qcow2",
		})
	}
	for i, n := range s.NICs {
		c.Net = append(c.Net, net{"net" + strconv.Itoa(i), n.Tap, n.MAC})
	}
	if s.Agent {
		c.Vsock = &vsock{guestCID, restsocket.InRun(restsocket.VsockSocket)}
	}
	return c
}

// imageTypes are the program's names of disk formats.
var imageTypes = map[string]string{"raw": "Raw", "qcow2": "Qcow2"}

func put(action string, body any) restsocket.Call {
	return restsocket.Call{Method: http.MethodPut, Path: "/api/v1/" + action, Body: body}
}

func get(what string) restsocket.Call {
	return restsocket.Call{Method: http.MethodGet, Path: "/api/v1/" + what}
}
