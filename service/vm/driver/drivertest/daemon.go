// Package drivertest is a stand-in for the hypervisor daemon in tests that must not need QEMU. It
// keeps VMs in memory, moves them through the daemon's states, and holds every request and every
// answer against the daemon's contract. The real daemon is used by the tests in e2e.
package drivertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

// Token is the token of an admin at the daemon.
const Token = "drivertest-admin-token-0123456789"

// Call is a request that the daemon received.
type Call struct{ Operation, Path, Tenant, Actor string }

// Daemon is the stand-in. Its fields may be set while it serves, by Set.
type Daemon struct {
	URL string

	t      testing.TB
	mu     sync.Mutex
	vms    map[string]*hypervisorapi.VM
	snaps  map[string][]hypervisorapi.Snapshot // by VM
	ops    map[string]hypervisorapi.Operation
	images map[string]catalogImage
	calls  []Call
	fault  func(c Call) *Fault
	gates  map[string]chan struct{} // operations that wait, by id
	feed   chan struct{}            // closed when something has happened, and replaced
	told   []hypervisorapi.VMEvent

	disks     map[string]*disk // by VM
	transfers map[string]*transfer
	// policies are the network policies, by VM; flowed are the flows of all VMs.
	policies map[string]*policyState
	flowed   []hypervisorapi.Flow
	nameless bool // it refuses rules for names
	guest    func(vm string, argv []string) *hypervisorapi.ExecOutcome
	inspect  func(argv []string) hypervisorapi.ExecOutcome
	served   map[string]chan struct{} // by VM; closed when the VM reads its served disk no longer
	sizes    map[string]int64         // of served disks, by VM
	metered  map[string]*metered
	files    map[string][]byte // in guests, by VM:/PATH
	started  int               // how many VMs have started; gives each its address
}

// Fault is an answer in place of the daemon's own.
type Fault struct {
	Status int    // 0: none; the connection ends
	Body   string // JSON; empty: an error body with the status
	// After has the daemon do what was asked for before it answers so.
	After bool
}

// load reads the contract once: it takes long, and the contract is not modified.
var load = sync.OnceValues(func() (*contract.Contract, error) {
	return contract.Load(hypervisorapi.Document, hypervisorapi.BasePath, []string{"tenant", "admin", "node"})
})

// New starts a daemon until the test ends.
func New(t testing.TB) *Daemon {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{
		t: t, vms: map[string]*hypervisorapi.VM{}, snaps: map[string][]hypervisorapi.Snapshot{},
		ops: map[string]hypervisorapi.Operation{}, gates: map[string]chan struct{}{}, feed: make(chan struct{}),
		disks: map[string]*disk{}, transfers: map[string]*transfer{},
		policies: map[string]*policyState{}, metered: map[string]*metered{}, files: map[string][]byte{},
		images: map[string]catalogImage{}, served: map[string]chan struct{}{}, sizes: map[string]int64{},
	}
	served := map[string]func(r *http.Request, tenant string) (int, any){
		"GetHost": d.host, "ListVMs": d.list, "CreateVM": d.create, "GetVM": d.get, "DeleteVM": d.delete,
		"StartVM":   d.move("running", "stopped", "failed"),
		"StopVM":    d.move("stopped", "running", "paused", "starting"),
		"RestartVM": d.move("running", "running", "paused"),
		"PauseVM":   d.move("paused", "running"), "ResumeVM": d.move("running", "paused"),
		"PatchVM": d.patch, "GetVMMetrics": d.metrics, "GetVMHistory": d.history,
		"CloneVM": d.clone, "GetOperation": d.operation, "CancelOperation": d.operation,
		"ListSnapshots": d.snapshots, "CreateSnapshot": d.snapshot, "DeleteSnapshot": d.unsnap, "RevertSnapshot": d.revert,
		"CreateTransfer": d.openTransfer, "DeleteTransfer": d.abortTransfer,
		"GetTransfer":        d.onTransfer(func(_ *http.Request, t *transfer) (int, any) { return 200, t.Transfer }),
		"ListTransferRanges": d.onTransfer(d.rangesOf), "ReadTransfer": d.onTransfer(d.readData),
		"WriteTransfer": d.onTransfer(d.writeData), "FinishTransfer": d.onTransfer(d.finishTransfer),
		"GetNetworkPolicy": d.getPolicy, "PutNetworkPolicy": d.putPolicy, "DeleteNetworkPolicy": d.deletePolicy,
		"GetImage": d.getImage, "UploadImage": d.uploadImage, "RemoveImage": d.removeImage, "CleanImages": d.cleanImages,
		"ResizeImage": d.resizeImage, "InsertCD": d.insertCD, "EjectCD": d.ejectCD,
		"ListDisks": d.listDisks, "CreateDisk": d.createDisk, "ChangeDisk": d.changeDisk, "RemoveDisk": d.removeDisk,
		"ListFlows": d.listFlows, "Exec": d.exec, "PingAgent": d.ping,
	}
	mux := http.NewServeMux()
	for _, op := range c.Operations() {
		do := served[op.ID]
		if do == nil {
			continue
		}
		mux.HandleFunc(op.Pattern, func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, op, do) })
	}
	mux.HandleFunc("GET /v1/events", d.watch)
	mux.HandleFunc("GET /v1/flows", d.followFlows)
	d.handleGuests(mux)
	server := httptest.NewServer(contracttest.New(c, hypervisorapi.BasePath).Wrap(t, mux))
	t.Cleanup(func() {
		server.CloseClientConnections() // streams do not end by themselves
		server.Close()
	})
	d.URL = server.URL
	return d
}

func (d *Daemon) serve(
	w http.ResponseWriter, r *http.Request, op *contract.Operation, do func(*http.Request, string) (int, any),
) {
	if err := op.CheckRequest(r); err != nil {
		d.t.Errorf("%s: the request is against the daemon's contract: %v", op.ID, err)
	}
	if r.Header.Get("Authorization") != "Bearer "+Token {
		answer(w, http.StatusUnauthorized, errorBody(http.StatusUnauthorized, "the token is not valid"))
		return
	}
	call := Call{op.ID, r.URL.Path, r.Header.Get("Mainstay-Tenant"), r.Header.Get("Mainstay-Actor")}
	d.mu.Lock()
	d.calls = append(d.calls, call)
	gate, fault := d.gates[op.ID], d.fault
	d.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler) // the client has left, and is owed no answer
		}
	}
	var wrong *Fault
	if fault != nil {
		wrong = fault(call)
	}
	if wrong != nil && wrong.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	if wrong != nil && !wrong.After {
		answer(w, wrong.Status, wrong.body())
		return
	}
	status, body := d.locked(r, call.Tenant, do)
	if wrong != nil {
		status, body = wrong.Status, wrong.body()
	}
	answer(w, status, body)
}

// locked serves a request. A panic releases the lock, so that the test fails and does not hang.
func (d *Daemon) locked(r *http.Request, tenant string, do func(*http.Request, string) (int, any)) (int, any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return do(r, tenant)
}

func (f *Fault) body() any {
	if f.Body != "" {
		return json.RawMessage(f.Body)
	}
	return errorBody(f.Status, "it does not work")
}

func answer(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	if data, ok := body.(raw); ok {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(status)
		_, _ = w.Write(data) // the client may have left
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have left
}

var codes = map[int]string{
	400: "invalid", 401: "unauthenticated", 403: "denied", 404: "not_found", 409: "conflict", 500: "internal",
	503: "unavailable", 507: "storage_full",
}

func errorBody(status int, format string, args ...any) hypervisorapi.Error {
	return hypervisorapi.Error{Code: codes[status], Error: fmt.Sprintf(format, args...), RequestId: "r"}
}

// Fail has answers replaced while f returns one. Nil ends that.
func (d *Daemon) Fail(f func(c Call) *Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Hold has requests for an operation wait until release is called.
func (d *Daemon) Hold(operation string) (release func()) {
	gate := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gates[operation] = gate
	return sync.OnceFunc(func() {
		d.mu.Lock()
		delete(d.gates, operation)
		d.mu.Unlock()
		close(gate)
	})
}

// Calls returns the requests for an operation so far.
func (d *Daemon) Calls(operation string) (all []Call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if c.Operation == operation {
			all = append(all, c)
		}
	}
	return all
}

// VMs returns the VMs that the daemon has.
func (d *Daemon) VMs() (all []hypervisorapi.VM) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, vm := range d.vms {
		all = append(all, *vm)
	}
	return all
}

// Change changes a VM behind the service's back. It fails the test if there is none with this name. A
// VM that it has running has started now.
func (d *Daemon) Change(name string, f func(vm *hypervisorapi.VM)) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, vm := range d.vms {
		if vm.Name == name {
			f(vm)
			if now := time.Now(); vm.State == hypervisorapi.StateRunning && vm.StartedAt == nil {
				vm.StartedAt = &now
			}
			vm.Generation++
			d.tell(vm, vm.State)
			return
		}
	}
	d.t.Errorf("the daemon has no VM %s", name)
}

// Forget removes a VM behind the service's back, and returns it.
func (d *Daemon) Forget(name string) hypervisorapi.VM {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, vm := range d.vms {
		if vm.Name == name {
			delete(d.vms, id)
			d.tell(vm, "")
			return *vm
		}
	}
	return hypervisorapi.VM{}
}

// Remember puts a VM back.
func (d *Daemon) Remember(vm hypervisorapi.VM) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vms[vm.Id] = &vm
	d.tell(&vm, vm.State)
}

// tell adds an event to the stream.
func (d *Daemon) tell(vm *hypervisorapi.VM, state hypervisorapi.State) {
	e := hypervisorapi.VMEvent{
		At: time.Now(), VmId: vm.Id, Name: vm.Name, Tenant: vm.Tenant, Kind: "deleted", Message: "changed",
	}
	if state != "" {
		e.Kind, e.State = "state", &state
	}
	d.told = append(d.told, e)
	close(d.feed)
	d.feed = make(chan struct{})
}

// watch is the stream of events.
func (d *Daemon) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	next, err := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	d.mu.Lock()
	if err != nil {
		next = len(d.told)
		_, _ = fmt.Fprintf(w, "id: %d\nevent: reset\ndata: {}\n\n", next) // the client may have left
	}
	d.mu.Unlock()
	for {
		d.mu.Lock()
		feed, fault := d.feed, d.fault
		if fault != nil && fault(Call{Operation: "WatchVMs"}) != nil {
			d.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		for ; next < len(d.told); next++ {
			data, _ := json.Marshal(d.told[next]) // a plain value
			_, _ = fmt.Fprintf(w, "id: %d\nevent: vm\ndata: %s\n\n", next+1, data)
		}
		d.mu.Unlock()
		_ = http.NewResponseController(w).Flush()
		select {
		case <-feed:
		case <-r.Context().Done():
			return
		}
	}
}

func (d *Daemon) host(*http.Request, string) (int, any) {
	return 200, hypervisorapi.Host{Name: "stand-in", Version: "1", Backends: []hypervisorapi.BackendInfo{}, Vcpus: 8, MemoryMib: 1 << 14}
}

func (d *Daemon) list(r *http.Request, tenant string) (int, any) {
	all := []hypervisorapi.VM{}
	for _, vm := range d.vms {
		label := r.URL.Query().Get("label")
		key, value, _ := strings.Cut(label, "=")
		if (tenant == "" || vm.Tenant == tenant) && (label == "" || vm.Labels[key] == value) {
			all = append(all, *vm)
		}
	}
	slices.SortFunc(all, func(a, b hypervisorapi.VM) int { return strings.Compare(a.Id, b.Id) })
	return 200, all
}

func (d *Daemon) create(r *http.Request, tenant string) (int, any) {
	var spec hypervisorapi.VMSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		return 400, errorBody(400, "%v", err)
	}
	if spec.Image != nil && strings.HasPrefix(*spec.Image, "missing") {
		return 400, errorBody(400, "image: there is no image %s; looked in /var/lib/mainstay/images", *spec.Image)
	}
	if spec.Tenant != nil && tenant != "" && *spec.Tenant != tenant {
		return 403, errorBody(403, "another tenant")
	}
	vm := &hypervisorapi.VM{
		Id: uuid.NewString(), Name: spec.Name, Tenant: tenant, Backend: hypervisorapi.BackendQemu, State: "stopped",
		Vcpus: value(spec.Vcpus, 1), MemoryMib: value(spec.MemoryMib, 512), DiskGib: value(spec.DiskGib, 2), Storage: "dir",
		Labels: value(spec.Labels, hypervisorapi.Labels{}), Ips: []string{}, Disks: []hypervisorapi.Disk{},
		Mac: "52:54:00:00:00:01", CreatedAt: time.Now(),
		Network: value(spec.Network, hypervisorapi.Network{}), ServedDisk: spec.ServedDisk,
		Generation: 1, Autostart: value(spec.Autostart, false), Pending: []string{},
	}
	if spec.Image != nil {
		if vm.Image = *spec.Image; spec.DiskGib == nil && d.images[vm.Image].VirtualSizeBytes > 0 {
			vm.DiskGib = 0
		}
	}
	return d.add(vm)
}

func (d *Daemon) add(vm *hypervisorapi.VM) (int, any) {
	for _, other := range d.vms {
		if other.Name == vm.Name && other.Tenant == vm.Tenant {
			return 409, errorBody(409, "there is a VM named %s already", vm.Name)
		}
	}
	d.vms[vm.Id] = vm
	return 201, *vm
}

func value[T any](p *T, usual T) T {
	if p == nil {
		return usual
	}
	return *p
}

// vm returns the VM of a request.
func (d *Daemon) vm(r *http.Request, tenant string) *hypervisorapi.VM {
	vm := d.vms[r.PathValue("id")]
	if vm == nil || tenant != "" && vm.Tenant != tenant {
		return nil
	}
	return vm
}

// on wraps what is done with a VM.
func (d *Daemon) on(r *http.Request, tenant string, do func(vm *hypervisorapi.VM) (int, any)) (int, any) {
	vm := d.vm(r, tenant)
	if vm == nil {
		return 404, errorBody(404, "there is no such VM")
	}
	return do(vm)
}

func (d *Daemon) get(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) { return 200, *vm })
}

func (d *Daemon) delete(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		delete(d.vms, vm.Id)
		if over := d.served[vm.Id]; over != nil {
			close(over)
			delete(d.served, vm.Id)
		}
		return 204, nil
	})
}

// move moves a VM to a state from one of others.
func (d *Daemon) move(to hypervisorapi.State, from ...hypervisorapi.State) func(*http.Request, string) (int, any) {
	return func(r *http.Request, tenant string) (int, any) {
		return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
			if !slices.Contains(from, vm.State) {
				return 409, errorBody(409, "the VM is %s", vm.State)
			}
			vm.State, vm.Generation = to, vm.Generation+1
			had := vm.Ips
			vm.StartedAt, vm.Ips, vm.Pending = nil, []string{}, []string{}
			if to != "stopped" {
				now := time.Now()
				if vm.StartedAt, vm.Ips = &now, had; len(had) == 0 {
					d.started++
					vm.Ips = []string{fmt.Sprintf("10.87.0.%d", 1+d.started)}
				}
			}
			return 200, *vm
		})
	}
}

func (d *Daemon) patch(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		var c hypervisorapi.VMPatch
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			return 400, errorBody(400, "%v", err)
		}
		const most = 64
		if value(c.Vcpus, 0) > most {
			return 400, errorBody(400, "vcpus: the host has %d", most)
		}
		vm.Name, vm.Labels = value(c.Name, vm.Name), value(c.Labels, vm.Labels)
		vm.Autostart = value(c.Autostart, vm.Autostart)
		if vm.State != "stopped" && c.Vcpus != nil && *c.Vcpus != vm.Vcpus {
			vm.Pending = []string{"vcpus"}
		}
		vm.Vcpus, vm.MemoryMib = value(c.Vcpus, vm.Vcpus), value(c.MemoryMib, vm.MemoryMib)
		vm.Generation++
		return 200, *vm
	})
}

func (d *Daemon) metrics(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		if vm.State != "running" {
			return 409, errorBody(409, "the VM is %s", vm.State)
		}
		if u := d.metered[vm.Id]; u != nil && u.counts {
			return 200, hypervisorapi.VMMetrics{NetSentBytes: u.sent, At: time.Now()}
		}
		return 200, hypervisorapi.VMMetrics{
			CpuSeconds: 1, MemoryBytes: 2, DiskReadBytes: 3, DiskWrittenBytes: 4, NetReceivedBytes: 5, NetSentBytes: 6,
			At: vm.StartedAt.Add(2 * time.Second),
		}
	})
}

func (d *Daemon) clone(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		key := r.Header.Get("Idempotency-Key")
		if op, ok := d.ops[key]; ok && key != "" {
			return 202, op
		}
		var spec hypervisorapi.CloneSpec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			return 400, errorBody(400, "%v", err)
		}
		made := *vm
		made.Id, made.Name, made.State, made.Generation = uuid.NewString(), spec.Name, "stopped", 1
		made.StartedAt, made.Ips, made.Labels = nil, []string{}, hypervisorapi.Labels{}
		if status, body := d.add(&made); status != 201 {
			return status, body
		}
		op := hypervisorapi.Operation{
			Id: uuid.NewString(), Kind: "clone", State: "succeeded", Progress: 1, CreatedAt: time.Now(), VmId: &made.Id,
		}
		d.ops[op.Id] = op
		if key != "" {
			d.ops[key] = op
		}
		return 202, op
	})
}

func (d *Daemon) operation(r *http.Request, _ string) (int, any) {
	op, ok := d.ops[r.PathValue("operation")]
	if !ok {
		return 404, errorBody(404, "there is no such operation, or no longer")
	}
	return 200, op
}

func (d *Daemon) snapshots(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		return 200, append([]hypervisorapi.Snapshot{}, d.snaps[vm.Id]...)
	})
}

func (d *Daemon) snapshot(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		var spec hypervisorapi.SnapshotSpec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			return 400, errorBody(400, "%v", err)
		}
		s := hypervisorapi.Snapshot{
			Name: spec.Name, Kind: value(spec.Kind, "disk"), Description: value(spec.Description, ""), CreatedAt: time.Now(),
		}
		if s.Kind == "disk" && vm.State != "stopped" {
			return 409, errorBody(409, "the VM is %s; a disk snapshot takes a stopped VM", vm.State)
		}
		if s.Kind == "full" {
			s.MemoryBytes = 1 << 20
		}
		d.snaps[vm.Id] = append(d.snaps[vm.Id], s)
		return 201, s
	})
}

func (d *Daemon) unsnap(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		all := d.snaps[vm.Id]
		left := slices.DeleteFunc(slices.Clone(all), func(s hypervisorapi.Snapshot) bool {
			return s.Name == r.PathValue("snapshot")
		})
		if len(left) == len(all) {
			return 404, errorBody(404, "there is no such snapshot")
		}
		d.snaps[vm.Id] = left
		return 204, nil
	})
}

func (d *Daemon) revert(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		for _, s := range d.snaps[vm.Id] {
			if s.Name == r.PathValue("snapshot") {
				vm.Generation++
				return 200, *vm
			}
		}
		return 404, errorBody(404, "there is no such snapshot")
	})
}
