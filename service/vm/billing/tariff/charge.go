package tariff

import (
	"time"

	"github.com/shopspring/decimal"
)

// Resource is something that is billed.
type Resource string

// The resources.
const (
	CPU    Resource = "cpu"
	Memory Resource = "memory"
	Disk   Resource = "disk"
	Egress Resource = "network_egress"
)

// Resources lists the resources in the order of an invoice's lines.
func Resources() []Resource { return []Resource{CPU, Memory, Disk, Egress} }

// Unit returns the unit of a resource's quantity.
func (r Resource) Unit() string {
	switch r {
	case CPU:
		return "vCPU-hours"
	case Egress:
		return "GB"
	}
	return "GB-hours"
}

var (
	hour     = decimal.NewFromInt(time.Hour.Microseconds())
	gigabyte = decimal.NewFromInt(1 << 30)
	mebibyte = decimal.NewFromInt(1 << 10) // in a GB
)

// per returns how many of the smallest units make one unit of a resource.
func per(r Resource) decimal.Decimal {
	switch r {
	case Memory:
		return hour.Mul(mebibyte)
	case Egress:
		return gigabyte
	}
	return hour
}

// Of returns what a unit of a resource costs.
func (p *Price) Of(r Resource) decimal.Decimal {
	switch r {
	case CPU:
		return p.CPUPerHour
	case Memory:
		return p.MemoryGBPerHour
	case Disk:
		return p.DiskGBPerHour
	}
	return p.EgressPerGB
}

// Sum adds up usage in whole numbers: of processors, MiB and GiB times microseconds, and bytes. The zero
// value is empty.
type Sum struct {
	parts map[int64]map[Resource]decimal.Decimal // by price
}

// Add adds a segment.
func (u *Sum) Add(s Segment) {
	if u.parts == nil {
		u.parts = map[int64]map[Resource]decimal.Decimal{}
	}
	if u.parts[s.Price] == nil {
		u.parts[s.Price] = map[Resource]decimal.Decimal{}
	}
	of, length := u.parts[s.Price], decimal.NewFromInt(s.To.Sub(s.From).Microseconds())
	of[CPU] = of[CPU].Add(decimal.NewFromInt(s.CPUs).Mul(length))
	of[Memory] = of[Memory].Add(decimal.NewFromInt(s.Memory).Mul(length))
	of[Disk] = of[Disk].Add(decimal.NewFromInt(s.Disk).Mul(length))
	of[Egress] = of[Egress].Add(decimal.NewFromInt(s.Egress))
}

// Whole returns how much of a resource was used, in its smallest units.
func (u *Sum) Whole(r Resource) (all decimal.Decimal) {
	for _, of := range u.parts {
		all = all.Add(of[r])
	}
	return all
}

// quantityPlaces is how many decimal places quantities are shown with.
const quantityPlaces = 9

// Quantity returns how much of a resource was used, in its unit, rounded for people.
func (u *Sum) Quantity(r Resource) decimal.Decimal {
	return RoundQuotient(u.Whole(r), per(r), quantityPlaces)
}

// Cost returns what a resource costs, rounded to so many decimal places. prices are by their ids.
func (u *Sum) Cost(r Resource, prices map[int64]Price, places int32) decimal.Decimal {
	var all decimal.Decimal
	for id, of := range u.parts {
		p := prices[id]
		all = all.Add(of[r].Mul(p.Of(r)))
	}
	return RoundQuotient(all, per(r), places)
}

// UnitPrice returns what a unit of a resource costs if it was the same for all of the usage.
func (u *Sum) UnitPrice(r Resource, prices map[int64]Price) (one decimal.Decimal, ok bool) {
	for id := range u.parts {
		p := prices[id]
		if ok && !one.Equal(p.Of(r)) {
			return one, false
		}
		one, ok = p.Of(r), true
	}
	return one, ok
}

// RoundQuotient returns a / b, rounded once to so many decimal places, half to even. a must not be
// negative, and b must be greater than 0.
func RoundQuotient(a, b decimal.Decimal, places int32) decimal.Decimal {
	quotient, rest := a.QuoRem(b, places)
	step := decimal.New(1, -places)
	switch half := rest.Add(rest).Cmp(b.Mul(step)); {
	case half > 0:
		quotient = quotient.Add(step)
	case half == 0:
		quotient = quotient.Add(step.Div(decimal.NewFromInt(2))).RoundBank(places)
	}
	return quotient.Truncate(places)
}
