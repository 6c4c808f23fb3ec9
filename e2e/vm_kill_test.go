//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/netlab"
)

var vmListening = regexp.MustCompile(`msg=listening service=vm url=(\S+)`)

// vmManager is a VM management service that can be killed and started again, above a hypervisor
// daemon.
type vmManager struct {
	testing.TB
	host    *netlab.Host // that it runs on; nil: this one
	args    []string
	env     []string
	url     string
	token   string
	client  *http.Client
	process *process
}

func newVMManager(t testing.TB, hypervisor string) *vmManager {
	t.Helper()
	return &vmManager{
		TB: t, client: &http.Client{Timeout: patience},
		args: []string{
			"serve", "vm", "--data", t.TempDir(), "--listen", freeLoopback(t), "--hypervisor-url", "http://" + hypervisor,
			"--admin-username", "admin", "--access-log", "off",
		},
		env: []string{"VM_HYPERVISOR_TOKEN=" + hvToken, "VM_ADMIN_PASSWORD=" + vmPassword},
	}
}

const vmPassword = "e2e-vm-password-51c8"

// freeLoopback returns an address that nobody listens on.
func freeLoopback(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (m *vmManager) start() {
	m.Helper()
	if m.host == nil {
		m.process = launch(m.TB, m.env, m.args...)
	} else {
		path, err := binary()
		if err != nil {
			m.Fatal(err)
		}
		cmd := exec.Command(path, m.args...)
		cmd.SysProcAttr = dieWithParent()
		m.process = launchCommand(m.TB, m.env, cmd, m.host.Start)
	}
	found, ok := m.process.awaitOutput(vmListening)
	if !ok {
		m.Fatalf("VM management did not start:\n%s", tail(m.process.output.String(), 20))
	}
	m.url = found[1]
	if m.token == "" {
		status, raw := m.call("POST", "/api/auth/login", map[string]any{"username": "admin", "password": vmPassword})
		if status != 200 {
			m.Fatalf("login: %d %s", status, raw)
		}
		m.token = hvAs[vmapi.Session](m.TB, raw).Token
	}
}

// call sends a request and returns the status and the answer's body; 0 if there was none.
func (m *vmManager) call(method, path string, body any) (int, []byte) {
	m.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		m.Fatal(err)
	}
	req, err := http.NewRequest(method, m.url+path, bytes.NewReader(raw))
	if err != nil {
		m.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+m.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := m.client.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = res.Body.Close() }()
	if raw, err = io.ReadAll(res.Body); err != nil {
		return 0, []byte(err.Error())
	}
	return res.StatusCode, raw
}

func (m *vmManager) vms() []vmapi.VM {
	m.Helper()
	status, raw := m.call("GET", "/api/vms?limit=1000", map[string]any{})
	if status != 200 {
		m.Fatalf("list: %d %s", status, raw)
	}
	return hvAs[vmapi.VMList](m.TB, raw).Items
}

// vmLedger is what VM management has acknowledged.
type vmLedger struct {
	mu            sync.Mutex
	made, deleted map[string]bool // names whose create or delete was answered
	tried         map[string]bool // names whose create or delete was not
}

// VM management and the daemon below it are killed at any moment, in the middle of any request or job:
// no VM that was acknowledged is lost, none is doubled, no job stays for ever, and what was deleted is
// removed.
func TestVMManagementAndItsDaemonThatAreKilledAtAnyMomentLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	needRoot(t)
	d := newHypervisor(t, nil, freeLoopback(t))
	d.start()
	d.withDemo(t)
	m := newVMManager(t, d.listen)
	m.start()
	l := &vmLedger{made: map[string]bool{}, deleted: map[string]bool{}, tried: map[string]bool{}}
	for round := range max(2, kills(t)/2) { // a killed service takes its jobs up again after ten seconds
		stop := make(chan struct{})
		var work sync.WaitGroup
		for worker := range 3 {
			work.Go(func() {
				l.operate(m, rand.New(rand.NewPCG(uint64(round), uint64(worker))), stop, fmt.Sprintf("r%dw%d", round, worker))
			})
		}
		time.Sleep(time.Duration(20+rand.IntN(600)) * time.Millisecond) // any moment will do
		below := round%2 == 1
		if below {
			d.process.kill()
		} else {
			m.process.kill()
		}
		close(stop)
		work.Wait()
		if below {
			d.start()
		} else {
			m.start()
		}
		l.check(m, d, round)
	}
	if len(l.made) == 0 || len(l.deleted) == 0 {
		t.Errorf("%d VMs were made and %d deleted", len(l.made), len(l.deleted))
	}
	for _, v := range m.vms() {
		if status, raw := m.call("DELETE", "/api/vms/"+v.Name, map[string]any{}); status != 204 {
			t.Errorf("delete %s: %d %s", v.Name, status, raw)
		}
	}
	eventually(t, "the daemon has no VM any more", func() bool { return len(d.vms()) == 0 })
}

// operate makes, starts and deletes some VMs, or until stop.
func (l *vmLedger) operate(m *vmManager, r *rand.Rand, stop <-chan struct{}, prefix string) {
	const most = 5 // guests that boot on two cores delay all others
	for n := range most {
		select {
		case <-stop:
			return
		default:
		}
		name := fmt.Sprintf("%s-%d", prefix, n)
		status, _ := m.call("POST", "/api/vms", map[string]any{"name": name, "image": "demo", "memory": 64})
		l.note(name, status == 201, l.made)
		if status == 201 && r.IntN(4) == 0 {
			m.call("POST", "/api/vms/"+name+"/start", map[string]any{})
		}
		if status == 201 && r.IntN(2) == 0 {
			status, _ := m.call("DELETE", "/api/vms/"+name, map[string]any{})
			l.note(name, status == 204, l.deleted)
		}
	}
}

func (l *vmLedger) note(name string, answered bool, in map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered {
		in[name] = true
	} else {
		l.tried[name] = true
	}
}

// check compares what VM management and the daemon have with what was acknowledged, once no job is
// left.
func (l *vmLedger) check(m *vmManager, d *hvDaemon, round int) {
	m.Helper()
	var all []vmapi.VM
	eventually(m.TB, "no job is left", func() bool {
		all = m.vms()
		for _, v := range all {
			if v.Job != nil {
				return false
			}
		}
		return true
	})
	seen := map[string]string{} // ids, by name
	for _, v := range all {
		seen[v.Name] = v.Id
		if l.deleted[v.Name] {
			m.Errorf("round %d: %s was deleted and is there", round, v.Name)
		}
		if !l.made[v.Name] && !l.tried[v.Name] {
			m.Errorf("round %d: nobody made %s", round, v.Name)
		}
	}
	for name := range l.made {
		if seen[name] == "" && !l.deleted[name] && !l.tried[name] {
			m.Errorf("round %d: %s is lost", round, name)
		}
	}
	eventually(m.TB, "the daemon has what VM management has made, once each", func() bool {
		below := map[string]int{}
		for _, vm := range d.vms() {
			below[vm.Labels["mainstay.vm"]]++
		}
		for _, v := range m.vms() {
			if v.Provisioned && below[v.Id] != 1 || below[v.Id] > 1 {
				return false
			}
			delete(below, v.Id)
		}
		return len(below) == 0 // what was deleted is removed
	})
}
