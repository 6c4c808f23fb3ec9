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
		if !strings.Contains(got.Body, "are being brought back") {
			return got
		}
		if time.Now().After(deadline) {
			d.Fatalf("%s", got.Body)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestReadinessNamesTheBackendsAndHowQEMURunsGuests(t *testing.T) {
	t.Parallel()
	need(t, "qemu-system-x86_64")
	if got := start(t, "").readiness(); got.Status != 200 || !strings.HasPrefix(got.Body, "ready: qemu (tcg)") {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}

func TestReadinessSaysWhatToInstallWhereNothingRunsVMs(t *testing.T) {
	t.Parallel()
	got := start(t, "", func(cfg *hypervisor.Config) {
		cfg.QEMU, cfg.Runsc, cfg.Firecracker, cfg.CloudHypervisor = "no-qemu", "no-runsc", "no-firecracker", "no-cloud-hypervisor"
	}).readiness()
	if got.Status != 503 || !strings.Contains(got.Body, "apt-get install qemu-system-x86") {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}

func TestMetricsAreForAdminsWhereCredentialsAreRequired(t *testing.T) {
	t.Parallel()
	required := usualDocument + "[auth]\nrequire = true\n"
	d := start(t, required)
	d.call("GET", "/metrics", "", nil).Refused(401, "unauthenticated", "")
	d.call("GET", "/metrics", "wrong-token-000000000", nil).Refused(401, "unauthenticated", "")
	d.call("GET", "/metrics", acmeToken, nil).Refused(403, "denied", "")
	if a := d.call("GET", "/metrics", adminToken, nil).Want(200); !strings.Contains(
		a.Body, "hypervisor_vcpus_given",
	) {
		t.Errorf("%s", a.Body)
	}
	for _, document := range []string{usualDocument, required + "open_metrics = true\n"} {
		start(t, document).call("GET", "/metrics", "", nil).Want(200)
	}
}
