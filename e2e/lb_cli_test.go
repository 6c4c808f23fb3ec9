//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
)

func TestLoadBalancerIsOperatedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 2, "nat")
	for _, b := range n.backends {
		b.listen(80)
	}
	d := newLB(
		t,
		n.balancer,
		lbDocument([]lbVIP{
			{address: "10.99.9.9", port: 80, backends: n.backends},
			{address: "10.99.9.10", port: 80, backends: n.backends},
		}),
	)
	d.env = append(d.env, "LB_API_READONLY_KEY="+lbReadonlyKey)
	d.start()
	d.healthy()
	c := n.connect("tcp", "10.99.9.9:80")
	at := map[string]string{"b1": "10.99.0.11:80", "b2": "10.99.0.12:80"}[c.home]
	keyFile := filepath.Join(t.TempDir(), "key")
	n.must(os.WriteFile(keyFile, []byte(lbAdminKey+"\n"), 0o600))

	// As a user would continue, one after the other.
	for _, step := range []struct {
		key  string
		args string
		code int
		says []string // parts of lines; columns are divided by one blank
	}{
		{lbAdminKey, "vip list", 0, []string{"VIP PORTS MODE HEALTHY FLOWS", "10.99.9.9:80:tcp 80 nat 2 of 2 1 ", "10.99.9.10:80:tcp 80 nat 2 of 2 0 "}},
		{lbAdminKey, "backend list", 0, []string{"ID BACKEND VIP STATE WEIGHT", "1 10.99.0.11:80 10.99.9.9:80:tcp healthy 1 ", "2 10.99.0.12:80 10.99.9.10:80:tcp healthy 1 ", "connected"}},
		{"", "backend list --token-file " + keyFile, 0, []string{"1 10.99.0.11:80 "}},
		{lbAdminKey, "explain " + c.LocalAddr().String() + " 10.99.9.9:80", 0, []string{"10.99.9.9:80:tcp sends it to " + at + ", where the flow is already"}},
		{lbAdminKey, "explain 10.99.0.1:1 10.99.9.9:80:tcp", 0, []string{"it is a new flow, and its hash is slot "}},
		{lbAdminKey, "explain 10.99.0.1:1 10.99.9.9:81", 0, []string{"No VIP has this address, port and protocol"}},
		{lbAdminKey, "backend drain 10.99.0.11:80", 0, []string{"1 10.99.0.11:80 10.99.9.9:80:tcp draining (operator) 1 ", "1 10.99.0.11:80 10.99.9.10:80:tcp draining (operator) 1 "}},
		{lbAdminKey, "vip list", 0, []string{"10.99.9.9:80:tcp 80 nat 1 of 2 "}},
		{lbAdminKey, "backend undrain 1", 0, []string{"1 10.99.0.11:80 10.99.9.9:80:tcp healthy 1 "}},
		{lbAdminKey, "backend weight 2 7 --vip 10.99.9.9:80:tcp", 0, []string{"2 10.99.0.12:80 10.99.9.9:80:tcp healthy 7 (override) ", "2 10.99.0.12:80 10.99.9.10:80:tcp healthy 1 "}},
		{lbAdminKey, "backend weight 10.99.0.12:80 0", 0, []string{"2 10.99.0.12:80 10.99.9.9:80:tcp healthy 1 "}},
		{lbReadonlyKey, "node", 0, []string{"Interface eth0, attached as generic (asked for: generic)", "Ready yes", "Configuration " + d.file}},
		{lbReadonlyKey, "backend list", 0, []string{"1 10.99.0.11:80 "}},

		{lbReadonlyKey, "backend drain 1", 4, []string{"may only read", "the key is a read-only one"}},
		{"", "vip list", 4, []string{"this needs credentials", "LB_API_KEY"}},
		{lbOtherKey, "vip list", 4, []string{"not one of this load balancer's", "LB_API_KEY"}},
		{lbAdminKey, "backend drain 99", 3, []string{"no backend has the id 99"}},
		{lbAdminKey, "backend drain 10.99.0.13:80", 3, []string{"no backend is at 10.99.0.13:80"}},
		{lbAdminKey, "backend weight 1 5 --vip 10.99.9.99:80:tcp", 3, []string{"does not serve the VIP 10.99.9.99:80:tcp"}},
		{lbAdminKey, "backend drain", 2, []string{"BACKEND is missing"}},
		{lbAdminKey, "backend drain one", 2, []string{"BACKEND must be an id or ADDRESS:PORT"}},
		{lbAdminKey, "backend weight 1 1001", 2, []string{"from 0 to 1000"}},
		{lbAdminKey, "vip list --server nowhere", 2, []string{"--server must be a URL"}},
		{lbAdminKey, "explain nobody 10.99.9.9:80", 1, []string{"must be ADDRESS:PORT"}},
		{lbAdminKey, "vip list --server http://127.0.0.1:1", 5, []string{"connection refused", "mainstay serve lb"}},
		// Earlier names.
		{lbAdminKey, "vips", 0, []string{"10.99.9.9:80:tcp 80 nat 2 of 2 "}},
		{"", "backends --api-key-file " + keyFile, 0, []string{"1 10.99.0.11:80 "}},
		{lbAdminKey, "check " + d.file, 0, []string{"is valid: 2 VIPs, 4 backends, interface eth0."}},
		{lbAdminKey, "check /does/not/exist.yaml", 1, []string{"/does/not/exist.yaml"}},
	} {
		code, output := d.run(step.key, append([]string{"lb"}, strings.Fields(step.args)...)...)
		if code != step.code {
			t.Errorf("lb %s: exit code %d, want %d: %s", step.args, code, step.code, output)
		}
		var lines []string
		for line := range strings.Lines(output) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		text := strings.Join(lines, " \n")
		for _, says := range step.says {
			if !strings.Contains(text, says) {
				t.Errorf("lb %s does not say %q: %s", step.args, says, output)
			}
		}
	}

	// What a program reads is what the API says.
	code, output := d.run(lbAdminKey, "lb", "backend", "list", "-o", "json")
	var rows []lbapi.BackendRow
	if err := json.Unmarshal([]byte(output), &rows); code != 0 || err != nil || len(rows) != 4 {
		t.Errorf("exit code %d, %v: %s", code, err, output)
	}
	n.goesOn("after all of it", c)
}

func TestLoadBalancerCheckTellsAllThatIsWrongWithADocument(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lb.yaml")
	document := `interface: eth0
vips:
- {address: 10.99.9.9, port: 0, backends: [{address: b1, weight: 1001}]}
- {address: 10.99.9.9, portRange: 90-80, protocol: sctp, mode: nat, helthCheck: {type: none}}
`
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	code, output := run(t, nil, "lb", "check", path)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, names := range []string{path, "vips[0].port", "vips[0].backends[0].address", "vips[0].backends[0].weight", "vips[1].portRange", "vips[1].protocol", "vips[1].helthCheck", "did you mean healthCheck?", "(line 4)"} {
		if !strings.Contains(output, names) {
			t.Errorf("it does not name %s: %s", names, output)
		}
	}
}
