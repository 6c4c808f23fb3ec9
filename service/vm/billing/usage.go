package billing

import (
	"context"
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/billing/tariff"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Usage is what a VM has used in a period.
type Usage struct {
	VM, Name, Tenant string // the newest name in the period
	From, To         time.Time
	Months           []Month
	Currency         string
}

// Month is the part of a usage that is in a month.
type Month struct {
	From, To time.Time // within the period
	Sum      tariff.Sum
	prices   map[int64]tariff.Price
	places   int32
}

// Cost returns what a resource costs, rounded as on an invoice.
func (n *Month) Cost(r tariff.Resource) decimal.Decimal { return n.Sum.Cost(r, n.prices, n.places) }

// UnitPrice returns what a unit costs if it was the same all the time.
func (n *Month) UnitPrice(r tariff.Resource) (decimal.Decimal, bool) {
	return n.Sum.UnitPrice(r, n.prices)
}

// Quantity returns how much of a resource was used, rounded for people.
func (u *Usage) Quantity(r tariff.Resource) (all decimal.Decimal) {
	for i := range u.Months {
		all = all.Add(u.Months[i].Sum.Quantity(r))
	}
	return all
}

// Total returns the sum of the lines that invoices of the period have for the VM.
func (u *Usage) Total() (all decimal.Decimal) {
	for i := range u.Months {
		for _, r := range tariff.Resources() {
			all = all.Add(u.Months[i].Cost(r))
		}
	}
	return all
}

// Period returns the period from a time to another one. Those that are zero are the beginning of the
// present month, and now.
func (m *Manager) Period(from, to time.Time) (time.Time, time.Time, error) {
	now := m.now().UTC()
	if to.IsZero() {
		to = now
	}
	if from.IsZero() {
		from, _ = tariff.Month(now)
	}
	from, to = from.UTC().Truncate(time.Microsecond), to.UTC().Truncate(time.Microsecond)
	switch {
	case !from.Before(to):
		return from, to, fault.InvalidField("from", "must be before the end of the period")
	case from.AddDate(0, keepUsage+1, 0).Before(to):
		return from, to, fault.InvalidField("to", "must be at most %d months after from, as long as usage is kept", keepUsage)
	}
	return from, to, nil
}

// UsedVMs lists the ids of VMs with usage, starting after an id.
func (m *Manager) UsedVMs(ctx context.Context, f record.UsageFilter, after string, limit int) ([]string, error) {
	return m.store.UsedVMs(ctx, f, after, limit)
}

// Usage returns what VMs have used in a period, in order of their ids.
func (m *Manager) Usage(ctx context.Context, f record.UsageFilter, vms []string) ([]Usage, error) {
	prices, err := m.store.Prices(ctx)
	if err != nil {
		return nil, err
	}
	segments, err := m.store.UsageOf(ctx, f, vms)
	if err != nil {
		return nil, err
	}
	return add(segments, f.From, f.To, prices), nil
}

// add adds up the segments of VMs in a period. The segments are in order of VMs and time.
func add(segments []record.Usage, from, to time.Time, prices []tariff.Price) (out []Usage) {
	byID := map[int64]tariff.Price{0: tariff.Free}
	for _, p := range prices {
		byID[p.ID] = p
	}
	currency := tariff.At(prices, to).Currency
	places, _ := tariff.Places(currency)
	for i := range segments {
		s := &segments[i]
		part, ok := s.Segment().Part(from, to)
		if !ok {
			continue
		}
		if len(out) == 0 || out[len(out)-1].VM != s.VM {
			out = append(out, Usage{VM: s.VM, Tenant: s.Tenant, From: from, To: to, Currency: currency})
		}
		u := &out[len(out)-1]
		u.Name = s.Name
		start, end := tariff.Month(part.From)
		if start.Before(from) {
			start = from
		}
		if end.After(to) {
			end = to
		}
		n := slices.IndexFunc(u.Months, func(n Month) bool { return n.From.Equal(start) })
		if n < 0 {
			n, u.Months = len(u.Months), append(u.Months, Month{From: start, To: end, prices: byID, places: places})
		}
		u.Months[n].Sum.Add(part)
	}
	return out
}

// Pricing returns the price that holds now.
func (m *Manager) Pricing(ctx context.Context) (tariff.Price, error) {
	prices, err := m.store.Prices(ctx)
	if err != nil || len(prices) == 0 {
		return tariff.Free, err
	}
	return prices[len(prices)-1], nil // a price may be ahead by the difference of two clocks
}

// SetPricing has a price hold from now on.
func (m *Manager) SetPricing(ctx context.Context, p tariff.Price) (tariff.Price, error) {
	return m.store.SetPrice(ctx, p)
}

// everything returns what all VMs of a tenant have used in a period.
func (m *Manager) everything(ctx context.Context, tenant string, from, to time.Time) (out []Usage, err error) {
	f := record.UsageFilter{From: from, To: to, Tenant: &tenant}
	ctx = caller.ByItself(ctx)
	for after := ""; ; {
		ids, err := m.store.UsedVMs(ctx, f, after, together)
		if err != nil || len(ids) == 0 {
			return out, err
		}
		page, err := m.Usage(ctx, f, ids)
		if err != nil {
			return nil, err
		}
		out, after = append(out, page...), ids[len(ids)-1]
	}
}
