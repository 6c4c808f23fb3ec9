//go:build linux

package hypervisor_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/db/dbtest"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// usageRows counts the stored minutes.
func usageRows(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	if err := d.Get(t.Context(), &n, "SELECT count(*) FROM vm_minutes"); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheUsageOfVMsIsAddedUpByMinuteAndKeptForAWeek(t *testing.T) {
	t.Parallel()
	migrations := dbtest.Migrations{}
	for _, m := range hypervisor.Migrations() {
		migrations[m.Owner] = m.Files
	}
	dbtest.Each(t, migrations, func(t *testing.T, d *db.DB) {
		began := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
		now := began.Add(time.Hour)
		store := record.New(record.Config{DB: d, Now: func() time.Time { return now }})
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			for i, id := range []string{"one", "two"} {
				if err := tx.Insert(t.Context(), "vms", record.VM{
					ID: id, Name: id, Tenant: "acme", Slot: i, CreatedAt: db.At(began),
				}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		sample := func(id string, after time.Duration, n int64) record.UsageSample {
			return record.UsageSample{
				VM: id, At: began.Add(after), Measured: 10 * time.Second, CPU: time.Duration(n) * time.Second,
				MemoryBytes: n << 30, DiskReadBytes: n, DiskWrittenBytes: 2 * n, NetReceivedBytes: 3 * n, NetSentBytes: 4 * n,
			}
		}
		if err := store.AddUsage(t.Context(), []record.UsageSample{
			sample("one", 0, 1), sample("one", 59*time.Second, 2), sample("one", 3*time.Minute, 4),
			sample("two", 0, 100), sample("gone", 0, 100),
		}); err != nil {
			t.Fatal(err)
		}
		as := func(tenant string) context.Context { return shell.As(t.Context(), caller.Caller{Tenant: tenant}) }
		read := func(w series.Window) (out []string) {
			steps, err := store.UsageHistory(as("acme"), "one", w)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range steps {
				out = append(out, fmt.Sprintf(
					"%g: %d in %d of %d s, %d GiB, %d %d %d %d", u.At.Sub(began).Minutes(), u.CPUUS/1e6, u.Samples, u.MeasuredUS/1e6,
					u.MemoryBytes>>30, u.DiskReadBytes, u.DiskWrittenBytes, u.NetReceivedBytes, u.NetSentBytes,
				))
			}
			return out
		}
		hour := series.Window{From: began, To: began.Add(time.Hour), Step: time.Minute}
		if got := fmt.Sprint(read(hour)); got != "[0: 3 in 2 of 20 s, 3 GiB, 3 6 9 12 3: 4 in 1 of 10 s, 4 GiB, 4 8 12 16]" {
			t.Error(got)
		}
		if _, err := store.UsageHistory(as("other"), "one", hour); !fault.Is(err, fault.NotFound) {
			t.Errorf("another tenant's VM: %v", err)
		}
		// What is too old is neither shown nor kept.
		hour.Step = 5 * time.Minute
		for range 2 {
			now = began.Add(2*time.Minute + record.KeepUsage)
			if got := fmt.Sprint(read(hour)); got != "[0: 4 in 1 of 10 s, 4 GiB, 4 8 12 16]" {
				t.Error(got)
			}
			if err := store.ExpireUsage(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := usageRows(t, d); n != 1 {
			t.Errorf("%d rows are kept", n)
		}
		if err := store.Forget(caller.ByItself(t.Context()), "one"); err != nil {
			t.Fatal(err)
		}
		if n := usageRows(t, d); n != 0 {
			t.Errorf("%d rows of a VM that is gone", n)
		}
	})
}

func TestTheHistoryOfAVMOutlivesTheDaemonAndGoesWithTheVM(t *testing.T) {
	t.Parallel()
	required := usualDocument + "[auth]\nrequire = true\n"
	d := start(t, required+"open_metrics = true\n")
	vm := d.deaf(acmeToken, "one", nil)
	path := "/v1/vms/" + vm.Id + "/history"
	history := func() hypervisorapi.VMHistory {
		return contracttest.As[hypervisorapi.VMHistory](d.call("GET", path, acmeToken, nil).Want(200))
	}
	if h := history(); h.StepSeconds != 60 || !h.From.Before(h.Now) || h.To.Before(h.Now) || len(h.Points) > 1 {
		t.Errorf("a new VM: %+v", h)
	}
	for deadline := time.Now().Add(time.Minute); len(history().Points) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the VM is not measured")
		}
		time.Sleep(100 * time.Millisecond) // the daemon measures in its own time
	}
	if a := d.call("GET", "/metrics", "", nil).Want(200); strings.Contains(a.Body, "hypervisor_vm_memory_bytes") {
		t.Error("VMs' names are in metrics that everybody can read")
	}
	d.call("GET", path, otherToken, nil).Refused(404, "not_found", "")
	for query, field := range map[string]string{"points=1": "points", "since=yesterday": "since", "since=2199-01-01T00:00:00Z": "since"} {
		d.call("GET", path+"?"+query, acmeToken, nil).Refused(400, "invalid", field)
	}
	d.restart(func() {
		if err := os.WriteFile(d.cfg.ConfigFile, []byte(required), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	named := fmt.Sprintf(`hypervisor_vm_memory_bytes{name="one",tenant="acme",vm=%q}`, vm.Id)
	for deadline := time.Now().Add(time.Minute); !strings.Contains(d.call("GET", "/metrics", adminToken, nil).Want(200).Body, named); {
		if time.Now().After(deadline) {
			t.Fatalf("the metrics of a daemon that requires credentials have no %s", named)
		}
		time.Sleep(100 * time.Millisecond) // the daemon measures in its own time
	}
	h := history()
	if len(h.Points) == 0 || h.Points[0].MemoryBytes < 1<<20 || h.Points[0].CpuPercent < 0 {
		t.Errorf("after a restart: %+v", h)
	}
	week := url.Values{"since": {time.Now().Add(-7 * 24 * time.Hour).Format(time.RFC3339)}, "points": {"200"}}
	if h := contracttest.As[hypervisorapi.VMHistory](d.call("GET", path+"?"+week.Encode(), acmeToken, nil).Want(200)); h.StepSeconds != 3600 ||
		len(h.Points) == 0 {
		t.Errorf("a week: %+v", h)
	}
	d.call("DELETE", "/v1/vms/"+vm.Id, acmeToken, nil).Want(204)
	d.call("GET", path, acmeToken, nil).Want(404)
	d.restart(func() {
		left, err := db.Open(t.Context(), db.Config{Path: filepath.Join(d.cfg.Data, "state", "hypervisor.db")})
		if err != nil {
			t.Fatal(err)
		}
		if n := usageRows(t, left); n != 0 {
			t.Errorf("%d minutes of a VM that is deleted are kept", n)
		}
		if err := left.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
