//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo/demotest"
)

const (
	hvToken      = "e2e-hypervisor-token-3c8d"
	hvFleetToken = "e2e-fleet-token-b27e91f0"
)

// guestAgent builds the agent that runs in guests, once.
var guestAgent = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "mainstay-guest")
	build := exec.Command(
		"go", "build", "-ldflags", "-s -w", "-o", path, "github.com/mainstay-infra/mainstay/cmd/mainstay-guest",
	)
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build mainstay-guest: %w\n%s", err, out)
	}
	return path, nil
})

// hvDaemon is a hypervisor daemon that can be stopped, killed and started again. Its VMs
// are ended with the test.
type hvDaemon struct {
	testing.TB
	host   *netlab.Host // nil: this machine
	data   string
	listen string
	env    []string
	args   []string

	client  *http.Client
	process *process
}

// newHypervisor prepares a daemon that answers at an address.
func newHypervisor(t testing.TB, host *netlab.Host, listen string, args ...string) *hvDaemon {
	t.Helper()
	agent, err := guestAgent()
	if err != nil {
		t.Fatal(err)
	}
	d := &hvDaemon{TB: t, host: host, data: t.TempDir(), listen: listen, client: &http.Client{Timeout: patience}}
	if host != nil {
		d.client = clientOn(t, host)
		d.client.Timeout = patience
	}
	d.env = []string{
		"HYPERVISOR_TOKEN=" + hvToken, "HYPERVISOR_FLEET_TOKEN=" + hvFleetToken, "HYPERVISOR_GUEST_AGENT=" + agent,
	}
	d.args = append(
		[]string{"serve", "hypervisor", "--data", d.data, "--listen", listen, "--accel", "tcg", "--access-log", "off"},
		args...)
	t.Cleanup(func() {
		for _, p := range d.processes() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	})
	return d
}

// start starts the daemon and waits until it answers.
func (d *hvDaemon) start() {
	d.Helper()
	path, err := binary()
	if err != nil {
		d.Fatal(err)
	}
	cmd := exec.Command(path, d.args...)
	cmd.SysProcAttr = dieWithParent()
	begin := (*exec.Cmd).Start
	if d.host != nil {
		begin = d.host.Start
	}
	d.process = launchCommand(d.TB, d.env, cmd, begin)
	if _, ok := d.process.awaitOutput(hvListening); !ok {
		d.Fatalf("the hypervisor daemon did not start:\n%s", tail(d.process.output.String(), 20))
	}
}

// call sends a request and returns the status and the answer's body; 0 if there was none.
func (d *hvDaemon) call(method, path string, body any) (int, []byte) {
	d.Helper()
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			d.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, "http://"+d.listen+path, r)
	if err != nil {
		d.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+hvToken)
	req.Header.Set("Content-Type", "application/json")
	res, err := d.client.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return res.StatusCode, raw
}

// ok is call of something that must succeed.
func (d *hvDaemon) ok(method, path string, body any) []byte {
	d.Helper()
	status, raw := d.call(method, path, body)
	if status < 200 || status >= 300 {
		d.Fatalf("%s %s: %d %s", method, path, status, raw)
	}
	return raw
}

func hvAs[T any](t testing.TB, raw []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

func (d *hvDaemon) vms() []hypervisorapi.VM {
	d.Helper()
	return hvAs[[]hypervisorapi.VM](d.TB, d.ok("GET", "/v1/vms?limit=1000", nil))
}

// finish waits for an operation, which must end well.
func (d *hvDaemon) finish(raw []byte) hypervisorapi.Operation {
	d.Helper()
	op := hvAs[hypervisorapi.Operation](d.TB, raw)
	for range 60 {
		op = hvAs[hypervisorapi.Operation](d.TB, d.ok("GET", "/v1/operations/"+op.Id+"?wait=20", nil))
		if op.FinishedAt != nil {
			break
		}
	}
	if op.State != hypervisorapi.OperationStateSucceeded {
		d.Fatalf("%+v", op)
	}
	return op
}

// connected waits until a VM's agent answers.
func (d *hvDaemon) connected(id string) {
	d.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		status, raw := d.call("POST", "/v1/vms/"+id+"/agent/ping", nil)
		if status == 200 {
			return
		}
		if time.Now().After(deadline) {
			d.Fatalf("the agent of %s does not answer: %d %s", id, status, raw)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// sh runs a script in a guest and returns what it prints, and how it ended.
func (d *hvDaemon) sh(id, script string) (string, int) {
	d.Helper()
	out := hvAs[hypervisorapi.ExecOutcome](
		d.TB, d.ok("POST", "/v1/vms/"+id+"/agent/exec", map[string]any{"argv": []string{"/bin/sh", "-c", script}}),
	)
	return strings.TrimSpace(out.Stdout + out.Stderr), out.ExitCode
}

// vmProcess is a process of a VM.
type vmProcess struct {
	pid int
	vm  string
}

// processes are the QEMUs of the daemon's VMs, by their working folder.
func (d *hvDaemon) processes() (found []vmProcess) {
	d.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		d.Fatal(err)
	}
	for _, link := range links {
		folder, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(folder, filepath.Join(d.data, "vms")+"/") {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(link, "/proc/%d/cwd", &pid); err != nil {
			d.Fatal(err)
		}
		vm := strings.TrimSuffix(filepath.Base(folder), " (deleted)")
		found = append(found, vmProcess{pid, vm})
	}
	return found
}

// hvGuest is the demonstration's guest, built once.
var hvGuest struct {
	sync.Mutex
	guest demo.Guest
}

// withDemo adds the demonstration's guest to a daemon's catalog.
func (d *hvDaemon) withDemo(t *testing.T) {
	t.Helper()
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			require.Missing(t, "%s is not installed", program)
		}
	}
	agent, err := guestAgent()
	if err != nil {
		t.Fatal(err)
	}
	hvGuest.Lock()
	if hvGuest.guest.Kernel == "" {
		made := demotest.GuestWith(t, agent)
		kept := demo.Guest{Kernel: filepath.Join(scratch, "vmlinuz"), Initrd: filepath.Join(scratch, "initrd.gz")}
		for from, to := range map[string]string{made.Kernel: kept.Kernel, made.Initrd: kept.Initrd} {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		hvGuest.guest = kept
	}
	guest := hvGuest.guest
	hvGuest.Unlock()
	d.finish(
		d.ok(
			"POST", "/v1/images/catalog",
			map[string]any{"name": "demo", "kernel": guest.Kernel, "initrd": guest.Initrd},
		),
	)
}

var hvListening = regexp.MustCompile(`msg=listening service=hypervisor url=(\S+)`)
