//go:build linux

package firecracker

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
)

// defaultArgs is the kernel command line if none is given: a serial console, and the VM ends when
// the kernel reboots or panics.
const defaultArgs = "console=ttyS0 reboot=k panic=1 pci=off"

// guestCID is the vsock address of every guest. Only its own Firecracker sees it.
const guestCID = 3

// Bodies of API calls.
type (
	bootSource struct {
		Kernel string `json:"kernel_image_path"`
		Initrd string `json:"initrd_path,omitempty"`
		Args   string `json:"boot_args"`
	}
	drive struct {
		ID       string `json:"drive_id"`
		Path     string `json:"path_on_host"`
		Root     bool   `json:"is_root_device"`
		ReadOnly bool   `json:"is_read_only"`
		// Cache Writeback lets the guest flush. The default ignores flushes.
		Cache string `json:"cache_type"`
	}
	machineConfig struct {
		VCPUs     int `json:"vcpu_count"`
		MemoryMiB int `json:"mem_size_mib"`
	}
	networkInterface struct {
		ID  string `json:"iface_id"`
		MAC string `json:"guest_mac,omitempty"`
		Tap string `json:"host_dev_name"`
	}
	vsock struct {
		CID  int    `json:"guest_cid"`
		Path string `json:"uds_path"`
	}
	action struct {
		Type string `json:"action_type"`
	}
	vmState struct {
		State string `json:"state"`
	}
)

// calls returns the API calls that configure a VM and start it. place maps host paths to paths that
// Firecracker sees.
func calls(s *backend.Spec, place func(string) string) []restsocket.Call {
	boot := bootSource{Kernel: place(s.Kernel), Args: s.KernelArgs}
	if s.Initrd != "" {
		boot.Initrd = place(s.Initrd)
	}
	if boot.Args == "" {
		boot.Args = defaultArgs
	}
	all := []restsocket.Call{
		put("/machine-config", machineConfig{s.VCPUs, s.MemoryMiB}),
		put("/boot-source", boot),
	}
	for i, d := range s.Disks {
		// Firecracker appends root=/dev/vda for a root device, which would override the kernel
		// arguments.
		root := i == 0 && !namesRoot(boot.Args)
		all = append(
			all, put("/drives/"+driveID(i), drive{driveID(i), place(d.Target), root, d.ReadOnly, "Writeback"}),
		)
	}
	for i, n := range s.NICs {
		id := "net" + strconv.Itoa(i)
		all = append(all, put("/network-interfaces/"+id, networkInterface{id, n.MAC, n.Tap}))
	}
	if s.Agent {
		all = append(all, put("/vsock", vsock{guestCID, restsocket.InRun(restsocket.VsockSocket)}))
	}
	return append(all, put("/actions", action{"InstanceStart"}))
}

// driveID uses only characters that Firecracker allows, which excludes dashes.
func driveID(i int) string { return "disk" + strconv.Itoa(i) }

func namesRoot(args string) bool {
	for _, arg := range strings.Fields(args) {
		if strings.HasPrefix(arg, "root=") {
			return true
		}
	}
	return false
}

func put(path string, body any) restsocket.Call {
	return restsocket.Call{Method: http.MethodPut, Path: path, Body: body}
}

func patchState(state string) restsocket.Call {
	return restsocket.Call{Method: http.MethodPatch, Path: "/vm", Body: vmState{state}}
}
