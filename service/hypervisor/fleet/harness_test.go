package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

const token = "the-fleets-token"

var tables = dbtest.Migrations{"hypervisor": os.DirFS("../migrations")}

// clock is a time that tests move.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}
func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// world is a registry with its nodes.
type world struct {
	*testing.T
	db    *db.DB
	clock *clock
	*fleet.Registry
	after map[string]int64 // by node: what its last heartbeat was answered with
}

func newWorld(t *testing.T, d *db.DB, change ...func(*fleet.Config)) *world {
	t.Helper()
	w := &world{T: t, db: d, clock: newClock(), after: map[string]int64{}}
	w.restart(change...)
	return w
}

// sqlite is a world on SQLite.
func sqlite(t *testing.T, change ...func(*fleet.Config)) *world {
	t.Helper()
	return newWorld(t, dbtest.SQLite(t, tables), change...)
}

// restart makes a new registry on the same database.
func (w *world) restart(change ...func(*fleet.Config)) {
	w.Helper()
	cfg := fleet.Config{DB: w.db, Token: token, Now: w.clock.now, Deadline: 10 * time.Second, Patience: time.Minute}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if w.Registry, err = fleet.New(cfg); err != nil {
		w.Fatal(err)
	}
}

// beat sends a heartbeat of a node and continues from its answer.
func (w *world) beat(name string, hb hypervisorapi.Heartbeat) hypervisorapi.Node {
	w.Helper()
	n, sequence, err := w.Heartbeat(w.Context(), name, hb, w.after[name])
	if err != nil {
		w.Fatal(err)
	}
	w.after[name] = sequence
	return n
}

// join runs a node and takes it into the fleet.
func (w *world) join(name string, vcpus int) *node {
	w.Helper()
	n := newNode(w.T, name, vcpus)
	w.beat(name, n.numbers())
	return n
}

func (w *world) free(name string) int {
	w.Helper()
	n, err := w.Node(w.Context(), name)
	if err != nil {
		w.Fatal(err)
	}
	return n.FreeVcpus
}

// node is a daemon as the registry sees it: it keeps VMs in memory by the contract's rules.
type node struct {
	*httptest.Server
	name   string
	vcpus  int
	before atomic.Pointer[http.HandlerFunc] // answers in place of the node
	after  func()                           // runs when a VM is made, before the answer

	mu    sync.Mutex
	vms   map[string]hypervisorapi.VM
	made  int
	worst int // fewest processors that were ever left
}

func newNode(t *testing.T, name string, vcpus int) *node {
	t.Helper()
	n := &node{name: name, vcpus: vcpus, vms: map[string]hypervisorapi.VM{}, worst: vcpus}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/vms", n.create)
	mux.HandleFunc("GET /v1/vms", n.list)
	mux.HandleFunc("GET /v1/vms/{id}", n.get)
	mux.HandleFunc("DELETE /v1/vms/{id}", n.delete)
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			refuse(
				w, http.StatusUnauthorized,
				hypervisorapi.Error{Code: "unauthenticated", Error: "the token is not valid"},
			)
			return
		}
		if f := n.before.Load(); f != nil {
			_, _ = io.Copy(io.Discard, r.Body) // else its context does not end with the connection
			(*f)(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(n.Close)
	return n
}

// instead has requests answered by f.
func (n *node) instead(f http.HandlerFunc) { n.before.Store(&f) }

func (n *node) left() int {
	left := n.vcpus
	for _, vm := range n.vms {
		left -= vm.Vcpus
	}
	return left
}

func (n *node) numbers() hypervisorapi.Heartbeat {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := n.left()
	return hypervisorapi.Heartbeat{
		Url:           n.URL,
		Version:       "1.0",
		Vcpus:         n.vcpus,
		MemoryMib:     n.vcpus * 1024,
		FreeVcpus:     left,
		FreeMemoryMib: left * 1024,
		Vms:           len(n.vms),
		Backends:      []hypervisorapi.Backend{"qemu"},
		Labels:        &hypervisorapi.Labels{"node": n.name},
	}
}

func (n *node) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.vms)
}

func refuse(w http.ResponseWriter, status int, said hypervisorapi.Error) {
	answer(w, status, said)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (n *node) create(w http.ResponseWriter, r *http.Request) {
	var raw map[string]any
	var spec hypervisorapi.VMSpec
	var body json.RawMessage
	if json.NewDecoder(r.Body).Decode(&body) != nil || json.Unmarshal(body, &raw) != nil ||
		json.Unmarshal(body, &spec) != nil ||
		raw["node"] != nil ||
		raw["node_selector"] != nil {
		refuse(w, 400, hypervisorapi.Error{Code: "invalid", Error: "not a VMSpec"})
		return
	}
	vm := n.add(spec)
	if vm == nil {
		refuse(w, 409, hypervisorapi.Error{Code: "name_taken", Error: "there is a VM " + spec.Name, Field: new("name")})
		return
	}
	if n.after != nil {
		n.after()
	}
	answer(w, http.StatusCreated, vm)
}

func (n *node) add(spec hypervisorapi.VMSpec) *hypervisorapi.VM {
	n.mu.Lock()
	defer n.mu.Unlock()
	vm := hypervisorapi.VM{
		Name:      spec.Name,
		Backend:   "qemu",
		State:     "stopped",
		Vcpus:     1,
		MemoryMib: 512,
		CreatedAt: time.Now(),
		Ips:       []string{},
		Labels:    hypervisorapi.Labels{},
	}
	if spec.Tenant != nil {
		vm.Tenant = *spec.Tenant
	}
	if spec.Vcpus != nil {
		vm.Vcpus = *spec.Vcpus
	}
	for _, other := range n.vms {
		if other.Name == vm.Name && other.Tenant == vm.Tenant {
			return nil
		}
	}
	n.made++
	vm.Id = fmt.Sprintf("%s-%06d", n.name, n.made)
	n.vms[vm.Id] = vm
	n.worst = min(n.worst, n.left())
	return &vm
}

func (n *node) list(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	after := r.URL.Query().Get("cursor")
	page := []hypervisorapi.VM{}
	for _, id := range slices.Sorted(maps.Keys(n.vms)) {
		if tenant := r.URL.Query().Get("tenant"); id <= after || tenant != "" && n.vms[id].Tenant != tenant {
			continue
		}
		if len(page) == limit {
			w.Header().Set("Link", list.NextLink(r.URL, page[limit-1].Id))
			break
		}
		page = append(page, n.vms[id])
	}
	answer(w, 200, page)
}

func (n *node) get(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	vm, ok := n.vms[r.PathValue("id")]
	if !ok {
		refuse(w, 404, hypervisorapi.Error{Code: "not_found", Error: "there is no VM " + r.PathValue("id")})
		return
	}
	answer(w, 200, vm)
}

func (n *node) delete(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.vms[r.PathValue("id")]; !ok {
		refuse(w, 404, hypervisorapi.Error{Code: "not_found", Error: "there is no VM " + r.PathValue("id")})
		return
	}
	delete(n.vms, r.PathValue("id"))
	w.WriteHeader(http.StatusNoContent)
}

func spec(name string, vcpus int, change ...func(*hypervisorapi.FleetVMSpec)) hypervisorapi.FleetVMSpec {
	s := hypervisorapi.FleetVMSpec{Name: name, Vcpus: &vcpus}
	for _, c := range change {
		c(&s)
	}
	return s
}

func on(node string) func(*hypervisorapi.FleetVMSpec) {
	return func(s *hypervisorapi.FleetVMSpec) { s.Node = &node }
}

func inTime(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// closedURL is an address at which nobody listens.
func closedURL() string {
	s := httptest.NewServer(nil)
	s.Close()
	return s.URL
}

func contains(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not say %q", err, w)
		}
	}
}
