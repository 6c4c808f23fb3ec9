//go:build linux

package hypervisor_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
)

// viaRegistry is where the registry forwards requests for the host of a fleet to.
const viaRegistry = "/fleet/nodes/far"

// startFleet runs a registry and a host of its fleet, which knows no callers but the registry.
func startFleet(t *testing.T) (registry, host *daemon, revoke func()) {
	t.Helper()
	reload := make(chan struct{})
	registry = &daemon{T: t, cfg: settings(t, t.TempDir(), usualDocument)}
	patient(&registry.cfg)
	registry.deps = func(deps *hypervisor.Deps) {
		deps.Log, deps.Reload = slog.New(slog.DiscardHandler), reload
		deps.Settings = func() (hypervisor.Config, error) { return registry.cfg, nil }
	}
	registry.begin()
	host = start(t, "", func(c *hypervisor.Config) { c.NodeName = "far" })
	registry.join("far", host.url)
	return registry, host, func() {
		document := "[[auth.tokens]]\nname = \"new\"\nsha256 = \"" + auth.HashToken("test-fresh-token-000000000001") + "\"\n"
		if err := os.WriteFile(registry.cfg.ConfigFile, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		reload <- struct{}{}
		reload <- struct{}{} // the first one is done when the second is taken
	}
}

// patient makes a registry take a host that has reported once for healthy until the test ends.
func patient(c *hypervisor.Config) { c.HeartbeatInterval = 10 * time.Minute }

// join takes a host into the fleet. The registry should be patient.
func (d *daemon) join(name, url string) {
	d.Helper()
	d.call("PUT", "/fleet/nodes/"+name+"/heartbeat", fleetToken, object{
		"url": url, "version": "1", "vcpus": 8, "memory_mib": 8192, "free_vcpus": 8, "free_memory_mib": 8192, "vms": 0,
		"backends": []string{"qemu"},
	}).Want(200)
}

// dialAs opens a socket with a token.
func (d *daemon) dialAs(token, path string) *websocket.Conn {
	d.Helper()
	conn, res, err := websocket.Dial(d.Context(), d.url+path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		d.Fatalf("%s: %v, %v", path, err, res)
	}
	conn.SetReadLimit(1 << 20)
	return conn
}

func TestTheRegistryForwardsEveryVerbForWhomItIdentified(t *testing.T) {
	t.Parallel()
	registry, host, _ := startFleet(t)
	host.withDemo()
	spec := object{"name": "one", "image": "demo", "memory_mib": 192, "disk_gib": 1, "network": object{"mode": "none"}, "start": true}
	vm := contracttest.As[hypervisorapi.VM](registry.call("POST", viaRegistry+"/v1/vms", acmeToken, spec).Want(201))
	if vm.Tenant != "acme" || host.vm(vm.Id).Tenant != "acme" {
		t.Errorf("%+v", vm)
	}
	path := viaRegistry + "/v1/vms/" + vm.Id
	registry.call("GET", path, acmeToken, nil).Want(200)
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"GET", "", otherToken, 404},
		{"DELETE", "", otherToken, 404},
		{"POST", "/start", otherToken, 404},
		{"GET", "/console", otherToken, 404},
		{"POST", "/tickets", otherToken, 404},
		{"GET", "", "", 401},
		{"GET", "", "no-such-token-00000", 401},
		{"GET", "", adminToken, 200},
	} {
		if a := registry.call(c.method, path+c.path, c.token, nil); a.Status != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, a.Status, c.status, a.Body)
		}
	}
	// Admin operations, and bodies that are against the contract, do not even reach the host.
	registry.call("GET", viaRegistry+"/v1/audit", acmeToken, nil).Refused(403, "denied", "")
	registry.call("POST", viaRegistry+"/v1/images/clean", acmeToken, nil).Refused(403, "denied", "")
	registry.call("POST", viaRegistry+"/v1/vms", acmeToken, object{"name": "!"}).Refused(400, "invalid", "name")
	registry.call("POST", viaRegistry+"/v1/vms", acmeToken, object{"name": "two", "image": "/etc/passwd"}).Limited(
		400, "policy_limit", "image", "policy.allowed_image_dirs",
	)

	for range 200 { // the guest boots in its own time
		if a := registry.call("POST", path+"/agent/ping", acmeToken, nil); a.Status == 200 {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	out := registry.call("POST", path+"/agent/exec", acmeToken, object{"argv": []string{"echo", "hello"}, "stream": true}).Want(200)
	if out.Header.Get("Content-Type") != "application/x-ndjson" || !strings.Contains(out.Body, `"exit_code":0`) {
		t.Errorf("%s", out.Body)
	}
	content := strings.Repeat("0123456789abcdef", 1<<16) // a MiB
	registry.call("POST", path+"/agent/put-file?path=/tmp/f", acmeToken, []byte(content)).Want(200)
	if a := registry.call("POST", path+"/agent/get-file", acmeToken, object{"path": "/tmp/f"}).Want(200); a.Body != content ||
		a.Header.Get("X-File-Mode") == "" {
		t.Errorf("%d bytes came back", len(a.Body))
	}

	op := contracttest.As[hypervisorapi.Operation](registry.call("POST", path+"/backups", acmeToken, nil).Want(202))
	events := registry.call("GET", viaRegistry+"/v1/operations/"+op.Id+"/events", acmeToken, nil).Want(200)
	if !strings.Contains(events.Body, `"state":"succeeded"`) || deref(op.Actor) != "fleet/acme-ci" {
		t.Errorf("%+v, %s", op, events.Body)
	}
	registry.call("GET", viaRegistry+"/v1/operations/"+op.Id, otherToken, nil).Want(404)
	image := registry.call("POST", viaRegistry+"/v1/images/catalog/blank/upload", adminToken, make([]byte, 8<<20)).Want(202)
	upload := contracttest.As[hypervisorapi.Operation](image)
	registry.call("GET", viaRegistry+"/v1/operations/"+upload.Id+"?wait=60", adminToken, nil).Want(200)

	// Pages follow each other through the registry.
	next, names := viaRegistry+"/v1/images/catalog?limit=1", []string{}
	for next != "" {
		a := registry.call("GET", next, acmeToken, nil).Want(200)
		for _, i := range contracttest.As[[]hypervisorapi.Image](a) {
			names = append(names, i.Name)
		}
		next, _, _ = strings.Cut(strings.TrimPrefix(a.Header.Get("Link"), "<"), ">")
	}
	if !slices.Equal(names, []string{"blank", "demo"}) {
		t.Errorf("%v", names)
	}

	// For whom it was, both say.
	for d, want := range map[*daemon][]string{
		host:     {"fleet/acme-ci vm.create acme", "fleet/acme-ci vm.exec acme", "fleet/admin image.add "},
		registry: {"acme-ci fleet.vm.create acme", "acme-ci fleet.vm.exec acme", "admin fleet.image.add "},
	} {
		var log []string
		for _, e := range contracttest.As[[]hypervisorapi.AuditEntry](d.call("GET", "/v1/audit?limit=500", adminToken, nil).Want(200)) {
			log = append(log, e.Actor+" "+e.Action+" "+e.Tenant)
		}
		for _, entry := range want {
			if !slices.Contains(log, entry) {
				t.Errorf("%s: the audit log lacks %q: %q", d.cfg.NodeName, entry, log)
			}
		}
	}
	// Acting for somebody goes on through the registry.
	me := contracttest.As[hypervisorapi.Me](
		registry.callAs(as("acme", "ann"), "GET", viaRegistry+"/v1/me", adminToken, nil).Want(200),
	)
	if me.Name != "fleet/admin/ann" || me.Tenant != "acme" || me.Admin {
		t.Errorf("%+v", me)
	}
	registry.call("DELETE", path, acmeToken, nil).Want(204)
}

func TestPathsCannotLeadAForwardedRequestElsewhere(t *testing.T) {
	t.Parallel()
	registry, host, _ := startFleet(t)
	var asked []string
	spy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{}`))
	}))
	defer spy.Close()
	registry.join("spy", spy.URL)
	for _, path := range []string{
		"/fleet/nodes/spy/v1/../fleet/nodes", "/fleet/nodes/spy/v1//audit", "/fleet/nodes/spy//v1/audit",
		"/fleet/nodes/spy/v1/vms/..", "/fleet/nodes/spy/v1/vms/%2e%2e", "/fleet/nodes/spy/v1/vms/%2e%2e%2faudit",
		"/fleet/nodes/spy/v1/vms/%2e%2e/metrics", "/fleet/nodes/spy/v1/vms/..%2f..%2faudit/metrics", "/fleet/nodes/spy/v1/vms/a%5cb",
		"/fleet/nodes/spy/v1/vms/a%00b", "/fleet/nodes/spy/healthz", "/fleet/nodes/spy/metrics", "/fleet/nodes/spy/v2/vms",
		"/fleet/nodes/spy/fleet/nodes", "/fleet/nodes/spy%2fv1/v1/vms", "/fleet/nodes/../v1/vms", "/fleet/nodes/%2e%2e/v1/host",
	} {
		a := registry.call("GET", path, acmeToken, nil)
		if a.Status < 300 {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	if len(asked) > 0 {
		t.Errorf("the host was asked for %q", asked)
	}
	registry.call("GET", "/fleet/nodes/none/v1/host", acmeToken, nil).Refused(404, "node_not_found", "")
	host.stop()
	if p := registry.call("GET", viaRegistry+"/v1/host", acmeToken, nil).Refused(502, "node_unreachable", "").Problem(); !strings.Contains(p.Message, "far") {
		t.Errorf("%s", p.Message)
	}
	host.run() // it is stopped again when the test ends
}

func TestSocketsThroughTheRegistryEndWithTheCallersCredentialsThere(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64", "qemu-img")
	registry, host, revoke := startFleet(t)
	vm := contracttest.As[hypervisorapi.VM](registry.call("POST", viaRegistry+"/v1/vms", acmeToken, object{
		"name": "one", "memory_mib": 64, "start": true, "network": object{"mode": "none"},
	}).Want(201))
	host.await(vm.Id, "running")
	path := viaRegistry + "/v1/vms/" + vm.Id
	ticket := func() string {
		return contracttest.As[hypervisorapi.Ticket](registry.call("POST", path+"/tickets", acmeToken, nil).Want(201)).Ticket
	}
	// A ticket opens that VM of that host, once, at the registry.
	first := ticket()
	host.refusedSocket("/v1/vms/"+vm.Id+"/vnc?ticket="+first, "").Want(401)
	screen := registry.dial(path + "/vnc?ticket=" + first)
	r := socketReader{t, screen}
	if hello := r.read(); string(hello) != "RFB 003.008\n" {
		t.Fatalf("%q", hello)
	}
	if err := screen.Write(t.Context(), websocket.MessageBinary, []byte("RFB 003.008\n")); err != nil {
		t.Fatal(err)
	}
	if types := r.read(); len(types) == 0 {
		t.Error("the screen does not answer")
	}
	registry.refusedSocket(path+"/vnc?ticket="+first, "").Want(401)
	registry.refusedSocket("/v1/vms/"+vm.Id+"/vnc?ticket="+ticket(), "").Want(401)
	registry.refusedSocket(path+"/vnc", otherToken).Want(404)
	// A page of another site opens nothing.
	_, res, err := websocket.Dial(t.Context(), registry.url+path+"/vnc?ticket="+ticket(), &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {"http://evil.example"}},
	})
	if err == nil || res == nil || res.StatusCode != 403 {
		t.Errorf("%v, %v", res, err)
	}
	direct, console := registry.dialAs(acmeToken, path+"/console"), registry.dial(path+"/console?ticket="+ticket())
	unused := ticket()
	revoke()
	registry.refusedSocket(path+"/console?ticket="+unused, "").Want(401)
	for what, conn := range map[string]*websocket.Conn{"screen": screen, "console": direct, "console with a ticket": console} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		for err = nil; err == nil; {
			_, _, err = conn.Read(ctx)
		}
		if ctx.Err() != nil {
			t.Errorf("the %s does not end", what)
		}
		cancel()
	}
}

func TestADaemonOfAnEarlierVersionIsNotAskedAsAnAdmin(t *testing.T) {
	t.Parallel()
	registry := start(t, usualDocument)
	// It knows the fleet's token, and not the headers.
	earlier := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer "+fleetToken {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(hypervisorapi.Error{Code: "unauthenticated", Error: "the token is not valid"})
			return
		}
		_, _ = w.Write([]byte(`[]`))
	}))
	defer earlier.Close()
	registry.join("far", earlier.URL)
	registry.call("GET", viaRegistry+"/v1/vms", acmeToken, nil).Refused(502, "node_unreachable", "")
}
