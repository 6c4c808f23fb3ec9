package billing

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/billing/tariff"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Invoice is an invoice, or the draft of one.
type Invoice struct {
	record.Invoice
	// Draft says why it is a draft; empty: it is final and has a number.
	Draft string
}

// grace is how long after its end a month stays open for hosts that do not answer. What they tell later
// is shown as usage, but not on the invoice.
const grace = 72 * time.Hour

// prefix begins the ids of invoices.
const prefix = "INV-"

// InvoiceID returns the id of an invoice with a number, which is 0 for a draft.
func InvoiceID(number int64) string {
	if number == 0 {
		return "draft"
	}
	return fmt.Sprintf("%s%06d", prefix, number)
}

// ParseInvoiceID returns the number of an invoice's id. It fails with NotFound if the id is not one.
func ParseInvoiceID(id string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimPrefix(id, prefix), 10, 64)
	if err != nil || InvoiceID(n) != id || n < 1 {
		return 0, fault.New(fault.NotFound, "there is no such invoice")
	}
	return n, nil
}

// ParsePeriod returns when a month that is written as 2026-11 begins. Empty: the present month.
func (m *Manager) ParsePeriod(text string) (from, to time.Time, err error) {
	now := m.now().UTC()
	from, to = tariff.Month(now)
	if text == "" {
		return from, to, nil
	}
	t, err := time.Parse("2006-01", text)
	switch {
	case err != nil:
		return from, to, fault.InvalidField("period", "%q is not a month, such as 2026-11", text)
	case t.After(now):
		return from, to, fault.InvalidField("period", "must not be in the future")
	case t.Before(from.AddDate(0, -keepUsage+1, 0)):
		return from, to, fault.InvalidField("period", "must be one of the last %d months, as long as usage is kept", keepUsage)
	}
	from, to = tariff.Month(t)
	return from, to, nil
}

// Bill returns the invoice of a tenant for a month, and stores it if the month is over. Of a month that
// has an invoice, it returns that one.
func (m *Manager) Bill(ctx context.Context, tenant, period string) (v Invoice, err error) {
	if err := m.store.CheckBilled(ctx, tenant); err != nil {
		return v, err
	}
	from, to, err := m.ParsePeriod(period)
	if fault.Is(err, fault.Invalid) {
		// Older invoices are kept longer than usage.
		if t, bad := time.Parse("2006-01", period); bad == nil {
			if v.Invoice, bad = m.store.InvoiceOf(ctx, tenant, t); bad == nil {
				return v, m.note(ctx, &v)
			}
		}
	}
	if err != nil {
		return v, err
	}
	v.Invoice, err = m.store.InvoiceOf(ctx, tenant, from)
	if err == nil {
		return v, m.note(ctx, &v)
	}
	if !fault.Is(err, fault.NotFound) {
		return v, err
	}
	if v.Draft, err = m.open(ctx, tenant, to); err != nil {
		return v, err
	}
	if v.Invoice, err = m.draw(ctx, tenant, from, to); err != nil {
		return v, err
	}
	if v.Draft == "" {
		if v.Invoice, err = m.store.AddInvoice(ctx, v.Invoice); err != nil {
			return v, err
		}
	}
	return v, m.note(ctx, &v)
}

func (m *Manager) note(ctx context.Context, v *Invoice) error {
	return m.store.NoteInvoice(ctx, v.Tenant, InvoiceID(v.Number)+" for "+v.From.UTC().Format("2006-01"))
}

// open returns why a month that ends at a time is still open, or "".
func (m *Manager) open(ctx context.Context, tenant string, to time.Time) (reason string, err error) {
	now := m.now()
	switch {
	case now.Before(to):
		return "the period is not over", nil
	case now.After(to.Add(grace)):
		return "", nil
	}
	name, err := m.store.NotCounted(ctx, tenant, to)
	if name != "" {
		reason = fmt.Sprintf("the usage of VM %s is not known until the end of the period yet; it is final three days after", name)
	}
	return reason, err
}

// names are how lines call resources.
var names = map[tariff.Resource]string{
	tariff.CPU: "processors", tariff.Memory: "memory", tariff.Disk: "disk", tariff.Egress: "network egress",
}

// draw makes the invoice of a month, without a number: a line for each resource of each VM.
func (m *Manager) draw(ctx context.Context, tenant string, from, to time.Time) (v record.Invoice, err error) {
	all, err := m.everything(ctx, tenant, from, to)
	if err != nil {
		return v, err
	}
	prices, err := m.store.Prices(ctx)
	v = record.Invoice{
		Tenant: tenant, From: db.At(from), To: db.At(to), CreatedAt: db.At(m.now()), Currency: tariff.At(prices, to).Currency,
	}
	v.Lines.V = []record.Line{}
	for i := range all {
		u := &all[i]
		for _, r := range tariff.Resources() {
			line := record.Line{
				VM: u.VM, Name: u.Name, Resource: string(r), Quantity: u.Quantity(r), Unit: r.Unit(),
			}
			for n := range u.Months {
				line.Amount = line.Amount.Add(u.Months[n].Cost(r))
			}
			line.Description = fmt.Sprintf("%s of VM %s: %s %s", names[r], u.Name, line.Quantity.StringFixed(3), line.Unit)
			v.Total = v.Total.Add(line.Amount)
			v.Lines.V = append(v.Lines.V, line)
		}
	}
	return v, err
}
