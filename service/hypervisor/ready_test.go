//go:build linux

package hypervisor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor"
)

// readiness is the answer of /readyz once the daemon has looked after the VMs that there are.
func (d *daemon) readiness() answer {
	d.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		got := d.call("GET", "/readyz", "", nil)
		if !strings.Contains(string(got.body), "are being brought back") {
			return got
		}
		if time.Now().After(deadline) {
			d.Fatalf("%s", got.body)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestReadinessNamesTheBackendsAndHowQEMURunsGuests(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64")
	if got := start(t, "").readiness(); got.status != 200 || !strings.HasPrefix(string(got.body), "ready: qemu (tcg)") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestReadinessSaysWhatToInstallWhereNothingRunsVMs(t *testing.T) {
	t.Parallel()
	got := start(t, "", func(cfg *hypervisor.Config) {
		cfg.QEMU, cfg.Runsc, cfg.Firecracker, cfg.CloudHypervisor = "no-qemu", "no-runsc", "no-firecracker", "no-cloud-hypervisor"
	}).readiness()
	if got.status != 503 || !strings.Contains(string(got.body), "apt-get install qemu-system-x86") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestMetricsAreForAdminsWhereCredentialsAreRequired(t *testing.T) {
	t.Parallel()
	required := usualDocument + "[auth]\nrequire = true\n"
	d := start(t, required)
	d.call("GET", "/metrics", "", nil).refused(401, "unauthenticated", "", "")
	d.call("GET", "/metrics", "wrong-token-000000000", nil).refused(401, "unauthenticated", "", "")
	d.call("GET", "/metrics", acmeToken, nil).refused(403, "denied", "", "")
	if a := d.call("GET", "/metrics", adminToken, nil).want(200); !strings.Contains(
		string(a.body), "hypervisor_vcpus_given",
	) {
		t.Errorf("%s", a.body)
	}
	for _, document := range []string{usualDocument, required + "open_metrics = true\n"} {
		start(t, document).call("GET", "/metrics", "", nil).want(200)
	}
}
