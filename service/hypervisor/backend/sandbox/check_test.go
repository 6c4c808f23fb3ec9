//go:build linux

package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
)

func TestCheckNamesTheFieldThatASandboxCannotHave(t *testing.T) {
	t.Parallel()
	b := sandbox.New(sandbox.Options{})
	for field, spoil := range map[string]func(*backend.Spec){
		"":             func(*backend.Spec) {},
		"kernel":       func(s *backend.Spec) { s.Kernel = "/boot/vmlinuz" },
		"initrd":       func(s *backend.Spec) { s.Initrd = "/boot/initrd" },
		"kernel_args":  func(s *backend.Spec) { s.KernelArgs = "quiet" },
		"firmware":     func(s *backend.Spec) { s.Firmware = "/usr/share/OVMF/OVMF_CODE.fd" },
		"disk_gib":     func(s *backend.Spec) { s.Disks = []backend.Disk{{ID: "disk0"}} },
		"network.mode": func(s *backend.Spec) { s.NICs = []backend.NIC{{MAC: "52:54:00:00:00:01"}} },
		"image":        func(s *backend.Spec) { s.RootFS = "" },
		"name":         func(s *backend.Spec) { s.Name = strings.Repeat("x", 65) },
		"vcpus":        func(s *backend.Spec) { s.VCPUs = 0 },
		"memory_mib":   func(s *backend.Spec) { s.MemoryMiB = -1 },
	} {
		s := &backend.Spec{Name: "x", VCPUs: 1, MemoryMiB: 64, RootFS: "/images/x"}
		spoil(s)
		err := b.Check(s)
		switch {
		case field == "" && err != nil:
			t.Errorf("a plain one is refused: %v", err)
		case field != "" && (!fault.Is(err, fault.Invalid) || fault.From(err).Field != field):
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestAHostWithoutRunscOrAgentSaysHowToGetThem(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("for root")
	}
	folder := t.TempDir()
	agent := filepath.Join(folder, "mainstay-guest")
	if err := os.WriteFile(agent, nil, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		options sandbox.Options
		says    string
	}{
		"no runsc":      {sandbox.Options{Program: "runsc-of-nobody", Agent: agent}, "gvisor.dev/docs"},
		"no agent":      {sandbox.Options{Program: "true", Agent: "/nowhere/mainstay-guest"}, "mainstay-guest"},
		"another runsc": {sandbox.Options{Program: "true", Agent: agent}, "is not gVisor's runsc"},
	} {
		b := sandbox.New(test.options)
		if info := b.Probe(t.Context()); info.Available || !strings.Contains(info.Detail, test.says) {
			t.Errorf("%s: %+v", what, info)
		}
		s := &backend.Spec{Name: "x", Folder: t.TempDir(), VCPUs: 1, MemoryMiB: 64, RootFS: folder}
		if _, err := b.Start(t.Context(), s); err == nil {
			t.Errorf("%s: it starts", what)
		}
		if left, err := os.ReadDir(s.Folder); err != nil || len(left) > 0 {
			t.Errorf("%s: it leaves %v, %v", what, left, err)
		}
	}
}
