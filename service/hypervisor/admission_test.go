//go:build linux

package hypervisor_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
)

func TestEveryRefusalNamesTheLimitAndChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inside, outside := filepath.Join(dir, "images"), filepath.Join(dir, "secret")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(inside, "disk.raw"), outside} {
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	d := start(t, usualDocument+`
[policy]
max_vcpus = 2
max_memory_mib = 1024
max_disk_gib = 10
max_ttl_seconds = 3600
allowed_backends = ["qemu"]
allowed_image_dirs = ["`+inside+`"]
[[policy.tenants]]
tenant = "acme"
max_vcpus_total = 3
max_memory_mib_total = 2048
max_vms_total = 4
`)
	good := object{"name": "good", "vcpus": 1, "memory_mib": 64, "ttl_seconds": 60, "tenant": "acme"}
	with := func(more object) object {
		spec := object{}
		for k, v := range good {
			spec[k] = v
		}
		for k, v := range more {
			spec[k] = v
		}
		return spec
	}
	d.call("POST", "/v1/vms", adminToken, good).Want(201)
	for limit, spec := range map[string]object{
		"policy.max_vcpus":                          {"vcpus": 3},
		"policy.max_memory_mib":                     {"memory_mib": 1025},
		"policy.max_disk_gib":                       {"disk_gib": 11},
		"policy.max_ttl_seconds":                    {"ttl_seconds": 3601},
		"policy.tenants[acme].max_memory_mib_total": {"memory_mib": 1024, "name": "b"},
	} {
		if limit == "policy.tenants[acme].max_memory_mib_total" {
			d.call("POST", "/v1/vms", adminToken, with(object{"memory_mib": 1000, "name": "a"})).Want(201)
		}
		d.call("POST", "/v1/vms", adminToken, with(spec)).Limited(400, "policy_limit", "", limit)
	}
	without := with(object{"name": "c"})
	delete(without, "ttl_seconds")
	d.call("POST", "/v1/vms", adminToken, without).Limited(400, "policy_limit", "", "policy.max_ttl_seconds")
	d.call("POST", "/v1/vms", adminToken, with(object{"name": "c", "vcpus": 2})).Limited(
		400, "policy_limit", "", "policy.tenants[acme].max_vcpus_total",
	)
	d.call("POST", "/v1/vms", adminToken, with(object{"name": "c", "image": outside})).Limited(
		400, "policy_limit", "", "policy.allowed_image_dirs",
	)
	d.call("POST", "/v1/vms", adminToken, with(object{"name": "c", "image": inside + "/../secret"})).Limited(
		400, "policy_limit", "", "policy.allowed_image_dirs",
	)
	d.call("POST", "/v1/vms", adminToken, with(object{"name": "c", "image": inside + "/link"})).Refused(
		400, "invalid", "image",
	)
	d.call("POST", "/v1/vms", adminToken, with(object{"name": "c", "kernel": outside})).Limited(
		400, "policy_limit", "", "policy.allowed_image_dirs",
	)
	d.call("POST", "/v1/vms", adminToken, with(object{"name": "c", "image": inside + "/disk.raw"})).Want(201)
	d.call("POST", "/v1/vms", adminToken, with(object{"name": "d", "tenant": "free", "memory_mib": 1024})).Want(201)
	if n := len(d.vms()); n != 4 {
		t.Errorf("%d VMs", n)
	}
	if left, err := filepath.Glob(filepath.Join(d.cfg.Data, "vms", "*")); err != nil || len(left) != 4 {
		t.Errorf("%d folders, %v", len(left), err)
	}
	if left, err := filepath.Glob(filepath.Join(d.cfg.Data, "images", "incoming", "*")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestConcurrentCreatesCannotPassACapTogether(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument+"[[policy.tenants]]\ntenant = \"acme\"\nmax_vms_total = 5\n")
	var made, refused sync.Map
	var work sync.WaitGroup
	for i := range 30 {
		work.Go(func() {
			a := d.call("POST", "/v1/vms", acmeToken, object{"name": fmt.Sprintf("vm-%d", i), "memory_mib": 64})
			switch {
			case a.Status == 201:
				made.Store(i, true)
			case a.Status == 400 && strings.Contains(a.Body, "policy.tenants[acme].max_vms_total"):
				refused.Store(i, true)
			default:
				t.Errorf("%d: %s", a.Status, a.Body)
			}
		})
	}
	work.Wait()
	count := func(m *sync.Map) (n int) {
		m.Range(func(any, any) bool { n++; return true })
		return n
	}
	if count(&made) != 5 || count(&refused) != 25 || len(d.vms()) != 5 {
		t.Errorf("%d made, %d refused, %d there", count(&made), count(&refused), len(d.vms()))
	}
}

func TestABurstThatPassesACapMakesOneCopyOfAnImageAtATime(t *testing.T) {
	t.Parallel()
	need(t, "qemu-img")
	dir := t.TempDir()
	image := filepath.Join(dir, "one.raw")
	if err := os.WriteFile(image, bytes.Repeat([]byte("some content"), 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d := start(
		t,
		usualDocument+fmt.Sprintf(
			"[policy]\nallowed_image_dirs = [%q]\n[[policy.tenants]]\ntenant = \"acme\"\nmax_vms_total = 2\n", dir,
		),
	)
	over := make(chan struct{})
	most := make(chan int)
	go func() {
		seen := 0
		for {
			copies, _ := filepath.Glob(filepath.Join(d.cfg.Data, "images", "incoming", "*"))
			seen = max(seen, len(copies))
			select {
			case <-over:
				most <- seen
				return
			default:
			}
		}
	}()
	var work sync.WaitGroup
	var made atomic.Int64
	for i := range 8 {
		work.Go(func() {
			if a := d.call(
				"POST", "/v1/vms", acmeToken, object{"name": fmt.Sprintf("vm-%d", i), "memory_mib": 64, "image": image},
			); a.Status == 201 {
				made.Add(1)
			}
		})
	}
	work.Wait()
	close(over)
	if seen := <-most; seen != 1 || made.Load() != 2 {
		t.Errorf("%d copies at once, %d VMs", seen, made.Load())
	}
	// And what is beyond the cap is refused before the image is looked for.
	d.call(
		"POST", "/v1/vms", acmeToken, object{"name": "more", "memory_mib": 64, "image": filepath.Join(dir, "gone.raw")},
	).Limited(400, "policy_limit", "", "policy.tenants[acme].max_vms_total")
}

func TestATenantSeesItsOwnAndItsCredentialsDecideWhoseAVMIs(t *testing.T) {
	t.Parallel()
	provider := newIssuer(t)
	d := start(t, provider.document())
	vm := contracttest.As[hypervisorapi.VM](
		d.call("POST", "/v1/vms", acmeToken, object{"name": "web", "memory_mib": 64, "tenant": "other"}).Want(201),
	)
	if vm.Tenant != "acme" {
		t.Errorf("the VM is %q's", vm.Tenant)
	}
	path := "/v1/vms/" + vm.Id
	for _, op := range []string{"GET ", "DELETE ", "POST /start", "POST /stop", "POST /enable", "POST /agent/ping", "GET /events", "GET /snapshots", "POST /backups", "POST /tickets", "GET /console"} {
		method, verb, _ := strings.Cut(op, " ")
		d.call(method, path+verb, otherToken, nil).Refused(404, "not_found", "")
	}
	d.call("GET", path, acmeToken, nil).Want(200)
	// The same name is free in another tenant, and taken in its own.
	d.call("POST", "/v1/vms", otherToken, object{"name": "web", "memory_mib": 64}).Want(201)
	d.call("POST", "/v1/vms", acmeToken, object{"name": "web", "memory_mib": 64}).Refused(409, "name_taken", "")
	// Tokens of the provider.
	d.call("GET", path, provider.token(object{"org": "acme"}), nil).Want(200)
	d.call("GET", path, provider.token(object{"org": "other", "root": true}), nil).Want(404)
	d.call("GET", path, provider.token(object{"root": true}), nil).Want(200)
	d.call("GET", path, provider.token(object{"org": "acme", "aud": "somebody else"}), nil).Refused(
		401, "unauthenticated", "",
	)
	d.call("GET", path, provider.token(object{"org": "acme", "exp": 1}), nil).Refused(401, "unauthenticated", "")
	d.call("GET", path, newIssuer(t).token(object{"org": "acme"}), nil).Refused(401, "unauthenticated", "")
	d.call("GET", path, "wrong", nil).Refused(401, "unauthenticated", "")
	d.call("POST", "/v1/images/clean", acmeToken, nil).Refused(403, "denied", "")
	me := contracttest.As[hypervisorapi.Me](d.call("GET", "/v1/me", provider.token(object{"org": "acme"}), nil).Want(200))
	if me.Name != "somebody" || me.Tenant != "acme" || me.Admin {
		t.Errorf("%+v", me)
	}
}

func TestWithoutCredentialsEverybodyIsAnonymousAdmin(t *testing.T) {
	t.Parallel()
	d := start(t, "", func(cfg *hypervisor.Config) { cfg.Token, cfg.FleetToken = "", "" })
	if me := contracttest.As[hypervisorapi.Me](d.call("GET", "/v1/me", "", nil).Want(200)); me.Name != "anonymous-admin" ||
		!me.Admin {
		t.Errorf("%+v", me)
	}
}

func TestACallerWhoAsksTooOftenWaitsAndOthersAndProbesDoNot(t *testing.T) {
	t.Parallel()
	d := start(t, usualDocument+"[auth]\nrate_limit_rps = 0.5\nrate_limit_burst = 3\n")
	for range 3 {
		d.call("GET", "/v1/vms", acmeToken, nil).Want(200)
	}
	a := d.call("GET", "/v1/vms", acmeToken, nil).Refused(429, "too_many_requests", "")
	if a.Header.Get("Retry-After") == "" {
		t.Errorf("%v", a.Header)
	}
	d.call("GET", "/v1/vms", otherToken, nil).Want(200)
	for range 5 {
		d.call("GET", "/healthz", "", nil).Want(200)
	}
	for range 3 {
		d.call("GET", "/v1/vms", "wrong", nil).Want(401)
	}
	d.call("GET", "/v1/vms", "wrong", nil).Want(429)
	t.Cleanup(func() { d.ahead(1 << 40) }) // so that cleaning up is not refused
}

func TestAuthRequireDemandsCredentialsAndBeyondLoopbackTheJailer(t *testing.T) {
	t.Parallel()
	begin := func(document string, change func(*hypervisor.Config)) error {
		cfg := settings(t, t.TempDir(), document)
		cfg.Token, cfg.FleetToken = "", ""
		change(&cfg)
		svc, err := hypervisor.New(
			t.Context(), cfg, hypervisor.Deps{Log: discard, Registry: prometheus.NewRegistry(), Now: now},
		)
		if err == nil {
			_ = svc.Close()
		}
		return err
	}
	open := func(cfg *hypervisor.Config) { cfg.Token, cfg.Listen = adminToken, "0.0.0.0:0" }
	for what, one := range map[string]struct {
		document string
		change   func(*hypervisor.Config)
		want     string
	}{
		"no credentials":            {"[auth]\nrequire = true", func(*hypervisor.Config) {}, "there are no credentials"},
		"no jailer":                 {"[auth]\nrequire = true", open, "jailer.enabled = true"},
		"loopback":                  {"[auth]\nrequire = true", func(cfg *hypervisor.Config) { cfg.Token = adminToken }, ""},
		"not required":              {"", open, ""},
		"certificates without a CA": {"[[auth.client_certificates]]\ncommon_name = \"ops\"", func(*hypervisor.Config) {}, "tls-client-ca"},
		"a bad registry":            {"", func(cfg *hypervisor.Config) { cfg.Registry = "host:7070" }, "registry"},
		"a bad label":               {"", func(cfg *hypervisor.Config) { cfg.NodeLabels = []string{"x"} }, "node-labels"},
		"a bad accelerator":         {"", func(cfg *hypervisor.Config) { cfg.Accel = "xen" }, "accel"},
	} {
		err := begin(one.document, one.change)
		if (err == nil) != (one.want == "") || err != nil && !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: %v; want %q", what, err, one.want)
		}
	}
}

func TestWhatMakesNoSenseIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	d := start(t, "")
	for field, spec := range map[string]object{
		"name":                             {"name": "-a"},
		"vcpus":                            {"vcpus": 0},
		"memory_mib":                       {"memory_mib": "much"},
		"backend":                          {"backend": "xen"},
		"initrd":                           {"initrd": "/x"},
		"kernel":                           {"kernel": "relative"},
		"storage":                          {"storage": "nbd"},
		"network.mac":                      {"network": object{"mac": "01:00:00:00:00:01"}},
		"network.ip":                       {"network": object{"mode": "user", "ip": "10.0.0.5"}},
		"network.bridge":                   {"network": object{"mode": "bridge", "bridge": "docker0"}},
		"network.mode":                     {"network": object{"mode": "magic"}},
		"cloud_init.hostname":              {"cloud_init": object{"hostname": "a_b"}},
		"cloud_init.ssh_authorized_keys.0": {"cloud_init": object{"ssh_authorized_keys": []string{"a\nb"}}},
		"agent.token":                      {"agent": object{"token": "with spaces and öäü......"}},
		"image":                            {"image": "nope"},
		"ttl_seconds":                      {"ttl_seconds": -1},
		"tenant":                           {"tenant": "a b"},
	} {
		body := object{"name": "a"}
		for k, v := range spec {
			body[k] = v
		}
		d.call("POST", "/v1/vms", adminToken, body).Refused(400, "invalid", field)
	}
	refused := func(field string, spec object) {
		t.Helper()
		spec["name"] = "a"
		d.call("POST", "/v1/vms", adminToken, spec).Refused(400, "invalid", field)
	}
	for _, ttl := range []int64{3_153_600_001, 9_223_372_037, 1 << 62, 1<<63 - 1} { // times overflow at 292 years
		refused("ttl_seconds", object{"ttl_seconds": ttl})
	}
	refused("kernel_args", object{"kernel_args": "quiet\x00"})
	refused("kernel_args", object{"kernel_args": "a\nb"})
	refused("labels.a", object{"labels": object{"a": "b\x00"}})
	refused("labels", object{"labels": object{"a\x1b": "b"}})
	refused("cloud_init.user_data", object{"cloud_init": object{"user_data": "#cloud-config\x00"}})
	d.call(
		"POST", "/v1/images/catalog", adminToken, object{"name": "x", "kernel": "/boot/x", "kernel_args": "a\x00"},
	).Refused(400, "invalid", "kernel_args")
	if os.Geteuid() == 0 {
		for _, ip := range []string{"10.87.0.0", "10.87.0.1", "10.87.255.255", "8.8.8.8", "127.0.0.1"} {
			refused("network.ip", object{"network": object{"mode": "bridge", "ip": ip}})
		}
	}
	if n := len(d.vms()); n != 0 {
		t.Errorf("%d VMs", n)
	}
}

func TestAClientCertificatesHolderIsToldByItsCommonName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := settings(
		t, dir,
		"[[auth.client_certificates]]\ncommon_name = \"ops\"\n[[auth.client_certificates]]\ncommon_name = \"acme\"\ntenant = \"acme\"\n",
	)
	cfg.TLSClientCA, cfg.TLSSelfSigned = filepath.Join(
		dir, "ca.pem",
	), true // the server's business, which has verified whom it lets through
	svc, err := hypervisor.New(
		t.Context(), cfg, hypervisor.Deps{Log: discard, Registry: prometheus.NewRegistry(), Now: now},
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- svc.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, svc.Close()); err != nil {
			t.Error(err)
		}
	})
	for name, want := range map[string]string{"ops": `"admin":true`, "acme": `"tenant":"acme"`, "stranger": "unauthenticated"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/me", nil)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}}}
		w := httptest.NewRecorder()
		svc.Handler().ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}
