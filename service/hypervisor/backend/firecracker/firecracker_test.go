//go:build linux

package firecracker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/firecracker"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/restsocket/sockettest"
)

const elf = "\x7fELF and so on"

// spec is a VM whose files are a user's.
func spec(folder string, uid int) *backend.Spec {
	return &backend.Spec{
		ID: "00000000-0000-4000-8000-000000000003", Name: "vm", Folder: folder, VCPUs: 2, MemoryMiB: 256,
		Kernel: sockettest.File(folder, "vmlinux", elf, uid), Initrd: sockettest.File(folder, "initrd", "initrd", uid),
		Disks: []backend.Disk{
			{ID: "system", Target: sockettest.File(folder, "disk.raw", "disk", uid), Format: "raw"},
			{
				ID:       "seed",
				Target:   sockettest.File(folder, "seed.iso", "seed", uid),
				Format:   "raw",
				ReadOnly: true,
				Seed:     true,
			},
		},
		Agent: true, UID: uid, GID: uid,
	}
}

// nobody is a user who is not root.
const nobody = 65534

var plain = sockettest.Host{
	Fakes: map[string]func([]string) int{"firecracker": fakeFirecracker, "jailer": fakeJailer},
	Backend: func(programs string) backend.Backend {
		return firecracker.New(firecracker.Options{Program: filepath.Join(programs, "firecracker")})
	},
	Spec:      func(folder string) *backend.Spec { return spec(folder, 0) },
	First:     "/machine-config",
	Last:      "/actions",
	HalfStart: halfStart,
}

func halfStart(b backend.Backend, s *backend.Spec) error {
	ctx, cancel := context.WithTimeout(context.Background(), sockettest.Limit)
	defer cancel()
	vm, err := b.(*firecracker.Backend).Launch(ctx, s)
	if err != nil {
		return err
	}
	return vm.Close()
}

// jailed is a host whose VMs are jailed.
func jailed() sockettest.Host {
	h := plain
	h.Backend = func(programs string) backend.Backend {
		return firecracker.New(
			firecracker.Options{Program: filepath.Join(programs, "firecracker"), Jailer: firecracker.Jailer{
				Enabled: true, Binary: filepath.Join(programs, "jailer"), ChrootBase: filepath.Join(programs, "jails"),
			}},
		)
	}
	h.Spec = func(folder string) *backend.Spec { return spec(folder, nobody) }
	h.Jail = "jails/firecracker/*/root"
	return h
}

// jailVariable says to a test binary that is a daemon that its VMs are jailed.
const jailVariable = "MAINSTAY_FIRECRACKER_TEST_JAILED"

func TestMain(m *testing.M) {
	h := plain
	if os.Getenv(jailVariable) != "" {
		h = jailed()
	}
	h.Main(m)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Missing(t, "jails are made as root")
	}
}

func TestVMsWithoutAJail(t *testing.T) {
	t.Parallel()
	onlyFake(t)
	plain.Test(t)
}

func TestVMsInAJail(t *testing.T) {
	t.Parallel()
	needRoot(t)
	onlyFake(t)
	h := jailed()
	h.Environment = []string{jailVariable + "=1"}
	h.Test(t)
}

func onlyFake(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("firecracker"); err != nil {
		t.Log("there is no firecracker on this machine: only the fake of its documented interface was used")
	}
}

func TestProcessesWithoutAJailRunAsTheUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	h := plain
	h.Spec = func(folder string) *backend.Spec { return spec(folder, nobody) }
	b, s, programs := h.VM(t, sockettest.Settings{})
	if err := os.Chown(filepath.Join(programs, "secret"), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(programs, "settings.json"), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	i := sockettest.Start(t, b, s)
	userOf(t, i.PID(), nobody)
}

func userOf(t *testing.T, pid, uid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if want := fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d", uid, uid, uid, uid); err != nil ||
		!strings.Contains(string(status), want) {
		t.Errorf("it runs as another user, %v: %s", err, status)
	}
}

func TestAJailHasTheFilesOfItsVMAndNoOthers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	b, s, programs := jailed().VM(t, sockettest.Settings{})
	i := sockettest.Start(t, b, s)
	userOf(t, i.PID(), nobody)
	root := filepath.Join(programs, "jails", "firecracker", s.ID, "root")
	if own, err := os.Stat(fmt.Sprintf("/proc/%d/root", i.PID())); err != nil {
		t.Error(err)
	} else if jail, err := os.Stat(root); err != nil || !os.SameFile(own, jail) {
		t.Errorf("it is not in its jail, %v", err)
	}
	var names []string
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{
		"dev", "disk0", "disk1", "firecracker", "initrd", "kernel", "run",
	}; err != nil ||
		!slices.Equal(names, want) {
		t.Errorf("%v, %v; want %v", names, err, want)
	}
	inside, err := os.Stat(filepath.Join(root, "disk0"))
	if err != nil {
		t.Fatal(err)
	}
	if outside, err := os.Stat(s.Disks[0].Target); err != nil || !os.SameFile(inside, outside) {
		t.Errorf("the disk in the jail is another one, %v", err)
	}
}

func TestAFileThatCannotBeJailedLeavesNothing(t *testing.T) {
	t.Parallel()
	needRoot(t)
	b, s, programs := jailed().VM(t, sockettest.Settings{})
	s.Disks[0].Target = "/proc/self/mountinfo" // on another file system
	if _, err := b.Start(sockettest.Soon(t), s); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(err.Error(), "file system") {
		t.Errorf("%v", err)
	}
	sockettest.NothingLeft(t, s, programs)
}

func TestAKernelThatIsCompressedIsRefusedInFirecrackersWords(t *testing.T) {
	t.Parallel()
	b, s, programs := plain.VM(t, sockettest.Settings{})
	s.Kernel = s.Initrd
	if _, err := b.Start(sockettest.Soon(t), s); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "failed to load ELF kernel image") {
		t.Errorf("%v", err)
	}
	sockettest.NothingLeft(t, s, programs)
}

// Whatever is not in the documented order is refused, by the fake as by Firecracker.
func TestTheFakeEnforcesTheOrderOfCalls(t *testing.T) {
	t.Parallel()
	b, s, _ := plain.VM(t, sockettest.Settings{})
	vm, err := b.(*firecracker.Backend).Launch(sockettest.Soon(t), s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = vm.Close() }()
	refused := func(method, path, body, said string) {
		t.Helper()
		err := vm.Do(sockettest.Soon(t), restsocket.Call{Method: method, Path: path, Body: json.RawMessage(body)}, nil)
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), said) {
			t.Errorf("%s %s %s: %v", method, path, body, err)
		}
	}
	refused(http.MethodPut, "/actions", `{"action_type":"InstanceStart"}`, "without kernel configuration")
	refused(http.MethodPut, "/actions", `{"action_type":"SendCtrlAltDel"}`, "before starting")
	refused(http.MethodPatch, "/vm", `{"state":"Paused"}`, "before starting")
	refused(http.MethodPut, "/machine-config", `{"vcpu_count":1,"mem_size_mib":128,"vcpus":1}`, "unknown field")
	refused(http.MethodPut, "/machine-config", `{"vcpu_count":1}`, "invalid")
	refused(
		http.MethodPut,
		"/drives/a",
		`{"drive_id":"b","is_root_device":false,"is_read_only":true,"path_on_host":"/dev/null"}`,
		"does not match",
	)
	refused(http.MethodPut, "/vsock", `{"guest_cid":2,"uds_path":"run/vsock.sock"}`, "reserved")
	refused(http.MethodPost, "/actions", `{}`, "Invalid request method")
	for _, call := range firecracker.Calls(s, func(path string) string { return path }) {
		if err := vm.Do(sockettest.Soon(t), call, nil); err != nil {
			t.Fatal(err)
		}
	}
	refused(http.MethodPut, "/actions", `{"action_type":"InstanceStart"}`, "after starting")
	for _, call := range firecracker.Calls(s, func(path string) string { return path }) {
		body, err := json.Marshal(call.Body)
		if err != nil {
			t.Fatal(err)
		}
		refused(call.Method, call.Path, string(body), "after starting")
	}
	refused(http.MethodPatch, "/vm", `{"state":"Running"}`, "expected")
}

// A guest that prints while nobody reads is neither held up nor does it fill a disk.
func TestAConsoleThatNobodyReadsIsBounded(t *testing.T) {
	t.Parallel()
	b, s, _ := plain.VM(t, sockettest.Settings{})
	i := sockettest.Start(t, b, s)
	console, err := i.Dial(sockettest.Soon(t), backend.ConsoleChannel)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = console.Close() }()
	// The last command is done when the others are: the guest was not held up.
	if _, err := fmt.Fprintln(console, "flood 1000000\npoweroff"); err != nil {
		t.Fatal(err)
	}
	if end := sockettest.Ended(t, i); !end.Clean {
		t.Errorf("%+v", end)
	}
	if n, err := io.Copy(io.Discard, console); err != nil || n == 0 || n > 64<<10 {
		t.Errorf("%d bytes were kept, %v", n, err)
	}
}

func TestCallsFollowFromTheSpec(t *testing.T) {
	t.Parallel()
	same := func(path string) string { return path }
	inJail := func(path string) string { return "/in" + path }
	boot := backend.Spec{VCPUs: 1, MemoryMiB: 128, Kernel: "/k"}
	full := backend.Spec{
		VCPUs:      4,
		MemoryMiB:  1024,
		Kernel:     "/k",
		Initrd:     "/i",
		KernelArgs: `root=/dev/vda1 "quiet"`,
		Agent:      true,
		Disks: []backend.Disk{
			{ID: "a-b", Target: "/d", Format: "raw"},
			{ID: "seed", Target: "/s", Format: "raw", ReadOnly: true, Seed: true},
		},
		NICs: []backend.NIC{{MAC: "52:54:00:00:00:01", Tap: "tap7"}},
	}
	disk := boot
	disk.Disks = full.Disks[:1]
	for name, c := range map[string]struct {
		spec  backend.Spec
		place func(string) string
		want  []string
	}{
		"a kernel alone": {boot, same, []string{
			`PUT /machine-config {"vcpu_count":1,"mem_size_mib":128}`,
			`PUT /boot-source {"kernel_image_path":"/k","boot_args":"console=ttyS0 reboot=k panic=1 pci=off"}`,
			`PUT /actions {"action_type":"InstanceStart"}`,
		}},
		"a root disk": {disk, same, []string{
			`PUT /machine-config {"vcpu_count":1,"mem_size_mib":128}`,
			`PUT /boot-source {"kernel_image_path":"/k","boot_args":"console=ttyS0 reboot=k panic=1 pci=off"}`,
			`PUT /drives/disk0 {"drive_id":"disk0","path_on_host":"/d","is_root_device":true,"is_read_only":false,"cache_type":"Writeback"}`,
			`PUT /actions {"action_type":"InstanceStart"}`,
		}},
		"all there is, in a jail": {full, inJail, []string{
			`PUT /machine-config {"vcpu_count":4,"mem_size_mib":1024}`,
			`PUT /boot-source {"kernel_image_path":"/in/k","initrd_path":"/in/i","boot_args":"root=/dev/vda1 \"quiet\""}`,
			`PUT /drives/disk0 {"drive_id":"disk0","path_on_host":"/in/d","is_root_device":false,"is_read_only":false,"cache_type":"Writeback"}`,
			`PUT /drives/disk1 {"drive_id":"disk1","path_on_host":"/in/s","is_root_device":false,"is_read_only":true,"cache_type":"Writeback"}`,
			`PUT /network-interfaces/net0 {"iface_id":"net0","guest_mac":"52:54:00:00:00:01","host_dev_name":"tap7"}`,
			`PUT /vsock {"guest_cid":3,"uds_path":"run/vsock.sock"}`,
			`PUT /actions {"action_type":"InstanceStart"}`,
		}},
	} {
		var got []string
		for _, call := range firecracker.Calls(&c.spec, c.place) {
			body, err := json.Marshal(call.Body)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, call.String()+" "+string(body))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestTheJailersCommandLine(t *testing.T) {
	t.Parallel()
	s := backend.Spec{ID: "00000000-0000-4000-8000-000000000003", UID: 123, GID: 100}
	want := "--id 00000000-0000-4000-8000-000000000003 --exec-file /usr/bin/firecracker --uid 123 --gid 100 --chroot-base-dir /srv/jailer -- " +
		"--api-sock run/api.sock --log-path run/log --level Info"
	if got := strings.Join(firecracker.JailerArgs(&s, "/usr/bin/firecracker", "/srv/jailer"), " "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestWhatFirecrackerCannotRunIsNamed(t *testing.T) {
	t.Parallel()
	b := firecracker.New(firecracker.Options{})
	for field, change := range map[string]func(*backend.Spec){
		"":             func(*backend.Spec) {},
		"image":        func(s *backend.Spec) { s.RootFS = "/rootfs" },
		"kernel":       func(s *backend.Spec) { s.Kernel = "" },
		"firmware":     func(s *backend.Spec) { s.Firmware = "/OVMF_CODE.fd" },
		"vcpus":        func(s *backend.Spec) { s.VCPUs = 33 },
		"storage":      func(s *backend.Spec) { s.Disks[0].Format = "qcow2" },
		"network.mode": func(s *backend.Spec) { s.NICs = []backend.NIC{{MAC: "52:54:00:00:00:01"}} },
	} {
		s := backend.Spec{
			VCPUs:     1,
			MemoryMiB: 128,
			Kernel:    "/k",
			Disks:     []backend.Disk{{Target: "/d", Format: "raw"}},
			NICs:      []backend.NIC{{Tap: "tap0"}},
		}
		change(&s)
		err := b.Check(&s)
		if f := fault.From(err); (field == "") != (err == nil) ||
			field != "" && (f.Kind != fault.Invalid || f.Field != field) {
			t.Errorf("%q: %v", field, err)
		}
	}
	nbd := backend.Spec{VCPUs: 1, Kernel: "/k", Disks: []backend.Disk{{Target: "nbd:unix:/s", Format: "raw"}}}
	if f := fault.From(b.Check(&nbd)); f == nil || f.Field != "storage" {
		t.Errorf("%v", f)
	}
}

func TestProbeSaysWhatIsThereAndWhatIsMissing(t *testing.T) {
	t.Parallel()
	programs := plain.Install(t, sockettest.Settings{})
	info := plain.Backend(programs).Probe(sockettest.Soon(t))
	_, err := os.Stat("/dev/kvm")
	if info.Version != "1.12.0" || info.Available && !strings.Contains(info.Detail, "kvm") ||
		!info.Available && !strings.Contains(info.Detail, "/dev/kvm") ||
		info.Available && err != nil {
		t.Errorf("%+v", info)
	}
	missing := firecracker.New(firecracker.Options{Program: filepath.Join(programs, "nothing")})
	if info := missing.Probe(sockettest.Soon(t)); info.Available || !strings.Contains(info.Detail, "releases of") {
		t.Errorf("%+v", info)
	}
	if _, err := missing.Start(sockettest.Soon(t), plain.Spec(sockettest.Folder(t))); !fault.Is(
		err, fault.Unavailable,
	) {
		t.Errorf("%v", err)
	}
	half := firecracker.New(firecracker.Options{
		Program: filepath.Join(programs, "firecracker"),
		Jailer:  firecracker.Jailer{Enabled: true, Binary: filepath.Join(programs, "nothing")},
	})
	if info := half.Probe(sockettest.Soon(t)); info.Available || !strings.Contains(info.Detail, "jailer") {
		t.Errorf("%+v", info)
	}
	other := firecracker.New(firecracker.Options{Program: "true"})
	if info := other.Probe(sockettest.Soon(t)); info.Available {
		t.Errorf("%+v", info)
	}
}

// The real program, where there is one, KVM, and a kernel for it.
func TestRealFirecracker(t *testing.T) {
	t.Parallel()
	kernel := os.Getenv("MAINSTAY_TEST_VMLINUX")
	b := firecracker.New(firecracker.Options{})
	if info := b.Probe(t.Context()); !info.Available || kernel == "" {
		t.Skipf(
			"only the fake was used: %s; the real one is tested with an uncompressed kernel at MAINSTAY_TEST_VMLINUX",
			info.Detail,
		)
	}
	s := spec(sockettest.Folder(t), 0)
	s.Kernel, s.Initrd, s.Disks = kernel, "", nil
	sockettest.Real(t, b, s)
}
