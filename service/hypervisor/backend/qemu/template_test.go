//go:build linux

package qemu_test

import (
	"log/slog"
	"regexp"
	"slices"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/qemu"
)

// Everything that a guest could notice is in the traits, and nothing that differs between VMs that are the
// same.
func TestTheTraitsOfVMsAreEqualIfAndOnlyIfTheirMachinesAre(t *testing.T) {
	t.Parallel()
	needQEMU(t)
	b := qemu.New(qemu.Options{Program: "qemu-system-x86_64", Accel: "tcg", Log: slog.New(slog.DiscardHandler)})
	spec := func(change func(*backend.Spec)) *backend.Spec {
		s := backend.Spec{
			ID: "00000000-0000-4000-8000-000000000001", Name: "one", Folder: "/vms/one", VCPUs: 1, MemoryMiB: 256,
			Disks: []backend.Disk{
				{ID: "system", Target: "/vms/one/disk.qcow2", Format: "qcow2"},
				{ID: "seed", Target: "/vms/one/seed.iso", Format: "raw", ReadOnly: true, Seed: true},
			},
			NICs: []backend.NIC{{MAC: "52:54:00:00:00:01", Tap: "tap1"}}, Agent: true, UID: 1000, GID: 1000,
		}
		change(&s)
		return &s
	}
	traits := func(s *backend.Spec) backend.Traits {
		t.Helper()
		out, err := b.Traits(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	one := traits(spec(func(*backend.Spec) {}))
	if !regexp.MustCompile(`^pc-q35-\d+\.\d+$`).MatchString(one.Machine) || one.CPU != "max" || one.Accelerator != "tcg" ||
		one.Version == "" {
		t.Errorf("%+v", one)
	}
	for name, same := range map[string]func(*backend.Spec){
		"id":     func(s *backend.Spec) { s.ID = "00000000-0000-4000-8000-000000000002" },
		"name":   func(s *backend.Spec) { s.Name = "two, with a comma" },
		"folder": func(s *backend.Spec) { s.Folder = "/vms/two" },
		"user":   func(s *backend.Spec) { s.UID, s.GID = 0, 0 },
		"disks":  func(s *backend.Spec) { s.Disks[0].Target, s.Disks[1].Target = "/a", "/b" },
		"network": func(s *backend.Spec) {
			s.NICs[0] = backend.NIC{MAC: "52:54:00:00:00:02", Forwards: []backend.Forward{
				{Protocol: "tcp", HostAddress: "127.0.0.1", HostPort: 30080, GuestPort: 80},
			}}
		},
	} {
		if got := traits(spec(same)); got != one {
			t.Errorf("another %s: %+v, want %+v", name, got, one)
		}
	}
	for name, other := range map[string]func(*backend.Spec){
		"processors": func(s *backend.Spec) { s.VCPUs = 2 },
		"memory":     func(s *backend.Spec) { s.MemoryMiB = 257 },
		"disk":       func(s *backend.Spec) { s.Disks = append(s.Disks, backend.Disk{ID: "data", Format: "raw"}) },
		"order":      func(s *backend.Spec) { slices.Reverse(s.Disks) },
		"no network": func(s *backend.Spec) { s.NICs = nil },
		"no agent":   func(s *backend.Spec) { s.Agent = false },
		"kernel":     func(s *backend.Spec) { s.Kernel = "/content/kernel" },
		"arguments":  func(s *backend.Spec) { s.ExtraArgs = []string{"-rtc", "base=localtime"} },
		"share":      func(s *backend.Spec) { s.Shares = []backend.Share{{Tag: "data"}} },
	} {
		if got := traits(spec(other)); got.Shape == one.Shape {
			t.Errorf("another %s: the same shape", name)
		}
	}
	kernel := traits(spec(func(s *backend.Spec) { s.Kernel = "/content/kernel" }))
	if line := traits(spec(func(s *backend.Spec) { s.Kernel, s.KernelArgs = "/content/kernel", "quiet" })); line == kernel ||
		kernel.Machine != "microvm" {
		t.Errorf("%+v, %+v", kernel, line)
	}
	if _, err := b.Traits(t.Context(), spec(func(s *backend.Spec) { s.Firmware = "/OVMF_CODE.fd" })); !fault.Is(err, fault.Conflict) {
		t.Errorf("UEFI: %v", err)
	}
}
