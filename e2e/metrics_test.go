package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

var (
	devServices = regexp.MustCompile(`(?m)^  (edge|lb|hypervisor|vm|storage) +(http://\S+)`)
	familyName  = regexp.MustCompile(`(?m)^# TYPE (\S+) `)
	labelName   = regexp.MustCompile(`[{,]([a-z_]+)="`)
)

// unbounded are labels whose values a client could choose, so that the number of series would have no
// bound.
var unbounded = []string{"id", "path", "url", "address", "ip", "message", "token", "query"}

// Operators build dashboards and alerts on metrics, so these are named as Prometheus asks, each is in
// the service's guide, and none has a label without bounds.
func TestMetricsAreNamedAsPrometheusAsksAndInTheGuides(t *testing.T) {
	t.Parallel()
	p := launch(
		t, []string{
			"EDGE_LISTEN=127.0.0.1:0", "LB_LISTEN=127.0.0.1:0", "LB_METRICS_LISTEN=127.0.0.1:0", "HYPERVISOR_LISTEN=127.0.0.1:0", "VM_LISTEN=127.0.0.1:0",
			"STORE_LISTEN=127.0.0.1:0", "STORE_GRPC_ADDR=127.0.0.1:0", "HYPERVISOR_TOKEN=", "HYPERVISOR_REGISTRY=",
		}, "dev", "--data", filepath.Join(t.TempDir(), "state"),
	)
	t.Cleanup(p.stop)
	if _, ok := p.awaitOutput(regexp.MustCompile(`(?m)^Try in another terminal`)); !ok {
		t.Fatalf("dev mode did not start:\n%s", p.output)
	}
	checked := 0
	for _, m := range devServices.FindAllStringSubmatch(p.output.String(), -1) {
		checkMetrics(t, m[1], http.DefaultClient, m[2])
		checked++
	}
	if checked != 5 {
		t.Errorf("the metrics of %d services were checked:\n%s", checked, p.output)
	}

	data := t.TempDir()
	agent := launch(
		t, []string{"AGENT_ENROLLMENT_TOKEN=none-that-is-valid"},
		"agent", "--server", "http://127.0.0.1:1", "--data", data, "--listen", "", "--podman-socket", "",
	)
	t.Cleanup(agent.stop)
	socket := filepath.Join(data, "agent.sock")
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	// The file is there a moment before anybody listens.
	eventually(t, "the agent listens", func() bool {
		c, err := dial(t.Context(), "", "")
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	checkMetrics(t, "agent", &http.Client{Transport: &http.Transport{DialContext: dial}}, "http://agent")
}

func checkMetrics(t *testing.T, service string, client *http.Client, url string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", service, res.StatusCode, err)
	}
	text := string(raw)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatalf("%s: %v", service, err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s: %s", service, problem.Metric, problem.Text)
	}
	guide, err := os.ReadFile(filepath.Join("..", "docs", "services", service+".md"))
	if err != nil {
		t.Fatal(err)
	}
	families := familyName.FindAllStringSubmatch(text, -1)
	if len(families) < 30 {
		t.Errorf("%s has %d metrics only", service, len(families))
	}
	for _, f := range families {
		name := f[1]
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_") {
			continue // of the Go runtime and the client library, known to everybody
		}
		if !strings.Contains(string(guide), "`"+name) {
			t.Errorf("%s: docs/services/%s.md does not tell of the metric %s", service, service, name)
		}
	}
	for line := range strings.Lines(text) {
		for _, label := range labelName.FindAllStringSubmatch(line, -1) {
			for _, name := range unbounded {
				if label[1] == name {
					t.Errorf("%s: a label without bounds: %s", service, line)
				}
			}
		}
	}
}
