package configfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/service/lb/configfile"
)

func TestEachPortOfAListBecomesAVIP(t *testing.T) {
	t.Parallel()
	var got []string
	for _, s := range parse(t, complete).Expand() {
		line := fmt.Sprintf("%s-%d %s", s.VIPKey, s.LastPort, s.Mode)
		for _, e := range s.Endpoints {
			line += fmt.Sprintf(" %s@%s", e.BackendKey, e.Probe)
		}
		got = append(got, line)
	}
	want := []string{
		"192.0.2.1:80:tcp-80 nat 10.0.0.1:8080@10.0.0.1:8081 10.0.0.2:80@10.0.0.2:8081",
		"[2001:db8::1]:8000:udp-8100 dsr-gre 10.0.0.3:0@invalid AddrPort [fd00::3]:0@invalid AddrPort",
		"192.0.2.2:53:tcp-53 dsr 10.0.0.4:53@192.0.2.2:53",
		"192.0.2.2:54:tcp-54 dsr 10.0.0.4:54@192.0.2.2:54",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	s := parse(t, vip("portRange: 80-90, backends: [{address: 10.0.0.1}]")).Expand()
	if probe := s[0].Endpoints[0].Probe.String(); probe != "10.0.0.1:80" {
		t.Errorf("a range is probed at %s", probe)
	}
}

func TestTheReferenceNamesEveryKey(t *testing.T) {
	t.Parallel()
	table := configfile.Markdown()
	for _, want := range []string{
		"| `interface` | text | required |", "| `vips[].healthCheck.interval` | duration | `2s` |", "Allowed: 100ms to 1h.", "| `vips[].backends[].weight` | number | `1` |",
		"| `bgp.peers[].passwordFile` | text |", "| `vips[].ports` | list of numbers |", "| `vips[].healthCheck` | keys |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("lacks %s", want)
		}
	}
	for _, r := range configfile.Reference() {
		if r.Meaning == "" || r.Type == "" {
			t.Errorf("%s is not explained", r.Key)
		}
	}
	// The documentation's copy is made from it.
	guide, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "services", "lb.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), table) {
		t.Error("docs/services/lb.md has another table; run scripts/settings.sh")
	}
}
