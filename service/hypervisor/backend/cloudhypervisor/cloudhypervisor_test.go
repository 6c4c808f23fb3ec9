//go:build linux

package cloudhypervisor_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/cloudhypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket/sockettest"
)

func spec(folder string) *backend.Spec {
	return &backend.Spec{
		ID:        "00000000-0000-4000-8000-000000000004",
		Name:      "vm",
		Folder:    folder,
		VCPUs:     2,
		MemoryMiB: 256,
		Kernel:    sockettest.File(folder, "vmlinux", "kernel", 0),
		Initrd:    sockettest.File(folder, "initrd", "initrd", 0),
		Disks: []backend.Disk{
			{ID: "system", Target: sockettest.File(folder, "disk.qcow2", "disk", 0), Format: "qcow2"},
		},
		Agent: true,
	}
}

var host = sockettest.Host{
	Fakes: map[string]func([]string) int{"cloud-hypervisor": fakeCloudHypervisor},
	Backend: func(programs string) backend.Backend {
		return cloudhypervisor.New(cloudhypervisor.Options{Program: filepath.Join(programs, "cloud-hypervisor")})
	},
	Spec:  spec,
	First: "/api/v1/vm.create",
	Last:  "/api/v1/vm.boot",
	HalfStart: func(b backend.Backend, s *backend.Spec) error {
		ctx, cancel := context.WithTimeout(context.Background(), sockettest.Limit)
		defer cancel()
		vm, err := b.(*cloudhypervisor.Backend).Launch(ctx, s)
		if err != nil {
			return err
		}
		return vm.Close()
	},
}

func TestMain(m *testing.M) { host.Main(m) }

func TestVMs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("cloud-hypervisor"); err != nil {
		t.Log("there is no cloud-hypervisor on this machine: only the fake of its documented interface was used")
	}
	host.Test(t)
}

func TestCountersOfDevicesAreAddedUp(t *testing.T) {
	t.Parallel()
	b, s, _ := host.VM(t, sockettest.Settings{})
	i := sockettest.Start(t, b, s)
	m, err := i.Metrics(sockettest.Soon(t))
	if err != nil || m.DiskReadBytes != 4096 || m.DiskWrittenBytes != 512 || m.NetReceivedBytes != 7 ||
		m.NetSentBytes != 9 ||
		m.MemoryBytes == 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestCountersThatMakeNoSenseAreLeftOut(t *testing.T) {
	t.Parallel()
	var devices map[string]map[string]json.RawMessage
	text := `{"a":{"read_bytes":9223372036854775807},"b":{"read_bytes":9223372036854775807},"c":{"write_bytes":-1,"tx_bytes":"x","rx_bytes":{}},"d":{"write_bytes":18446744073709551615}}`
	if err := json.Unmarshal([]byte(text), &devices); err != nil {
		t.Fatal(err)
	}
	var m backend.Metrics
	cloudhypervisor.Count(&m, devices)
	if m != (backend.Metrics{DiskReadBytes: math.MaxInt64}) {
		t.Errorf("%+v", m)
	}
}

// Whatever is not in the documented order is refused, by the fake as by the program.
func TestTheFakeEnforcesTheOrderOfCalls(t *testing.T) {
	t.Parallel()
	b, s, _ := host.VM(t, sockettest.Settings{})
	vm, err := b.(*cloudhypervisor.Backend).Launch(sockettest.Soon(t), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = vm.Close() }()
	put, get := cloudhypervisor.Put, cloudhypervisor.Get
	do := func(c restsocket.Call, kind fault.Kind, said string) {
		t.Helper()
		if err := vm.Do(sockettest.Soon(t), c, nil); !fault.Is(err, kind) || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: %v", c, err)
		}
	}
	config := cloudhypervisor.ConfigOf(s, "")
	do(get("vm.info"), fault.Conflict, "(404): VM is not created")
	do(get("vm.counters"), fault.Unavailable, "(500)")
	for _, action := range []string{"vm.boot", "vm.pause", "vm.resume", "vm.power-button", "vm.reboot", "vm.shutdown"} {
		do(put(action, nil), fault.Conflict, "(404): The VM is not created")
	}
	do(put("vm.create", map[string]any{"kernel": "/k"}), fault.Conflict, "unknown field")
	do(put("vm.create", map[string]any{"cpus": config.CPUs}), fault.Unavailable, "payload")
	if err := vm.Do(sockettest.Soon(t), put("vm.create", config), nil); err != nil {
		t.Fatal(err)
	}
	do(put("vm.create", config), fault.Unavailable, "already created")
	for _, action := range []string{"vm.pause", "vm.resume", "vm.power-button", "vm.reboot", "vm.shutdown"} {
		do(put(action, nil), fault.Conflict, "(405)")
	}
	do(put("vm.boot", map[string]any{}), fault.Conflict, "(400)")
	if err := vm.Do(sockettest.Soon(t), put("vm.boot", nil), nil); err != nil {
		t.Fatal(err)
	}
	do(put("vm.boot", nil), fault.Conflict, "(405)")
	do(put("vm.resume", nil), fault.Conflict, "(405)")
	if err := vm.Do(sockettest.Soon(t), put("vmm.shutdown", nil), nil); err != nil {
		t.Error(err)
	}
	<-vm.Done()
}

func TestAKernelThatIsNotThereIsNamedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	b, s, programs := host.VM(t, sockettest.Settings{})
	s.Kernel = "/nowhere/vmlinux"
	if _, err := b.Start(sockettest.Soon(t), s); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(fault.From(err).Message, "/nowhere/vmlinux") {
		t.Errorf("%v", err)
	}
	sockettest.NothingLeft(t, s, programs)
}

func TestTheConfigurationFollowsFromTheSpec(t *testing.T) {
	t.Parallel()
	const id = "00000000-0000-4000-8000-000000000004"
	for name, c := range map[string]struct {
		spec backend.Spec
		want string
	}{
		"a kernel alone": {
			backend.Spec{ID: id, VCPUs: 1, MemoryMiB: 128, Kernel: "/k"},
			`{"cpus":{"boot_vcpus":1,"max_vcpus":1},"memory":{"size":134217728},"payload":{"kernel":"/k","cmdline":"console=ttyS0 panic=-1"},` +
				`"serial":{"mode":"Socket","socket":"run/serial.sock"},"console":{"mode":"Off"},"platform":{"uuid":"` + id + `"}}`,
		},
		"all there is": {
			backend.Spec{
				ID: id, VCPUs: 4, MemoryMiB: 1024, Kernel: "/k", Initrd: "/i", KernelArgs: "root=/dev/vda1", Agent: true,
				Disks: []backend.Disk{{Target: "/d", Format: "qcow2"}, {Target: "/s", Format: "raw", ReadOnly: true, Seed: true}}, NICs: []backend.NIC{{MAC: "52:54:00:00:00:01", Tap: "tap7"}},
			},
			`{"cpus":{"boot_vcpus":4,"max_vcpus":4},"memory":{"size":1073741824},"payload":{"kernel":"/k","cmdline":"root=/dev/vda1","initramfs":"/i"},` +
				`"disks":[{"id":"disk0","path":"/d","readonly":false,"image_type":"Qcow2","backing_files":true},{"id":"disk1","path":"/s","readonly":true,"image_type":"Raw"}],` +
				`"net":[{"id":"net0","tap":"tap7","mac":"52:54:00:00:00:01"}],"vsock":{"cid":3,"socket":"run/vsock.sock"},` +
				`"serial":{"mode":"Socket","socket":"run/serial.sock"},"console":{"mode":"Off"},"platform":{"uuid":"` + id + `"}}`,
		},
		"a firmware of the host's": {
			backend.Spec{ID: id, VCPUs: 1, MemoryMiB: 128, Disks: []backend.Disk{{Target: "/d", Format: "raw"}}},
			`{"cpus":{"boot_vcpus":1,"max_vcpus":1},"memory":{"size":134217728},"payload":{"firmware":"/CLOUDHV.fd"},` +
				`"disks":[{"id":"disk0","path":"/d","readonly":false,"image_type":"Raw"}],` +
				`"serial":{"mode":"Socket","socket":"run/serial.sock"},"console":{"mode":"Off"},"platform":{"uuid":"` + id + `"}}`,
		},
	} {
		got, err := json.Marshal(cloudhypervisor.ConfigOf(&c.spec, "/CLOUDHV.fd"))
		if err != nil || string(got) != c.want {
			t.Errorf("%s:\n%s, %v; want\n%s", name, got, err, c.want)
		}
	}
}

func TestWhatCloudHypervisorCannotRunIsNamed(t *testing.T) {
	t.Parallel()
	b := cloudhypervisor.New(cloudhypervisor.Options{})
	for _, c := range []struct {
		field  string
		change func(*backend.Spec)
	}{
		{"", func(*backend.Spec) {}},
		{"", func(s *backend.Spec) { s.Kernel, s.Firmware = "", "/CLOUDHV.fd" }},
		{"image", func(s *backend.Spec) { s.RootFS = "/rootfs" }},
		{"image", func(s *backend.Spec) { s.Kernel, s.Firmware, s.Disks = "", "/CLOUDHV.fd", nil }},
		{"kernel", func(s *backend.Spec) { s.Kernel = "" }},
		{"firmware", func(s *backend.Spec) { s.Firmware = "/CLOUDHV.fd" }},
		{"initrd", func(s *backend.Spec) { s.Kernel, s.Firmware, s.Initrd = "", "/CLOUDHV.fd", "/i" }},
		{"storage", func(s *backend.Spec) { s.Disks[0].Target = "rbd:pool/image" }},
		{"storage", func(s *backend.Spec) { s.Disks[0].Format = "vmdk" }},
		{"network.mode", func(s *backend.Spec) { s.NICs[0].Tap = "" }},
	} {
		s := backend.Spec{
			VCPUs:     1,
			MemoryMiB: 128,
			Kernel:    "/k",
			Disks:     []backend.Disk{{Target: "/d", Format: "qcow2"}},
			NICs:      []backend.NIC{{Tap: "tap0"}},
		}
		c.change(&s)
		err := b.Check(&s)
		if f := fault.From(err); (c.field == "") != (err == nil) ||
			c.field != "" && (f.Kind != fault.Invalid || f.Field != c.field) {
			t.Errorf("%q: %v", c.field, err)
		}
	}
}

func TestProbeSaysWhatIsThereAndWhatIsMissing(t *testing.T) {
	t.Parallel()
	programs := host.Install(t, sockettest.Settings{})
	info := host.Backend(programs).Probe(sockettest.Soon(t))
	if info.Version != "48.0" || !info.Available && !strings.Contains(info.Detail, "/dev/kvm") {
		t.Errorf("%+v", info)
	}
	missing := cloudhypervisor.New(cloudhypervisor.Options{Program: filepath.Join(programs, "nothing")})
	if info := missing.Probe(sockettest.Soon(t)); info.Available || !strings.Contains(info.Detail, "releases of") {
		t.Errorf("%+v", info)
	}
	if _, err := missing.Start(sockettest.Soon(t), spec(sockettest.Folder(t))); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

// The real program, where there is one, KVM, and a kernel for it.
func TestRealCloudHypervisor(t *testing.T) {
	t.Parallel()
	kernel := os.Getenv("MAINSTAY_TEST_VMLINUX")
	b := cloudhypervisor.New(cloudhypervisor.Options{})
	if info := b.Probe(t.Context()); !info.Available || kernel == "" {
		t.Skipf(
			"only the fake was used: %s; the real one is tested with an uncompressed kernel at MAINSTAY_TEST_VMLINUX",
			info.Detail,
		)
	}
	s := spec(sockettest.Folder(t))
	s.Kernel, s.Initrd, s.Disks = kernel, "", nil
	sockettest.Real(t, b, s)
}
