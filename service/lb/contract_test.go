package lb

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// unchecked are VIPs whose backends are healthy always.
const unchecked = `
interface: eth0
vips:
  - address: 192.0.2.1
    port: 80
    healthCheck: {type: none}
    backends: [{address: 10.0.0.1, weight: 5}, {address: 10.0.0.2}]
  - address: "2001:db8::1"
    portRange: 8000-8100
    healthCheck: {type: none}
    backends: [{address: "fd00::1"}]
  - address: 192.0.2.1
    port: 81
    healthCheck: {type: none}
    backends: [{address: 10.0.0.1, port: 80}]
bgp: {localASN: 65001, routerID: 10.0.0.9, communities: ["65001:100", no-export], peers: [{address: 10.0.0.254, asn: 65000, password: hunter2}]}
`

func TestEveryOperationIsExercisedRefusesStrangersAndIsAudited(t *testing.T) {
	t.Parallel()
	n := start(t, unchecked)
	for _, step := range []struct{ method, path, key, body string }{
		{"GET", "/vips", longB, ""}, {"GET", "/backends", longB, ""}, {"GET", "/node", longB, ""}, {"GET", "/history", longB, ""},
		{"GET", "/explain?client=198.51.100.7:40000&vip=192.0.2.1:80:tcp", longB, ""},
		{"POST", "/backends/1/drain", longA, ""}, {"POST", "/backends/1/undrain", longA, "{}"}, {"POST", "/backends/1/weight", longA, `{"weight": 3}`},
	} {
		n.call(step.method, step.path, step.key, step.body).Want(200)
	}
	single := start(t, "interface: eth0\nvips: [{address: 192.0.2.1, port: 80}]")
	single.call("GET", "/status", longB, "").Want(200)
	for _, op := range n.service.shell.Contract().Operations() {
		path := strings.ReplaceAll(op.Path, "{id}", "1")
		for _, stranger := range []string{"", longC} {
			a := n.call(op.Method, path, stranger, "{}")
			a.Refused(401, "unauthenticated", "")
			if a.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: %v", a.What, a.Header)
			}
		}
		if op.Access != AccessAdmin {
			continue
		}
		if op.Audit == "" {
			t.Errorf("%s is for admins and leaves no audit line", op.ID)
		}
		n.call(op.Method, path, longB, "{}").Refused(403, "denied", "")
		for _, want := range []string{"user=ops role=admin", "user=key-1 role=readonly"} {
			lines := slices.DeleteFunc(n.log.lines("api change"), func(l string) bool {
				return !strings.Contains(l, want) || !strings.Contains(l, "path="+lbapi.BasePath+path+" ")
			})
			if len(lines) != 1 || !strings.Contains(lines[0], "method=POST") ||
				!strings.Contains(lines[0], "remote=127.0.0.1:") ||
				!strings.Contains(
					lines[0], map[bool]string{true: "status=200", false: "status=403"}[strings.Contains(want, "admin")],
				) {
				t.Errorf("%s: audit lines %q", op.ID, lines)
			}
		}
	}
	missing := slices.DeleteFunc(
		n.recorder.Missing("open", AccessBearer), func(m string) bool { return m == "GetStatus: no success" },
	)
	if len(missing) > 0 {
		t.Errorf("never seen:\n%s\nseen:\n%s", strings.Join(missing, "\n"), n.recorder.Report())
	}
	text := n.send("GET", "/metrics", "", "", "").Want(200).Body
	for _, want := range []string{`lb_api_auth_failures_total{reason="unauthenticated"} 18`, `lb_api_auth_failures_total{reason="forbidden"} 3`,
		`lb_api_changes_total{code="200",user="ops"} 3`, `lb_api_changes_total{code="403",user="key-1"} 3`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, grep(text, "lb_api"))
		}
	}
	for _, secret := range []string{longA, longB, longC, "hunter2"} {
		if lines := n.log.lines(secret); len(lines) > 0 {
			t.Errorf("a secret is logged: %q", lines)
		}
	}
}

// grep are the lines with a text in them.
func grep(text, with string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, with) {
			out.WriteString(line)
		}
	}
	return out.String()
}

func TestVIPsAreShownWithTheirBackendsAndCounters(t *testing.T) {
	t.Parallel()
	n := start(t, unchecked)
	one, web := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.1")
	key := func(port uint16) datapath.VIPKey {
		return datapath.VIPKey{Address: web, Port: port, LastPort: port, Protocol: datapath.TCP}
	}
	backend := datapath.BackendKey{Address: one, Port: 80}
	n.plane.set(func() {
		n.plane.counters = datapath.Counters{
			VIPs: map[datapath.VIPKey]datapath.VIPCounters{
				key(80): {Packets: 10, Bytes: 1000, Flows: 2, DroppedRateLimited: 3, DroppedNoBackend: 4, Unserved: 5},
			},
			Backends: map[datapath.VIPKey]map[datapath.BackendKey]datapath.BackendCounters{
				key(80): {backend: {Packets: 6, Bytes: 600}}, key(81): {backend: {Packets: 1, Bytes: 100}}},
			Drops:     map[string]uint64{"malformed": 7, "no_backend": 4},
			Flows:     9,
			Evictions: 8,
		}
	})
	vips := contracttest.As[[]lbapi.VIP](n.call("GET", "/vips", longB, "").Want(200))
	if len(vips) != 3 {
		t.Fatalf("%+v", vips)
	}
	v := vips[0]
	if v.Name != "192.0.2.1:80:tcp" || v.VipAddress != "192.0.2.1" || v.VipPort != 80 || v.VipPortEnd != nil || v.Protocol != "tcp" || v.Mode != "nat" || v.Interface != "eth0" || v.StartedAt.IsZero() ||
		v.Packets != 10 || v.Bytes != 1000 || v.Flows != 2 || v.Dropped != 11 || v.DroppedRateLimited != 3 ||
		v.DroppedNoBackend != 4 ||
		v.Unserved != 5 ||
		!v.Announced ||
		fmt.Sprint(v.BgpCommunities, v.BgpPeers) != "[65001:100 no-export] [10.0.0.254]" {
		t.Errorf("%+v", v)
	}
	want := lbapi.Backend{
		Id:      1,
		Address: "10.0.0.1",
		Port:    80,
		Weight:  5,
		Healthy: true,
		State:   "healthy",
		Detail:  "not checked",
		Packets: 7,
		Bytes:   700,
	}
	if v.Backends[0] != want || vips[2].Backends[0].Packets != 7 || vips[2].Backends[0].Id != 1 {
		t.Errorf("%+v\n%+v", v.Backends[0], vips[2].Backends[0])
	}
	if r := vips[1]; r.Name != "[2001:db8::1]:8000:tcp" || r.VipPort != 8000 || r.VipPortEnd == nil ||
		*r.VipPortEnd != 8100 ||
		r.Backends[0].Port != 0 {
		t.Errorf("%+v", r)
	}
	rows := contracttest.As[[]lbapi.BackendRow](n.call("GET", "/backends", longB, "").Want(200))
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprint(r.Vip, " ", r.Id))
	}
	if strings.Join(
		got, ", ",
	) != "192.0.2.1:80:tcp 1, 192.0.2.1:80:tcp 2, [2001:db8::1]:8000:tcp 3, 192.0.2.1:81:tcp 1" {
		t.Errorf("%q", got)
	}
	node := contracttest.As[lbapi.Node](n.call("GET", "/node", longB, "").Want(200))
	if node.Interface != "eth0" || node.XdpMode != "generic" || !node.Attached || node.XdpModeAttached != "generic" || node.Drops["malformed"] != 7 || node.Flows.Entries != 9 || node.Flows.Evictions != 8 ||
		len(node.Bgp) != 1 || node.Bgp[0].Peer != "10.0.0.254" || node.NotReady != "" ||
		node.Config.Path != n.path ||
		node.Config.Error != "" ||
		node.Config.ErrorAt != nil {
		t.Errorf("%+v", node)
	}
	metrics := n.send("GET", "/metrics", "", "", "").Want(200).Body
	for _, want := range []string{
		`lb_vip_packets_total{vip="192.0.2.1:80:tcp"} 10`, `lb_vip_bytes_total{vip="192.0.2.1:80:tcp"} 1000`, `lb_vip_flows_total{vip="192.0.2.1:80:tcp"} 2`,
		`lb_vip_dropped_total{reason="no_backend",vip="192.0.2.1:80:tcp"} 4`, `lb_backend_packets_total{backend="10.0.0.1:80",vip="192.0.2.1:80:tcp"} 6`,
		`lb_backend_bytes_total{backend="10.0.0.1:80",vip="192.0.2.1:81:tcp"} 100`, `lb_backend_state{backend="10.0.0.1:80",state="healthy",vip="192.0.2.1:80:tcp"} 1`,
		`lb_backend_state{backend="10.0.0.1:80",state="down",vip="192.0.2.1:80:tcp"} 0`, `lb_conntrack_entries 9`, `lb_conntrack_evictions_total 8`, `lb_drops_total{reason="malformed"} 7`,
		`lb_bgp_session_up{peer="10.0.0.254"} 1`, `lb_xdp_mode{mode="generic"} 1`, `lb_xdp_mode{mode="native"} 0`, `lb_config_last_reload_successful 1`, `lb_apply_errors_total 0`, `lb_probe_duration_seconds_count 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in\n%s", want, grep(metrics, "lb_"))
		}
	}
}

func TestTheGuideExplainsEveryMetric(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "services", "lb.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, unchecked)
	n.call("POST", "/backends/1/drain", longA, "").Want(200) // counted by caller, so there is none before
	told := 0
	for line := range strings.Lines(n.send("GET", "/metrics", "", "", "").Want(200).Body) {
		name, ours := strings.CutPrefix(line, "# TYPE lb_")
		if !ours {
			continue
		}
		told++
		if name, _, _ = strings.Cut(name, " "); !strings.Contains(string(guide), "`lb_"+name+"`") {
			t.Errorf("docs/services/lb.md does not name lb_%s", name)
		}
	}
	if told < 17 {
		t.Errorf("only %d metrics were found", told)
	}
}

func TestChangesAreAnsweredWithTheBackendsRows(t *testing.T) {
	t.Parallel()
	n := start(t, unchecked)
	rows := contracttest.As[[]lbapi.BackendRow](n.call("POST", "/backends/1/drain", longA, "").Want(200))
	if len(rows) != 2 || rows[0].State != "draining" || !rows[0].AdminDraining || !rows[0].Healthy ||
		rows[1].State != "draining" ||
		rows[1].Vip != "192.0.2.1:81:tcp" {
		t.Errorf("%+v", rows)
	}
	n.service.SetOrchestratorDrains("kubernetes", []datapath.BackendKey{
		{Address: netip.MustParseAddr("10.0.0.1")},
		{Address: netip.MustParseAddr("fd00::1"), Port: 8080},
	})
	rows = contracttest.As[[]lbapi.BackendRow](n.call("POST", "/backends/1/undrain", longA, "").Want(200))
	if rows[0].State != "draining" || rows[0].AdminDraining {
		t.Errorf("%+v", rows)
	}
	if d := contracttest.As[lbapi.Node](n.call("GET", "/node", longB, "")).OrchestratorDrains; fmt.Sprint(
		d,
	) != "[{[10.0.0.1:0 [fd00::1]:8080] kubernetes}]" {
		t.Errorf("%v", d)
	}
	rows = contracttest.As[[]lbapi.BackendRow](
		n.call("POST", "/backends/1/weight", longA, `{"weight": 1000, "vip": "192.0.2.1:80:tcp"}`).Want(200),
	)
	if rows[0].Weight != 1000 || !rows[0].WeightOverridden || rows[1].Weight != 1 || rows[1].WeightOverridden {
		t.Errorf("%+v", rows)
	}
	n.call("POST", "/backends/3/weight", longA, `{"weight": 2, "vip": "2001:db8::1:8000:tcp"}`).Want(200)
	rows = contracttest.As[[]lbapi.BackendRow](n.call("POST", "/backends/1/weight", longA, `{"weight": 0, "extra": true}`).Want(200))
	if rows[0].Weight != 5 {
		t.Errorf("%+v", rows)
	}
}

func TestRequestsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	n := start(t, unchecked)
	for _, tt := range []struct {
		path, body, code, field string
		status                  int
	}{
		{"/backends/9/drain", "", "not_found", "", 404},
		{"/backends/0/drain", "", "not_found", "", 404},
		{"/backends/x/undrain", "", "not_found", "", 404},
		{"/backends/01/drain", "", "not_found", "", 404},
		{"/backends/+1/drain", "", "not_found", "", 404},
		{"/backends/%2B1/drain", "", "not_found", "", 404},
		{"/backends/99999999999999999999/weight", `{"weight":1}`, "not_found", "", 404},
		{"/backends/1/drain", "[]", "invalid", "", 400},
		{"/backends/1/drain", "null", "invalid", "", 400},
		{"/backends/1/drain", "{", "invalid", "", 400},
		{"/backends/1/weight", "", "invalid", "", 400},
		{"/backends/1/weight", "7", "invalid", "", 400},
		{"/backends/1/weight", "{}", "invalid", "weight", 400},
		{"/backends/1/weight", `{"weight":1001}`, "invalid", "weight", 400},
		{"/backends/1/weight", `{"weight":-1}`, "invalid", "weight", 400},
		{"/backends/1/weight", `{"weight":1.5}`, "invalid", "weight", 400},
		{"/backends/1/weight", `{"weight":"1"}`, "invalid", "weight", 400},
		{"/backends/1/weight", `{"weight":1,"vip":"x"}`, "invalid", "vip", 400},
		{"/backends/1/weight", `{"weight":1,"vip":""}`, "invalid", "vip", 400},
		{"/backends/1/weight", `{"weight":1,"vip":"[2001:db8::1]:8000:tcp"}`, "vip_not_found", "", 404},
		{"/backends/1/weight", `{"weight":1,"pad":"` + strings.Repeat("x", maxBody) + `"}`, "too_large", "", 413},
	} {
		n.call("POST", tt.path, longA, tt.body).Refused(tt.status, tt.code, tt.field)
	}
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"} {
		n.send("POST", "/api/v1/backends/1/drain", longA, "{}", contentType).Refused(415, "unsupported_media_type", "")
		n.send("POST", "/api/v1/backends/1/drain", longB, "{}", contentType).Refused(403, "denied", "")
	}
	n.send("POST", "/api/v1/backends/1/drain", longA, "{}", "application/json; charset=utf-8").Want(200)
	for query, field := range map[string]string{
		"": "client", "?client=1.2.3.4:5": "vip", "?client=x&vip=192.0.2.1:80:tcp": "client", "?client=1.2.3.4:5&vip=x": "vip",
		"?client=1.2.3.4:5&vip=[2001:db8::1]:8000:tcp": "client", "?client=[fe80::1%25eth0]:5&vip=[2001:db8::1]:8000:tcp": "client",
	} {
		n.call("GET", "/explain"+query, longA, "").Refused(400, "invalid", field)
	}
	n.call("GET", "/status", longA, "").Refused(409, "not_one_vip", "")
	if a := n.call("GET", "/status", longA, ""); !strings.Contains(a.Body, "/api/v1/vips") {
		t.Errorf("%s", a.Body)
	}
	n.send("GET", "/nonsense", "", "", "").Refused(404, "not_found", "")
	n.send("DELETE", "/api/v1/vips", longA, "", "").Refused(405, "method_not_allowed", "")
}

func TestAFlowIsExplained(t *testing.T) {
	t.Parallel()
	n := start(t, unchecked)
	e := contracttest.As[lbapi.Explanation](
		n.call("GET", "/explain?client=[2001:db8::7]:4000&vip=[2001:db8::1]:8050:tcp", longB, "").Want(200),
	)
	if want := (lbapi.Explanation{Vip: "[2001:db8::1]:8000:tcp", Reason: "hash", Backend: "[fd00::1]:0", Slot: 7, Slots: 65537, Hashed: "[fd00::1]:0"}); e != want {
		t.Errorf("%+v", e)
	}
	e = contracttest.As[lbapi.Explanation](
		n.call("GET", "/explain?client=198.51.100.7:4000&vip=192.0.2.1:99:tcp", longB, "").Want(200),
	)
	if want := (lbapi.Explanation{Reason: "no-vip"}); e != want {
		t.Errorf("%+v", e)
	}
}

func TestListsAreEmptyAndNeverNull(t *testing.T) {
	t.Parallel()
	n := start(t, "interface: eth0")
	for _, path := range []string{"/vips", "/backends"} {
		if a := n.call("GET", path, longB, "").Want(200); strings.TrimSpace(a.Body) != "[]" {
			t.Errorf("%s: %s", path, a.Body)
		}
	}
	n.call("GET", "/status", longB, "").Refused(409, "not_one_vip", "")
	bare := start(t, "interface: eth0\nvips: [{address: 192.0.2.1, port: 80}]")
	for n, paths := range map[*node][]string{n: {"/node"}, bare: {"/vips", "/status"}} {
		for _, path := range paths {
			if a := n.call("GET", path, longB, "").Want(200); strings.Contains(
				strings.ReplaceAll(a.Body, `"errorAt":null`, ""),
				"null",
			) {
				t.Errorf("%s: %s", path, a.Body)
			}
		}
	}
}

func TestHealthAndMetricsNeedNoKeyAndReadinessFollowsTheKernel(t *testing.T) {
	t.Parallel()
	n := start(t, unchecked)
	n.send("GET", "/healthz", "", "", "").Want(200)
	if a := n.send("GET", "/readyz", "", "", "").Want(200); !strings.Contains(a.Body, "XDP (generic) on eth0") {
		t.Error(a.Body)
	}
	n.plane.set(func() { n.plane.countersErr = errors.New("bad map") })
	n.send("GET", "/readyz", "", "", "").Refused(503, "not_ready", "")
	n.send("GET", "/healthz", "", "", "").Want(200)
	n.send("GET", "/metrics", "", "", "").Want(200)
	n.call("GET", "/vips", longB, "").Want(200)
}

func TestWithoutKeysEverybodyIsAdmin(t *testing.T) {
	t.Parallel()
	n := start(t, unchecked, func(cfg *Config, _ *Deps) { cfg.APIKey, cfg.APIReadonlyKey = "", "" })
	n.call("GET", "/vips", "", "").Want(200)
	n.call("POST", "/backends/1/drain", longC, "").Want(200)
	if lines := n.log.lines("api change"); len(lines) != 1 || !strings.Contains(lines[0], "user=anonymous role=admin") {
		t.Errorf("%q", lines)
	}
}

func TestAChangedFileIsInForceAndABadOneIsShown(t *testing.T) {
	t.Parallel()
	reload := make(chan struct{})
	n := start(
		t, "interface: eth0\nvips: [{address: 192.0.2.1, port: 80}]", func(_ *Config, d *Deps) { d.Reload = reload },
	)
	write := func(text string) {
		if err := os.WriteFile(n.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		reload <- struct{}{}
	}
	write(unchecked)
	n.eventually(
		"the new VIPs are there", func() bool { return len(contracttest.As[[]lbapi.VIP](n.call("GET", "/vips", longA, ""))) == 3 },
	)
	write("interface: eth1")
	n.eventually("the error is shown", func() bool {
		c := contracttest.As[lbapi.Node](n.call("GET", "/node", longA, "")).Config
		return strings.Contains(c.Error, "restart") && c.ErrorAt != nil
	})
	if len(contracttest.As[[]lbapi.VIP](n.call("GET", "/vips", longA, ""))) != 3 {
		t.Error("a file that is refused changed something")
	}
	if !strings.Contains(n.send("GET", "/metrics", "", "", "").Body, "lb_config_last_reload_successful 0") ||
		len(n.log.lines("the configuration is refused")) != 1 {
		t.Error("it is not told")
	}
}

func TestSettingsThatDoNotFitTogetherStopTheStart(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"config: is required":                           func(c *Config) { c.ConfigFile = "" },
		"cannot read":                                   func(c *Config) { c.ConfigFile = "/nonexistent" },
		"listen: must be HOST:PORT":                     func(c *Config) { c.Listen = "x" },
		"metrics-listen: must end with a port":          func(c *Config) { c.MetricsListen = ":x" },
		"tls-key: must be given together with tls-cert": func(c *Config) { c.TLSCert = "a" },
		"tls-self-signed: cannot be combined":           func(c *Config) { c.TLSCert, c.TLSKey, c.TLSSelfSigned = "a", "b", true },
		"tls-client-ca: needs TLS":                      func(c *Config) { c.TLSClientCA = "ca" },
		"tls-client-required: needs tls-client-ca":      func(c *Config) { c.TLSSelfSigned, c.ClientRequired = true, true },
		"api-cert-admin-cns: needs tls-client-ca":       func(c *Config) { c.CertAdminCNs = []string{"ops"} },
		"api-readonly-key: needs api-key":               func(c *Config) { c.APIKey = "" },
		"access-log: must be":                           func(c *Config) { c.AccessLog = "some" },
	} {
		cfg := defaults(t, unchecked)
		change(&cfg)
		if _, err := New(
			cfg, Deps{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: time.Now},
		); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
