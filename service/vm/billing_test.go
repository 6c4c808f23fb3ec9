package vm_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/vm"
	"github.com/mainstay-infra/mainstay/service/vm/driver/drivertest"
)

// used returns what VMs have used since yesterday, of all that the token may see.
func (m *manager) used(token string) []vmapi.UsageRecord {
	m.Helper()
	q := url.Values{
		"from": {m.now().AddDate(0, -2, 0).UTC().Format(time.RFC3339)}, "to": {m.now().Add(24 * time.Hour).UTC().Format(time.RFC3339)},
	}
	return contracttest.As[[]vmapi.UsageRecord](m.call("GET", "/api/billing/usage?"+q.Encode(), token, nil).Want(200))
}

// ran returns for how long VM web has run, as the service counts it.
func (m *manager) ran() time.Duration {
	m.Helper()
	return m.ranOf("web")
}

func (m *manager) ranOf(name string) time.Duration {
	m.Helper()
	for _, u := range m.used(m.admin) {
		if u.VmName == name {
			return time.Duration(math.Round(u.CpuHours*3600e6)) * time.Microsecond
		}
	}
	return -1
}

// untilRan waits until VM web is counted to have run for so long, to the microsecond.
func (m *manager) untilRan(want time.Duration, what string) {
	m.Helper()
	var got time.Duration
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		// Quantities have nine decimal places of an hour, which is 3.6 microseconds.
		if got = m.ran(); (got - want).Abs() <= 4*time.Microsecond {
			return
		}
		if time.Now().After(end) {
			m.Fatalf("%s: it ran %s, want %s", what, got, want)
		}
	}
}

// change changes the database while the service is down.
func (m *manager) change(statements ...string) {
	m.Helper()
	d, err := db.Open(m.Context(), db.Config{URL: m.config.Database, Path: vm.DatabaseFile(m.config.Data), Schema: "vm"})
	if err != nil {
		m.Fatal(err)
	}
	err = d.Update(m.Context(), func(tx *db.Tx) error {
		for _, s := range statements {
			if _, err := tx.Exec(m.Context(), s); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, d.Close()); err != nil {
		m.Fatal(err)
	}
}

func TestRunsCountToTheMicrosecondAndOnceWhateverIsKilledAndReplayed(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.made("web", m.admin)
		m.made("clock", m.admin)
		begin := m.now().Add(time.Hour).Truncate(time.Microsecond)
		m.ahead(10 * time.Hour)
		// untilRead waits until all events are counted that were told before: they are read in order.
		ticks, tick := 0, begin.Add(5*time.Hour)
		untilRead := func() {
			m.Helper()
			ticks++
			m.daemon.Move("clock", hypervisorapi.StateRunning, tick.Add(time.Duration(ticks)*time.Minute))
			m.daemon.Move("clock", hypervisorapi.StateStopped, tick.Add(time.Duration(ticks)*time.Minute+time.Second))
			m.eventually("the events are read", func() bool {
				return (m.ranOf("clock") - time.Duration(ticks)*time.Second).Abs() < time.Millisecond
			})
		}
		// Within the interval of two comparisons: only events tell about it.
		m.daemon.Move("web", hypervisorapi.StateRunning, begin)
		m.daemon.Move("web", hypervisorapi.StatePaused, begin.Add(10*time.Second))
		m.daemon.Move("web", hypervisorapi.StateRunning, begin.Add(20*time.Second))
		m.daemon.Move("web", hypervisorapi.StateStopped, begin.Add(90*time.Second+123456*time.Microsecond))
		want := 90*time.Second + 123456*time.Microsecond
		m.untilRan(want, "a run that is over before anybody looks")

		// While the service is down, a VM runs twice.
		m.stop()
		begin = begin.Add(time.Hour)
		m.daemon.Move("web", hypervisorapi.StateRunning, begin)
		m.daemon.Move("web", hypervisorapi.StateStopped, begin.Add(3*time.Second))
		m.daemon.Move("web", hypervisorapi.StateRunning, begin.Add(5*time.Minute))
		m.daemon.Measured("web", begin.Add(14*time.Minute+50*time.Second))
		m.daemon.Move("web", hypervisorapi.StateStopped, begin.Add(15*time.Minute))
		want += 10*time.Minute + 3*time.Second
		m.begin()
		m.untilRan(want, "runs while the service was down")

		// The service is killed before it has stored that it counted the events.
		for _, cursor := range []string{"0", "3", "5"} {
			m.stop()
			m.change("UPDATE usage_cursors SET event = '" + cursor + "'")
			m.begin()
			untilRead()
			m.untilRan(want, "the events after "+cursor+" are read again")
		}
		m.stop()
		m.change("DELETE FROM usage_cursors")
		m.begin()
		m.untilCompared()
		m.untilRan(want, "the events are forgotten")

		// The host fails ten minutes after a start. The daemon tells that the run ended when it is there again.
		m.stop()
		begin = begin.Add(time.Hour)
		m.daemon.Move("web", hypervisorapi.StateRunning, begin)
		m.daemon.Measured("web", begin.Add(10*time.Minute))
		m.daemon.Move("web", hypervisorapi.StateStopped, begin.Add(50*time.Minute))
		m.begin()
		last := begin.Add(10 * time.Minute).Truncate(time.Minute)
		m.untilRan(want+last.Sub(begin), "a run that ended while the daemon was down")
	})
}

// untilCompared waits until the VMs were compared with the daemon's, and counted, at least twice.
func (m *manager) untilCompared() {
	m.Helper()
	before := len(m.daemon.Calls("ListVMs"))
	m.eventually("the VMs are compared", func() bool { return len(m.daemon.Calls("ListVMs")) > before+6 })
}

func TestAVMThatIsNotSeenCountsUntilItWasSeenAndOnWhenItIsSeenAgain(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.made("web", m.admin)
		m.daemon.Move("web", hypervisorapi.StateRunning, m.now())
		m.eventually("it counts", func() bool { return m.ran() > 0 })
		disk := func() time.Duration { return time.Duration(m.used(m.admin)[0].DiskGbHours / 2 * float64(time.Hour)) }
		counts := func(what string, not, again func()) {
			m.Helper()
			not()
			m.untilCompared()
			ran, had := m.ran(), disk()
			m.ahead(time.Hour)
			m.untilCompared()
			if m.ran() != ran || disk() != had {
				m.Errorf("%s: it ran %s, then %s; its disk counts %s, then %s", what, ran, m.ran(), had, disk())
			}
			again()
			m.eventually(what+": it counts on", func() bool { return m.ran() > ran+time.Hour && disk() > had+time.Hour })
		}
		counts("its host does not answer", func() {
			m.daemon.Fail(func(drivertest.Call) *drivertest.Fault { return &drivertest.Fault{} })
		}, func() { m.daemon.Fail(nil) })
		var show func()
		counts("it is missing", func() { show = m.daemon.Hide("web") }, func() { show() })
		counts("it is missing, and events are lost", func() {
			show = m.daemon.Hide("web")
			m.stop()
			m.change("DELETE FROM usage_cursors")
			m.begin()
		}, func() { show() })

		m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
		ran, had := m.ran(), disk()
		m.ahead(time.Hour)
		m.eventually("it is removed", func() bool { return len(m.daemon.VMs()) == 0 })
		if m.ran() != ran || disk() != had {
			t.Errorf("a deleted VM counts: it ran %s, then %s; its disk counts %s, then %s", ran, m.ran(), had, disk())
		}
	})
}

func TestProcessorsCountAsTheProcessHasThem(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	begin := m.now().Add(time.Hour)
	m.ahead(2 * time.Hour)
	m.daemon.Move("web", hypervisorapi.StateRunning, begin)
	m.eventually("it counts", func() bool { return m.ran() > 59*time.Minute })
	m.call("PATCH", "/api/vms/web", m.admin, object{"cpus": 4}).Want(200)
	m.ahead(time.Hour)
	m.eventually("an hour is counted", func() bool { return m.ran() > 119*time.Minute })
	if got := m.ran(); got > 121*time.Minute {
		t.Errorf("a change that waits for the next start counts: %s", got)
	}
	m.daemon.Change("web", func(v *hypervisorapi.VM) { v.Pending = []string{} }) // as if it took the change at once
	before := m.ran()
	m.ahead(time.Hour)
	m.eventually("an hour is counted", func() bool { return m.ran() > before+50*time.Minute })
	before = m.ran()
	m.ahead(time.Hour)
	m.eventually("an hour of four processors is counted", func() bool { return m.ran() > before+239*time.Minute })
}

func TestWhatAVMSendsCountsOnceAlsoIfItsCounterBeginsAnew(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.made("web", m.admin)
		const gb = 1 << 30
		sent := func(want float64, what string) {
			m.Helper()
			m.eventually(what, func() bool {
				all := m.used(m.admin)
				return len(all) == 1 && math.Abs(all[0].NetworkEgressGb-want) < 1e-6
			})
		}
		m.daemon.Sent("web", gb)
		m.daemon.Move("web", hypervisorapi.StateRunning, m.now())
		sent(1, "the first GB")
		m.daemon.Sent("web", 3*gb)
		sent(3, "two more")
		m.again()
		sent(3, "after a start of the service")
		m.daemon.Sent("web", gb/2)
		sent(3.5, "a counter that began anew")
		m.daemon.Move("web", hypervisorapi.StateStopped, m.now())
		m.daemon.Sent("web", gb)
		m.daemon.Move("web", hypervisorapi.StateRunning, m.now().Add(time.Millisecond))
		sent(4.5, "another process")
	})
}

var eurPrices = object{
	"cpu_per_hour": 0.1, "memory_gb_per_hour": 0.02, "disk_gb_per_hour": 0.001, "network_egress_per_gb": 0.05, "currency": "EUR",
}

func TestPricesHoldFromNowOnAndWrongOnesChangeNothing(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		ada := m.user("ada", "admin", "acme")
		m.made("web", m.admin)
		begin := m.now()
		m.daemon.Move("web", hypervisorapi.StateRunning, begin)
		m.ahead(10 * time.Hour)
		m.eventually("ten hours are counted", func() bool { return m.ran() > 599*time.Minute })
		if u := m.used(m.admin)[0]; u.TotalCost != 0 || u.Currency != "USD" {
			t.Errorf("without prices: %+v", u)
		}
		m.call("PUT", "/api/billing/pricing", ada, eurPrices).Want(403)
		for _, wrong := range []object{
			{"currency": "euro"}, {"currency": "XXX"}, {"cpu_per_hour": -1}, {"cpu_per_hour": "1"}, {"disk_gb_per_hour": 1e7}, {"memory_gb_per_hour": nil},
		} {
			body := object{}
			for k, v := range eurPrices {
				body[k] = v
			}
			for k, v := range wrong {
				if body[k] = v; v == nil {
					delete(body, k)
				}
			}
			m.call("PUT", "/api/billing/pricing", m.admin, body).Want(400)
		}
		for _, amount := range []string{
			"999999.9999999999999", "1000000.000000000001", "0.1234567890123", "1e-400", "1e400", "1e999999999", "-1e-12", "1e-2147483649",
			"0." + strings.Repeat("0", 5000) + "1", strings.Repeat("9", 5000),
		} {
			m.call("PUT", "/api/billing/pricing", m.admin, json.RawMessage(
				`{"cpu_per_hour":`+amount+`,"memory_gb_per_hour":0,"disk_gb_per_hour":0,"network_egress_per_gb":0,"currency":"EUR"}`)).Want(400)
		}
		if p := contracttest.As[vmapi.Pricing](m.call("GET", "/api/billing/pricing", ada, nil).Want(200)); p.CpuPerHour != 0 || p.EffectiveFrom != nil {
			t.Errorf("%+v", p)
		}
		m.call("PUT", "/api/billing/pricing", m.admin, eurPrices).Want(200)
		m.ahead(10 * time.Hour)
		m.eventually("twenty hours are counted", func() bool { return m.ran() > 1199*time.Minute })
		cost := func() float64 { return m.used(m.admin)[0].TotalCost }
		// Ten hours of a processor, of half a GB of memory, and of two GB of disk.
		const want = 10*0.1 + 10*0.5*0.02 + 10*2*0.001
		if got := cost(); math.Abs(got-want) > 0.03 {
			t.Errorf("it costs %v, want %v", got, want)
		}
		m.call("PUT", "/api/billing/pricing", m.admin, object{
			"cpu_per_hour": 0, "memory_gb_per_hour": 0, "disk_gb_per_hour": 0, "network_egress_per_gb": 0, "currency": "EUR",
		}).Want(200)
		m.ahead(10 * time.Hour)
		m.eventually("thirty hours are counted", func() bool { return m.ran() > 1799*time.Minute })
		if got := cost(); math.Abs(got-want) > 0.03 {
			t.Errorf("used usage has another price: %v, want %v", got, want)
		}
		body := m.call("PUT", "/api/billing/pricing", m.admin, object{
			"cpu_per_hour": 1, "memory_gb_per_hour": 0, "disk_gb_per_hour": 0, "network_egress_per_gb": 0, "currency": "USD",
		}).Want(400).Body
		if !strings.Contains(body, "currency") {
			t.Error(body)
		}
	})
}

func (m *manager) invoice(token, tenant, period string) vmapi.Invoice {
	m.Helper()
	body := object{}
	if period != "" {
		body["period"] = period
	}
	return contracttest.As[vmapi.Invoice](m.call("POST", "/api/billing/invoice/"+tenant, token, body).Want(200))
}

func TestInvoicesOfMonthsThatAreOverNeverChange(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.call("PUT", "/api/tenants/acme", m.admin, object{}).Want(200)
		ada := m.user("ada", "admin", "acme")
		m.user("bob", "admin", "other")
		m.user("vera", "viewer", "acme")
		m.call("PUT", "/api/billing/pricing", m.admin, eurPrices).Want(200)
		m.made("web", ada)
		m.made("lonely", m.admin)
		month := m.now().UTC().Format("2006-01")
		m.daemon.Move("web", hypervisorapi.StateRunning, m.now())
		m.eventually("it counts", func() bool { return m.ran() > 0 })
		draft := m.invoice(ada, "acme", "")
		if draft.Status != "draft" || draft.InvoiceId != "draft" || !strings.Contains(draft.Reason, "not over") || len(draft.LineItems) != 4 {
			t.Errorf("%+v", draft)
		}
		if all := contracttest.As[[]vmapi.Invoice](m.call("GET", "/api/billing/invoices", m.admin, nil).Want(200)); len(all) != 0 {
			t.Errorf("a draft is stored: %+v", all)
		}
		away := func(drivertest.Call) *drivertest.Fault { return &drivertest.Fault{} }
		m.daemon.Fail(away)
		_, end := monthOf(m.now())
		m.ahead(end.Sub(m.now()) + time.Hour)
		if v := m.invoice(m.admin, "acme", month); v.Status != "draft" || !strings.Contains(v.Reason, "VM web") {
			t.Errorf("while the host does not answer: %+v", v)
		}
		m.daemon.Fail(nil)
		var final vmapi.Invoice
		m.eventually("all is known", func() bool {
			final = m.invoice(m.admin, "acme", month)
			return final.Status == "final"
		})
		checkInvoice(t, final, end)
		m.call("PUT", "/api/billing/pricing", m.admin, object{
			"cpu_per_hour": 9, "memory_gb_per_hour": 9, "disk_gb_per_hour": 9, "network_egress_per_gb": 9, "currency": "EUR",
		}).Want(200)
		m.again()
		ada = m.login("ada", "password of ada")
		bob, vera := m.login("bob", "password of bob"), m.login("vera", "password of vera")
		if again := m.invoice(ada, "acme", month); again.InvoiceId != final.InvoiceId || again.Total != final.Total || !again.Created.Equal(final.Created) {
			t.Errorf("%+v, then %+v", final, again)
		}
		if other := m.invoice(m.admin, "-", month); other.InvoiceId != "INV-000002" || other.TenantId != "-" || other.LineItems[0].VmName != "lonely" {
			t.Errorf("%+v", other)
		}
		id := "/api/billing/invoices/" + final.InvoiceId
		if got := contracttest.As[vmapi.Invoice](m.call("GET", id, vera, nil).Want(200)); got.Total != final.Total {
			t.Errorf("%+v", got)
		}
		for _, path := range []string{"/api/billing/invoices/INV-000002", "/api/billing/invoices/INV-000003", "/api/billing/invoices/1"} {
			m.call("GET", path, vera, nil).Want(404)
		}
		m.call("GET", id, bob, nil).Want(404)
		m.call("POST", "/api/billing/invoice/acme", bob, nil).Want(404)
		m.call("POST", "/api/billing/invoice/-", bob, nil).Want(404)
		m.call("POST", "/api/billing/invoice/none", m.admin, nil).Want(404)
		m.call("POST", "/api/billing/invoice/acme", vera, nil).Want(403)
		for _, period := range []string{"2026", "2026-13", "9999-01", "2020-01", "x"} {
			m.call("POST", "/api/billing/invoice/acme", ada, object{"period": period}).Want(400)
		}
		if all := contracttest.As[[]vmapi.Invoice](m.call("GET", "/api/billing/invoices", ada, nil).Want(200)); len(all) != 1 {
			t.Errorf("%+v", all)
		}
		if all := m.used(bob); len(all) != 0 {
			t.Errorf("another tenant sees %+v", all)
		}
		m.checkCSV(final, vera)
	})
}

func monthOf(t time.Time) (from, to time.Time) {
	t = t.UTC()
	from = time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	return from, from.AddDate(0, 1, 0)
}

// checkInvoice checks the invoice of a VM with a processor, half a GB of memory and two GB of disk that
// ran from its creation until the end of the month.
func checkInvoice(t *testing.T, v vmapi.Invoice, end time.Time) {
	t.Helper()
	if v.InvoiceId != "INV-000001" || v.Currency != "EUR" || !v.PeriodEnd.Equal(end) || len(v.LineItems) != 4 {
		t.Fatalf("%+v", v)
	}
	hours, total := v.LineItems[0].Quantity, 0.0
	for i, want := range []float64{hours * 0.1, hours * 0.5 * 0.02, hours * 2 * 0.001, 0} {
		got := v.LineItems[i].Amount
		if math.Abs(got-want) > 0.006 || math.Abs(got*100-math.Round(got*100)) > 1e-9 {
			t.Errorf("%+v, want about %v", v.LineItems[i], want)
		}
		total += got
	}
	if math.Abs(v.Total-total) > 1e-9 {
		t.Errorf("the total is %v, and the lines are %v", v.Total, total)
	}
}

// checkCSV checks that the CSV of an invoice and of its month's usage have its lines.
func (m *manager) checkCSV(v vmapi.Invoice, token string) {
	m.Helper()
	q := url.Values{"from": {v.PeriodStart.Format(time.RFC3339)}, "to": {v.PeriodEnd.Format(time.RFC3339)}, "format": {"csv"}}
	for _, path := range []string{"/api/billing/usage?" + q.Encode(), "/api/billing/invoices/" + v.InvoiceId + "?format=csv"} {
		rows, err := csv.NewReader(strings.NewReader(m.call("GET", path, token, nil).Want(200).Body)).ReadAll()
		if err != nil || len(rows) != 1+len(v.LineItems) || len(rows[0]) != 43 {
			m.Fatalf("%s: %v\n%v", path, err, rows)
		}
		column := map[string]int{}
		for i, name := range rows[0] {
			column[name] = i
		}
		for i, row := range rows[1:] {
			cost, err := strconv.ParseFloat(row[column["BilledCost"]], 64)
			line := v.LineItems[i]
			if err != nil || cost != line.Amount || row[column["SkuId"]] != string(line.Resource) || row[column["SubAccountId"]] != "acme" ||
				row[column["BillingCurrency"]] != "EUR" || row[column["ResourceName"]] != "web" || row[column["ChargeCategory"]] != "Usage" ||
				row[column["BillingPeriodEnd"]] != v.PeriodEnd.UTC().Format(time.RFC3339) {
				m.Errorf("%s: %v is not %+v", path, row, line)
			}
		}
	}
}

func TestUsageIsPagedAndFiltered(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		for i := range 3 {
			m.made(fmt.Sprintf("web-%d", i), m.admin)
		}
		m.eventually("disks count", func() bool { return len(m.used(m.admin)) == 3 })
		seen := map[string]bool{}
		path := "/api/billing/usage?limit=1"
		for pages := 0; path != ""; pages++ {
			a := m.call("GET", path, m.admin, nil).Want(200)
			all := contracttest.As[[]vmapi.UsageRecord](a)
			if len(all) != 1 || seen[all[0].VmName] || pages > 2 {
				t.Fatalf("page %d: %+v", pages, all)
			}
			seen[all[0].VmName] = true
			path, _, _ = strings.Cut(strings.TrimPrefix(a.Header.Get("Link"), "<"), ">")
		}
		for query, want := range map[string]int{
			"vm=web-1": 1, "vm=none": 0, "tenant=-": 3, "tenant=acme": 0, "from=2020-01-01T00:00:00Z&to=2020-02-01T00:00:00Z": 0,
		} {
			if all := contracttest.As[[]vmapi.UsageRecord](m.call("GET", "/api/billing/usage?"+query, m.admin, nil).Want(200)); len(all) != want {
				t.Errorf("%s: %+v", query, all)
			}
		}
		for _, query := range []string{
			"from=2020-02-01T00:00:00Z&to=2020-01-01T00:00:00Z", "from=2020-01-01T00:00:00Z&to=2026-01-01T00:00:00Z", "tenant=..", "from=x", "limit=0", "format=xml",
		} {
			m.call("GET", "/api/billing/usage?"+query, m.admin, nil).Want(400)
		}
	})
}

func TestUsageIsForgottenAfterTwentyFiveMonths(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		m.made("web", m.admin)
		begin := m.now()
		m.daemon.Move("web", hypervisorapi.StateRunning, begin)
		m.daemon.Move("web", hypervisorapi.StateStopped, begin.Add(time.Minute))
		m.untilRan(time.Minute, "it ran")
		m.call("DELETE", "/api/vms/web", m.admin, nil).Want(204)
		m.skew.Add(int64(26 * 31 * 24 * time.Hour))
		m.again() // the job runs at the start
		q := url.Values{"from": {begin.UTC().Add(-time.Hour).Format(time.RFC3339)}, "to": {begin.UTC().Add(time.Hour).Format(time.RFC3339)}}
		m.eventually("it is forgotten", func() bool {
			return len(contracttest.As[[]vmapi.UsageRecord](m.call("GET", "/api/billing/usage?"+q.Encode(), m.admin, nil).Want(200))) == 0
		})
	})
}

// takeBillingTour uses the operations of billing.
func takeBillingTour(tr *tour) {
	tr.Helper()
	tr.ok("SetPricing", "/api/billing/pricing", eurPrices, 200)
	tr.ok("GetPricing", "/api/billing/pricing", nil, 200)
	tr.ok("ListUsage", "/api/billing/usage", nil, 200)
	tr.ok("CreateInvoice", "/api/billing/invoice/-", object{}, 200)
	v := tr.invoice(tr.admin, "-", tr.now().UTC().AddDate(0, 0, 1-tr.now().UTC().Day()).AddDate(0, -1, 0).Format("2006-01"))
	if v.Status != "final" || len(v.LineItems) != 0 {
		tr.Errorf("%+v", v)
	}
	tr.ok("ListInvoices", "/api/billing/invoices", nil, 200)
	tr.ok("GetInvoice", "/api/billing/invoices/"+v.InvoiceId, nil, 200)
}
