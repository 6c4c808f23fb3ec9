//go:build linux

package hypervisor_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo/demotest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/httpapi"
)

const (
	adminToken = "test-admin-token-0001"
	acmeToken  = "test-acme-token-00001"
	otherToken = "test-other-token-0001"
	fleetToken = "test-fleet-token-0001"
)

// usualDocument has the tokens of the tests.
const usualDocument = `
[[auth.tokens]]
name = "acme-ci"
tenant = "acme"
token = "` + acmeToken + `"
[[auth.tokens]]
name = "other-ci"
tenant = "other"
token = "` + otherToken + `"
`

// daemon is a running service, talked to over HTTP as its users would. Every answer is
// held against the contract.
type daemon struct {
	*testing.T
	cfg      hypervisor.Config
	url      string
	recorder *contracttest.Recorder
	contract *contract.Contract
	skew     *atomic.Int64              // nanoseconds that the service's clock is ahead
	backends map[string]backend.Backend // nil: all that there are
	deps     func(*hypervisor.Deps)     // changes them, if it is not nil
	stop     func()
}

// built is the guest agent and, once a test asks for it, the guest.
var built struct {
	once  sync.Once
	agent string
	err   error

	guestOnce sync.Once
	guest     demo.Guest
	folder    string
}

// mortalSettings makes this program a daemon with these settings, which can be killed.
const mortalSettings = "MAINSTAY_HYPERVISOR_TEST_SETTINGS"

func TestMain(m *testing.M) {
	if text := os.Getenv(mortalSettings); text != "" {
		fmt.Fprintln(os.Stderr, beMortal(text))
		os.Exit(1)
	}
	folder, err := os.MkdirTemp("", "hypervisor-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	built.folder = folder
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

func agentProgram(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		built.agent = filepath.Join(built.folder, "mainstay-guest")
		build := exec.Command(
			"go", "build", "-ldflags", "-s -w", "-o", built.agent, "../../cmd/mainstay-guest",
		) //nolint:gosec // the test's own
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.agent
}

// bootable is the demonstration's guest with the agent in it.
func bootable(t testing.TB) demo.Guest {
	t.Helper()
	agent := agentProgram(t)
	built.guestOnce.Do(func() {
		guest := demotest.GuestWith(t, agent)
		built.guest = demo.Guest{
			Kernel: filepath.Join(built.folder, "vmlinuz"),
			Initrd: filepath.Join(built.folder, "initrd.gz"),
		}
		for from, to := range map[string]string{guest.Kernel: built.guest.Kernel, guest.Initrd: built.guest.Initrd} {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
	})
	if built.guest.Kernel == "" {
		t.Skip("the guest could not be built; another test says why")
	}
	return built.guest
}

// need ends the test unless the programs are installed.
func need(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			require.Missing(t, "%s is not installed", name)
		}
	}
}

// settings are those of the tests.
func settings(t testing.TB, dir, document string) hypervisor.Config {
	t.Helper()
	var cfg hypervisor.Config
	if err := config.Load(&cfg, hypervisor.EnvPrefix, config.Sources{}); err != nil {
		t.Fatal(err)
	}
	cfg.ConfigFile = filepath.Join(dir, "hypervisor.toml")
	if err := os.WriteFile(cfg.ConfigFile, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Data, cfg.Token, cfg.FleetToken, cfg.NodeName, cfg.Accel, cfg.GuestAgent = filepath.Join(
		dir, "data",
	), adminToken, fleetToken, "host", "tcg", agentProgram(t)
	return cfg
}

// start runs a daemon until the test ends, and removes its VMs then.
func start(t *testing.T, document string, change ...func(*hypervisor.Config)) *daemon {
	t.Helper()
	d := &daemon{T: t, cfg: settings(t, t.TempDir(), document)}
	for _, f := range change {
		f(&d.cfg)
	}
	d.begin()
	return d
}

// begin runs the daemon until the test ends.
func (d *daemon) begin() {
	d.Helper()
	d.skew = new(atomic.Int64)
	var err error
	if d.contract, err = httpapi.Contract(); err != nil {
		d.Fatal(err)
	}
	d.recorder = contracttest.New(d.contract, hypervisorapi.BasePath)
	d.run()
	d.Cleanup(func() {
		for _, vm := range d.vms() {
			d.call("DELETE", "/v1/vms/"+vm.Id, adminToken, nil)
		}
		d.stop()
	})
}

// run starts the service, which stop ends.
func (d *daemon) run() {
	d.Helper()
	d.serve((*hypervisor.Service).Run)
}

// idle is run of a service that answers but does nothing of itself: operations stay queued.
func (d *daemon) idle() {
	d.Helper()
	d.serve((*hypervisor.Service).RunIdle)
}

func (d *daemon) serve(run func(*hypervisor.Service, context.Context) error) {
	d.Helper()
	deps := hypervisor.Deps{
		Log:      slog.New(slog.NewTextHandler(d.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Registry: prometheus.NewRegistry(),
		Now:      func() time.Time { return time.Now().Add(time.Duration(d.skew.Load())) },
		Backends: d.backends,
	}
	if d.deps != nil {
		d.deps(&deps)
	}
	svc, err := hypervisor.New(d.Context(), d.cfg, deps)
	if err != nil {
		d.Fatal(err)
	}
	server := httptest.NewServer(d.recorder.Wrap(d.T, svc.Handler()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(svc, ctx) }()
	d.url = server.URL
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			d.Errorf("run: %v", err)
		}
		server.Close()
		if err := svc.Close(); err != nil {
			d.Errorf("close: %v", err)
		}
	})
}

// beMortal serves until it is killed. It prints its URL.
func beMortal(settings string) error {
	var cfg hypervisor.Config
	if err := json.Unmarshal([]byte(settings), &cfg); err != nil {
		return err
	}
	svc, err := hypervisor.New(context.Background(), cfg, hypervisor.Deps{
		Log:      slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Registry: prometheus.NewRegistry(),
		Now:      time.Now,
	})
	if err != nil {
		return err
	}
	return svc.Serve(context.Background(), func(url string) { _, _ = fmt.Fprintln(os.Stdout, url) })
}

// mortal runs the daemon in a process of its own, which kill ends as kill -9 does, until the
// daemon of the test itself continues with what is there.
func (d *daemon) mortal() (kill func()) {
	d.Helper()
	d.stop()
	d.cfg.Listen = "127.0.0.1:0"
	text, err := json.Marshal(d.cfg)
	if err != nil {
		d.Fatal(err)
	}
	process := exec.CommandContext(context.Background(), os.Args[0]) //nolint:gosec // this program
	process.Env = append(os.Environ(), mortalSettings+"="+string(text))
	process.Stderr = d.Output()
	out, err := process.StdoutPipe()
	if err != nil {
		d.Fatal(err)
	}
	if err := process.Start(); err != nil {
		d.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	d.Cleanup(kill)
	d.stop = kill
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		d.Fatalf("the daemon does not come up: %v", err)
	}
	d.url = strings.TrimSpace(url)
	return kill
}

// restart ends the service in good order, does something, and starts it again.
func (d *daemon) restart(meanwhile func()) {
	d.Helper()
	d.stop()
	if meanwhile != nil {
		meanwhile()
	}
	d.run()
}

// ahead moves the service's clock.
func (d *daemon) ahead(by time.Duration) { d.skew.Add(int64(by)) }

type object = map[string]any

type answer = contracttest.Answer

// call sends a request. body is as Request.Body has it.
func (d *daemon) call(method, path, token string, body any) answer {
	d.Helper()
	return d.callWith("", method, path, token, body)
}

// callWith is call with an Idempotency-Key, unless that is empty.
func (d *daemon) callWith(key, method, path, token string, body any) answer {
	d.Helper()
	return contracttest.Send(d, nil, contracttest.Request{
		Method: method, URL: d.url + path, Token: token, Body: body, Header: map[string]string{"Idempotency-Key": key},
	})
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func (d *daemon) vms() []hypervisorapi.VM {
	d.Helper()
	return contracttest.As[[]hypervisorapi.VM](d.call("GET", "/v1/vms?limit=1000", adminToken, nil).Want(200))
}

func (d *daemon) vm(id string) hypervisorapi.VM {
	d.Helper()
	return contracttest.As[hypervisorapi.VM](d.call("GET", "/v1/vms/"+id, adminToken, nil).Want(200))
}

// await waits for a state.
func (d *daemon) await(id, state string) hypervisorapi.VM {
	d.Helper()
	return contracttest.As[hypervisorapi.VM](d.call("GET", "/v1/vms/"+id+"/wait?timeout=60&state="+state, adminToken, nil).Want(200))
}

// finished waits for an operation, which must end well.
func (d *daemon) finished(a answer) hypervisorapi.Operation {
	d.Helper()
	op := contracttest.As[hypervisorapi.Operation](a.Want(202))
	op = contracttest.As[hypervisorapi.Operation](d.call("GET", "/v1/operations/"+op.Id+"?wait=120", adminToken, nil).Want(200))
	if op.State != "succeeded" || op.Progress != 1 {
		d.Fatalf("%s: %+v", a.What, op)
	}
	return op
}

// failed waits for an operation, which must fail, and returns why.
func (d *daemon) failed(a answer) string {
	d.Helper()
	op := contracttest.As[hypervisorapi.Operation](a.Want(202))
	op = contracttest.As[hypervisorapi.Operation](d.call("GET", "/v1/operations/"+op.Id+"?wait=120", adminToken, nil).Want(200))
	if op.State != "failed" || op.Error == "" {
		d.Fatalf("%s: %+v", a.What, op)
	}
	return op.Error
}

// withDemo adds the demonstration's guest to the catalog.
func (d *daemon) withDemo() *daemon {
	d.Helper()
	need(d.T, "qemu-system-x86_64", "qemu-img")
	guest := bootable(d.T)
	d.finished(
		d.call(
			"POST", "/v1/images/catalog", adminToken,
			object{"name": "demo", "kernel": guest.Kernel, "initrd": guest.Initrd},
		),
	)
	return d
}

// boot makes a VM of the demonstration's guest, and waits until its agent answers.
func (d *daemon) boot(name string, more object) hypervisorapi.VM {
	d.Helper()
	spec := object{"name": name, "image": "demo", "memory_mib": 192, "network": object{"mode": "none"}, "start": true}
	for k, v := range more {
		spec[k] = v
	}
	vm := contracttest.As[hypervisorapi.VM](d.call("POST", "/v1/vms", adminToken, spec).Want(201))
	d.connected(vm.Id)
	return d.await(vm.Id, "running") // the agent of a VM that begins with a template's memory may be faster than that
}

// connected waits until a VM's agent answers.
func (d *daemon) connected(id string) {
	d.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		a := d.call("POST", "/v1/vms/"+id+"/agent/ping", adminToken, nil)
		if a.Status == 200 {
			return
		}
		if time.Now().After(deadline) {
			d.Fatalf("the agent of %s does not answer: %d %s; %+v", id, a.Status, a.Body, d.vm(id))
		}
		time.Sleep(50 * time.Millisecond) // the guest boots in its own time
	}
}

// sh runs a script in a guest and returns what it prints.
func (d *daemon) sh(id, script string) string {
	d.Helper()
	out := contracttest.As[hypervisorapi.ExecOutcome](
		d.call(
			"POST", "/v1/vms/"+id+"/agent/exec", adminToken, object{"argv": []string{"/bin/sh", "-ec", script}},
		).Want(200),
	)
	if out.ExitCode != 0 {
		d.Fatalf("%s: %+v", script, out)
	}
	return strings.TrimSpace(out.Stdout)
}

var discard = slog.New(slog.DiscardHandler)

func now() time.Time { return time.Now() }

// socketReader reads a socket's next message.
type socketReader struct {
	*testing.T
	conn *websocket.Conn
}

func (r socketReader) read() []byte {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	_, message, err := r.conn.Read(ctx)
	if err != nil {
		r.Fatalf("the socket: %v", err)
	}
	return message
}
