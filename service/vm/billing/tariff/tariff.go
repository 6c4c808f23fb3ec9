// Package tariff holds the rules of billing as plain functions: which segments usage is kept in, what
// they add up to, and what that costs.
//
//	segment.go   segments, where they are cut, and the parts of them
//	charge.go    sums of usage, and their costs
//	currency.go  currencies of ISO 4217
//
// # Invariants
//
//   - Amounts and money are exact: whole numbers and decimals, never floating point.
//   - What the parts of a segment add up to is the whole, however it is split.
//   - Money is rounded once, at an invoice's line, half to even.
//
// It imports nothing of the service.
package tariff

import (
	"time"

	"github.com/shopspring/decimal"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Price is what usage costs from a time on, until the next price. A GB is 2^30 bytes.
type Price struct {
	ID              int64 // 0: none was set; everything is free
	From            time.Time
	CPUPerHour      decimal.Decimal // for a processor
	MemoryGBPerHour decimal.Decimal
	DiskGBPerHour   decimal.Decimal
	EgressPerGB     decimal.Decimal
	Currency        string // ISO 4217
}

// Free is what holds until a price is set.
var Free = Price{Currency: "USD"}

// Limits of a price, which keep sums readable.
const (
	maxPrice  = 1_000_000
	maxPlaces = 12
)

// maxAmountText is the longest text of an amount, in bytes.
const maxAmountText = 64

// ParseAmount reads an amount as it is written in JSON, without rounding. The fault names the field.
func ParseAmount(field, text string) (decimal.Decimal, error) {
	d, err := decimal.NewFromString(text)
	// An exponent could stand for a number with millions of digits.
	if e := d.Exponent(); err != nil || len(text) > maxAmountText || e > maxAmountText || e < -maxAmountText {
		return decimal.Decimal{}, fault.InvalidField(field, "must be a number from 0 to %d with at most %d decimal places", maxPrice, maxPlaces)
	}
	return d, nil
}

// Check returns a fault that names the field of a price that is not valid.
func (p *Price) Check() error {
	for _, f := range []struct {
		name  string
		value decimal.Decimal
	}{
		{"cpu_per_hour", p.CPUPerHour}, {"memory_gb_per_hour", p.MemoryGBPerHour}, {"disk_gb_per_hour", p.DiskGBPerHour},
		{"network_egress_per_gb", p.EgressPerGB},
	} {
		switch {
		case f.value.IsNegative() || f.value.GreaterThan(decimal.NewFromInt(maxPrice)):
			return fault.InvalidField(f.name, "must be 0 to %d", maxPrice)
		case !f.value.Equal(f.value.Truncate(maxPlaces)):
			return fault.InvalidField(f.name, "must have at most %d decimal places", maxPlaces)
		}
	}
	if _, ok := Places(p.Currency); !ok {
		return fault.InvalidField("currency", "%q is not the code of a currency in ISO 4217, such as EUR", p.Currency)
	}
	return nil
}

// Zero reports whether everything is free.
func (p *Price) Zero() bool {
	return p.CPUPerHour.IsZero() && p.MemoryGBPerHour.IsZero() && p.DiskGBPerHour.IsZero() && p.EgressPerGB.IsZero()
}

// At returns the price that holds at a time. prices are in order of time.
func At(prices []Price, t time.Time) Price {
	held := Free
	for i := range prices {
		if prices[i].From.After(t) {
			break
		}
		held = prices[i]
	}
	return held
}

// Month returns when the month of a time begins and ends, in UTC.
func Month(t time.Time) (from, to time.Time) {
	t = t.UTC()
	from = time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	return from, from.AddDate(0, 1, 0)
}
