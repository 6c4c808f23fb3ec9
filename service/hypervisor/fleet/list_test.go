package fleet_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

func TestAListHasTheVMsOfAllNodesPageByPage(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, tables, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		a, b := w.join("a", 8), w.join("b", 8)
		for i := range 1201 { // three pages
			a.add(hypervisorapi.VMSpec{Name: fmt.Sprint("vm", i), Tenant: new("acme")})
		}
		b.add(hypervisorapi.VMSpec{Name: "web", Tenant: new("other")})
		b.add(hypervisorapi.VMSpec{Name: "web", Tenant: new("acme")})
		for tenant, want := range map[string]int{"": 1203, "acme": 1202, "other": 1, "none": 0} {
			list, err := w.VMs(inTime(t), tenant)
			if err != nil || len(list.Items) != want || list.Items == nil || list.UnreachableNodes == nil ||
				len(list.UnreachableNodes) != 0 {
				t.Errorf("%q: %d items, %v, %v", tenant, len(list.Items), list.UnreachableNodes, err)
			}
			for _, vm := range list.Items {
				if tenant != "" && vm.Tenant != tenant || !strings.HasPrefix(vm.Id, vm.Node+"-") {
					t.Fatalf("%q: %+v", tenant, vm)
				}
			}
			if !slices.IsSortedFunc(
				list.Items, func(a, b hypervisorapi.FleetVM) int { return strings.Compare(a.Id, b.Id) },
			) {
				t.Errorf("%q: not by node and age", tenant)
			}
		}
		if vms, err := w.NodeVMs(inTime(t), "b", "acme"); err != nil || len(vms) != 1 || vms[0].Node != "b" {
			t.Errorf("%+v, %v", vms, err)
		}
		if _, err := w.NodeVMs(inTime(t), "c", ""); fault.From(err).Kind != fault.Invalid ||
			fault.From(err).Field != "node" {
			t.Errorf("%v", err)
		}
	})
}

func vmOf(tenant string) hypervisorapi.VM {
	return hypervisorapi.VM{
		Id:        "x",
		Name:      "x",
		Tenant:    tenant,
		State:     "running",
		Backend:   "qemu",
		CreatedAt: time.Unix(1, 0),
	}
}

// What a node may do wrong costs the list that node's VMs, and nothing else.
func TestABadNodeIsToldAsUnreachableAndTheOthersAreListed(t *testing.T) {
	t.Parallel()
	w := sqlite(t, func(c *fleet.Config) { c.Deadline = 3 * time.Second })
	good := w.join("good", 4)
	good.add(hypervisorapi.VMSpec{Name: "web", Tenant: new("acme")})
	var followed atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer elsewhere.Close()
	strange := func(change func(*hypervisorapi.VM)) http.HandlerFunc {
		vm := vmOf("acme")
		change(&vm)
		return func(w http.ResponseWriter, r *http.Request) { answer(w, 200, []hypervisorapi.VM{vm}) }
	}
	bad := map[string]struct {
		reason string
		f      http.HandlerFunc
	}{
		"hanging":  {"no answer in time", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		"dripping": {"no answer in time", drip},
		"flooding": {"too large", flood},
		"redirect": {"307", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, 307) }},
		"garbage":  {"not in the form", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(`[{]`)) }},
		"null": {
			"not in the form",
			func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(`null`)) },
		},
		"types": {
			"not in the form",
			func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(`[{"id":1}]`)) },
		},
		"no-id":    {"not in the form", strange(func(vm *hypervisorapi.VM) { vm.Id = "../x" })},
		"no-state": {"not in the form", strange(func(vm *hypervisorapi.VM) { vm.State = "on fire" })},
		"another":  {"another tenant", strange(func(vm *hypervisorapi.VM) { vm.Tenant = "other" })},
		"500":      {"500", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }},
		"401":      {"token", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }},
		"busy": {"slow down", func(w http.ResponseWriter, r *http.Request) {
			refuse(w, 429, hypervisorapi.Error{Code: "x", Error: "slow down"})
		}},
		"breaking": {
			"the connection failed",
			func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		},
		"endless":   {"no end", endless(false)},
		"endless-2": {"no end", endless(true)},
		"large-page": {"not in the form", func(w http.ResponseWriter, r *http.Request) {
			answer(w, 200, slices.Repeat([]hypervisorapi.VM{vmOf("acme")}, 501))
		}},
	}
	for name, b := range bad {
		w.join(name, 4).instead(b.f)
	}
	dead := numbers(4, 4)
	dead.Url = closedURL()
	w.beat("dead", dead)
	var alone sync.WaitGroup
	for _, name := range append(slices.Collect(maps.Keys(bad)), "dead") {
		alone.Go(func() {
			_, err := w.NodeVMs(inTime(t), name, "acme")
			if fault.From(err).Code != fleet.CodeUnreachable {
				t.Errorf("%s alone: %v", name, err)
			}
			contains(t, err, "node "+name)
		})
	}
	list, err := w.VMs(inTime(t), "acme")
	if err != nil || len(list.Items) != 1 || list.Items[0].Node != "good" {
		t.Errorf("%+v, %v", list.Items, err)
	}
	if len(list.UnreachableNodes) != len(bad)+1 {
		t.Errorf("%+v", list.UnreachableNodes)
	}
	names := []string{}
	for _, u := range list.UnreachableNodes {
		names = append(names, u.Node)
		want := bad[u.Node].reason
		if u.Node == "dead" {
			want = "refuses connections"
		}
		if want == "" || !strings.Contains(u.Reason, want) || strings.Contains(u.Reason, "127.0.0.1") ||
			strings.Contains(u.Reason, token) {
			t.Errorf("%s: %q, want %q", u.Node, u.Reason, want)
		}
	}
	alone.Wait()
	if !slices.IsSorted(names) {
		t.Errorf("%v are not sorted", names)
	}
	if followed.Load() {
		t.Error("a redirect was followed, with the token")
	}
}

// endless has a next page for ever: empty ones, or the same again.
func endless(same bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", `</v1/vms?cursor=more>; rel="next"`)
		page := []hypervisorapi.VM{}
		if same {
			page = append(page, vmOf("acme"))
		}
		answer(w, 200, page)
	}
}

// A node with more VMs than a list may hold is left out; its endlessness costs no memory.
func TestAListIsBounded(t *testing.T) {
	t.Parallel()
	w := sqlite(t, func(c *fleet.Config) { c.Deadline = time.Minute })
	w.join("good", 4).add(hypervisorapi.VMSpec{Name: "web"})
	var pages atomic.Int64
	one := `{"id":"x","name":"x","tenant":"","state":"running","backend":"qemu","created_at":"2025-01-01T00:00:00Z"}`
	full := "[" + strings.Repeat(one+",", 499) + one + "]"
	w.join("liar", 4).instead(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", fmt.Sprintf(`</v1/vms?cursor=%d>; rel="next"`, pages.Add(1)))
		_, _ = io.WriteString(w, full)
	})
	list, err := w.VMs(inTime(t), "")
	if err != nil || len(list.Items) != 1 || len(list.UnreachableNodes) != 1 ||
		list.UnreachableNodes[0].Node != "liar" ||
		!strings.Contains(list.UnreachableNodes[0].Reason, "too long") {
		t.Errorf("%d, %+v, %v", len(list.Items), list.UnreachableNodes, err)
	}
	if got := pages.Load(); got > fleet.MaxVMs/500+1 {
		t.Errorf("%d pages were read", got)
	}
}

// hangs is a network in which nothing answers.
type hangs struct{ asked chan string }

func (h hangs) RoundTrip(r *http.Request) (*http.Response, error) {
	h.asked <- r.URL.Hostname()
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A silent node is given a third of the time, one that is long gone none at all.
func TestDeadNodesCostAListAtMostItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := hangs{make(chan string, 10)}
		w := sqlite(t, func(c *fleet.Config) {
			c.Deadline, c.HTTP = 3*time.Second, &http.Client{Transport: network}
		})
		at := func(name string) {
			hb := numbers(4, 4)
			hb.Url = "http://" + name
			w.beat(name, hb)
		}
		list := func(want time.Duration, asked ...string) {
			t.Helper()
			began := time.Now()
			list, err := w.VMs(t.Context(), "")
			if took := time.Since(began); err != nil || took != want {
				t.Errorf("took %s, want %s; %v", took, want, err)
			}
			for range asked {
				if name := <-network.asked; !slices.Contains(asked, name) {
					t.Errorf("%s was asked", name)
				}
			}
			if len(network.asked) > 0 || len(list.UnreachableNodes) != 2 {
				t.Errorf("%d more were asked; %+v", len(network.asked), list.UnreachableNodes)
			}
		}
		at("a")
		at("b")
		list(3*time.Second, "a", "b")
		w.clock.advance(time.Minute)
		list(time.Second, "a", "b")
		w.clock.advance(5 * time.Minute)
		list(0)
		at("b")
		list(3*time.Second, "b")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.VMs(ctx, ""); err == nil {
			t.Error("a list for a caller who is gone")
		}
	})
}

func TestNodesAreVerifiedWithTheAuthoritiesThatAreGiven(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, 200, []hypervisorapi.VM{}) }),
	)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshake that fails
	server.StartTLS()
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(
		file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	hb := numbers(4, 4)
	hb.Url = server.URL
	w := sqlite(t)
	w.beat("a", hb)
	_, err := w.NodeVMs(inTime(t), "a", "")
	contains(t, err, "its certificate is not trusted")
	w.restart(func(c *fleet.Config) { c.CAFile = file })
	if _, err := w.NodeVMs(inTime(t), "a", ""); err != nil {
		t.Error(err)
	}
	for _, f := range []string{filepath.Join(t.TempDir(), "none"), os.DevNull} {
		_, err := fleet.New(fleet.Config{CAFile: f})
		contains(t, err, "ca_file", f)
	}
}
