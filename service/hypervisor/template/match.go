package template

import (
	"fmt"

	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// wanted is what a VM that is about to start must find in a template.
type wanted struct {
	VCPUs, MemoryMiB int
	Network          bool
	Disk             bool
	DiskBytes        int64 // as was asked for; 0: that of the image
	Agent            string
	Traits           record.Traits
}

// mismatch returns why a VM cannot start from a template of the same content, or "".
func mismatch(t *record.Template, w *wanted) string {
	switch {
	case t.VCPUs != w.VCPUs:
		return fmt.Sprintf("it has %d processors, and the VM %d", t.VCPUs, w.VCPUs)
	case t.MemoryMiB != w.MemoryMiB:
		return fmt.Sprintf("it has %d MiB of memory, and the VM %d MiB", t.MemoryMiB, w.MemoryMiB)
	case t.Network && !w.Network:
		return "it has a network device, and the VM has none"
	case !t.Network && w.Network:
		return "it has no network device, and the VM has one"
	case t.DiskBytes == 0 && w.Disk:
		return "it has no disk, and the VM has one"
	case t.DiskBytes != 0 && w.DiskBytes != 0 && t.DiskBytes != w.DiskBytes:
		return "its disk has another size than the VM's"
	case t.AgentProgram != w.Agent:
		return "it has another version of the guest agent"
	}
	return differentTraits(&t.Traits.V, w.Traits)
}

// differentTraits returns why a VM with traits cannot start from a template, or "".
func differentTraits(t *record.Traits, vm record.Traits) string {
	for _, it := range []struct{ what, was, is string }{
		{"version of QEMU", t.Version, vm.Version},
		{"accelerator", t.Accelerator, vm.Accelerator},
		{"machine type", t.Machine, vm.Machine},
		{"processor model", t.CPU, vm.CPU},
	} {
		if it.was != it.is {
			return fmt.Sprintf("it was made with the %s %s, and now it is %s", it.what, it.was, it.is)
		}
	}
	if t.Shape != vm.Shape {
		return "it has other devices, or boots otherwise"
	}
	return ""
}
