package app

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/service/lb/configfile"
)

// runCommand runs one of the commands of this package.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	for _, cmd := range Commands() {
		if cmd.Name() != args[0] {
			continue
		}
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(args[1:])
		cmd.SilenceErrors = true
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	t.Fatalf("there is no command %s", args[0])
	return "", nil
}

func TestADocumentIsCheckedWithoutAService(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lb.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("interface: eth0\nvips: [{address: 192.0.2.1, ports: [80, 443], backends: [{address: 10.0.0.1}]}]")
	if out, err := runCommand(t, "lb", "check", path); err != nil ||
		!strings.Contains(out, "is valid: 2 VIPs, 2 backends, interface eth0") {
		t.Errorf("%v %s", err, out)
	}
	write("interface: eth0\nvip: []")
	if _, err := runCommand(t, "lb", "check", path); err == nil ||
		!strings.Contains(err.Error(), "vip: unknown key; did you mean vips? (line 2)") {
		t.Errorf("%v", err)
	}
}

func TestTheLoadBalancerNeedsADocument(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--log-level=info", "--detach"} {
		if _, err := runCommand(t, "serve", "lb", flag); err == nil ||
			!strings.Contains(err.Error(), "config: is required") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if _, err := runCommand(t, "serve", "lb", "--config", "/nonexistent.yaml"); err == nil ||
		!strings.Contains(err.Error(), "cannot read /nonexistent.yaml") {
		t.Errorf("%v", err)
	}
}

func TestDevModeMakesAValidDocumentAndLeavesItAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mode := devMode{
		environ:     []string{"LB_LISTEN=127.0.0.1:1"},
		data:        dir,
		host:        "127.0.0.1",
		credentials: newLBCredentials(),
	}
	cfg, err := devLBConfig(mode)
	if err != nil {
		t.Fatal(err)
	}
	document, err := configfile.Load(cfg.ConfigFile)
	if err != nil || document.Interface == "" || len(document.VIPs) != 0 {
		t.Errorf("%v %+v", err, document)
	}
	if cfg.Listen != "127.0.0.1:1" || cfg.MetricsListen != "127.0.0.1:9871" || cfg.APIKey == "" ||
		cfg.APIReadonlyKey == "" {
		t.Errorf("%q %q", cfg.Listen, cfg.MetricsListen)
	}
	if err := os.WriteFile(cfg.ConfigFile, []byte("interface: mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := devLBConfig(mode); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(cfg.ConfigFile); err != nil || string(raw) != "interface: mine" {
		t.Errorf("%v %s", err, raw)
	}
	// The example in the comment is valid too.
	_, example, _ := strings.Cut(devDocument, "# Instead, for example:\n")
	text := "interface: eth0\n" + strings.ReplaceAll("\n"+example, "\n# ", "\n")
	if c, err := configfile.Parse([]byte(text)); err != nil || len(c.VIPs) != 1 || len(c.VIPs[0].Backends) != 2 {
		t.Errorf("%v", err)
	}
}

func TestTheInterfaceOfTheDefaultRouteIsFound(t *testing.T) {
	t.Parallel()
	const header = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	for routes, want := range map[string]string{
		"": "lo", header: "lo",
		header + "eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\nens3\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n": "ens3",
		header + "tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n":                                                             "lo",
	} {
		if got := interfaceOf(bufio.NewScanner(strings.NewReader(routes))); got != want {
			t.Errorf("%q: %s", routes, got)
		}
	}
}
