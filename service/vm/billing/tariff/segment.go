package tariff

import (
	"math/big"
	"time"
)

// Segment is a time in which the size of a VM and the price were the same. It lies within a month.
type Segment struct {
	From, To time.Time
	Price    int64 // its id; 0: none
	CPUs     int64
	Memory   int64 // MiB
	Disk     int64 // GiB
	Egress   int64 // bytes
}

// Size is what is billed by time.
type Size struct {
	CPUs   int64
	Memory int64 // MiB
	Disk   int64 // GiB
}

// Size returns the size in a segment.
func (s *Segment) Size() Size { return Size{s.CPUs, s.Memory, s.Disk} }

func (s *Segment) resize(z Size) { s.CPUs, s.Memory, s.Disk = z.CPUs, z.Memory, z.Disk }

// Cut returns the segments from a time to another one, without egress: they end where a month ends
// (UTC) and where the price changes. Equal times give one segment without length. prices are in order of
// time.
func Cut(from, to time.Time, size Size, prices []Price) (out []Segment) {
	for {
		_, end := Month(from)
		for i := range prices {
			if p := prices[i].From; p.After(from) && p.Before(end) {
				end = p
				break
			}
		}
		s := Segment{From: from, To: end, Price: At(prices, from).ID}
		s.resize(size)
		if !to.After(end) {
			s.To = to
			// A time that ends at an edge has no segment after it.
			return append(out, s)
		}
		out, from = append(out, s), end
	}
}

// Extend has the last segment of a VM go on to a time, at which the VM is seen with a size. It returns
// the last segment as it is then, and the segments after it. The time before it was seen counts with
// the size from before.
func Extend(last Segment, to time.Time, size Size, prices []Price) (grown Segment, more []Segment) {
	if last.To.Equal(last.From) {
		last.resize(size)
	}
	grown = last
	if to.After(last.To) {
		more = Cut(last.To, to, last.Size(), prices)
		if first := more[0]; first.Price == last.Price && sameMonth(first.From, last.From) {
			grown.To, more = first.To, more[1:]
		}
	}
	end := &grown
	if len(more) > 0 {
		end = &more[len(more)-1]
	}
	if end.Size() != size {
		now := Segment{From: end.To, To: end.To, Price: At(prices, end.To).ID}
		now.resize(size)
		more = append(more, now)
	}
	return grown, more
}

func sameMonth(a, b time.Time) bool {
	from, _ := Month(a)
	other, _ := Month(b)
	return from.Equal(other)
}

// Part returns the part of a segment that is in [from, to). ok is false if there is none. Egress is
// spread evenly over the segment.
func (s Segment) Part(from, to time.Time) (part Segment, ok bool) {
	part = s
	if s.From.Before(from) {
		part.From = from
	}
	if s.To.After(to) {
		part.To = to
	}
	if s.From.Equal(s.To) {
		return part, !s.From.Before(from) && s.From.Before(to)
	}
	if !part.From.Before(part.To) {
		return part, false
	}
	part.Egress = s.sentUntil(part.To) - s.sentUntil(part.From)
	return part, true
}

// sentUntil returns the egress from the beginning of a segment until a time in it, rounded down. The
// difference of two of them is what was sent between, so that no byte is lost or counted twice.
func (s *Segment) sentUntil(t time.Time) int64 {
	all := big.NewInt(s.Egress)
	all.Mul(all, big.NewInt(t.Sub(s.From).Microseconds()))
	return all.Quo(all, big.NewInt(s.To.Sub(s.From).Microseconds())).Int64()
}
