package template

import (
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

func TestATemplateFitsOnlyAVMThatIsTheSameInEveryRespect(t *testing.T) {
	t.Parallel()
	traits := record.Traits{Version: "7.2.22", Machine: "pc-q35-7.2", CPU: "max", Accelerator: "tcg", Shape: "s"}
	template := record.Template{
		VCPUs: 2, MemoryMiB: 512, Network: true, DiskBytes: 1 << 30, AgentProgram: "a", Traits: jsonOf(traits),
	}
	vm := wanted{VCPUs: 2, MemoryMiB: 512, Network: true, Disk: true, Agent: "a", Traits: traits}
	if why := mismatch(&template, &vm); why != "" {
		t.Errorf("the same: %s", why)
	}
	vm.DiskBytes = 1 << 30 // as large as the template's, and asked for
	if why := mismatch(&template, &vm); why != "" {
		t.Errorf("the same disk: %s", why)
	}
	for want, change := range map[string]func(*wanted){
		"processors":              func(w *wanted) { w.VCPUs = 1 },
		"MiB of memory":           func(w *wanted) { w.MemoryMiB = 513 },
		"it has a network device": func(w *wanted) { w.Network = false },
		"another size":            func(w *wanted) { w.DiskBytes = 2 << 30 },
		"the guest agent":         func(w *wanted) { w.Agent = "b" },
		"version of QEMU":         func(w *wanted) { w.Traits.Version = "7.2.23" },
		"machine type":            func(w *wanted) { w.Traits.Machine = "pc-q35-8.0" },
		"processor model":         func(w *wanted) { w.Traits.CPU = "host" },
		"accelerator":             func(w *wanted) { w.Traits.Accelerator = "kvm" },
		"other devices":           func(w *wanted) { w.Traits.Shape = "t" },
	} {
		other := vm
		change(&other)
		if why := mismatch(&template, &other); !strings.Contains(why, want) {
			t.Errorf("another in %s: %q", want, why)
		}
	}
	template.Network, template.DiskBytes = false, 0
	if why := mismatch(&template, &vm); why != "it has no network device, and the VM has one" {
		t.Error(why)
	}
	vm.Network = false
	if why := mismatch(&template, &vm); why != "it has no disk, and the VM has one" {
		t.Error(why)
	}
}

func jsonOf(traits record.Traits) (j db.JSON[record.Traits]) {
	j.V = traits
	return j
}
