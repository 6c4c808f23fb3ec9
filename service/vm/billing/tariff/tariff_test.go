package tariff_test

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/billing/tariff"
)

func at(text string) time.Time {
	t, err := time.Parse("2006-01-02 15:04", text)
	if err != nil {
		panic(err)
	}
	return t
}

func price(id int64, from string) tariff.Price {
	return tariff.Price{ID: id, From: at(from), CPUPerHour: decimal.NewFromInt(id), Currency: "EUR"}
}

func TestSegmentsEndWhereAMonthEndsAndWhereThePriceChanges(t *testing.T) {
	t.Parallel()
	prices := []tariff.Price{price(1, "2026-01-10 00:00"), price(2, "2026-02-01 00:00"), price(3, "2026-02-03 12:00")}
	for _, test := range []struct {
		name, from, to string
		want           []string
	}{
		{"before any price", "2026-01-01 00:00", "2026-01-02 00:00", []string{"01-01 00:00 01-02 00:00 0"}},
		{
			"over a price", "2026-01-09 00:00", "2026-01-11 00:00",
			[]string{"01-09 00:00 01-10 00:00 0", "01-10 00:00 01-11 00:00 1"},
		},
		{
			"over a month's end with a price at the same time", "2026-01-31 00:00", "2026-02-02 00:00",
			[]string{"01-31 00:00 02-01 00:00 1", "02-01 00:00 02-02 00:00 2"},
		},
		{
			"over several months", "2026-02-28 00:00", "2026-04-02 00:00",
			[]string{"02-28 00:00 03-01 00:00 3", "03-01 00:00 04-01 00:00 3", "04-01 00:00 04-02 00:00 3"},
		},
		{"until an edge", "2026-03-01 00:00", "2026-04-01 00:00", []string{"03-01 00:00 04-01 00:00 3"}},
		{"without length", "2026-04-01 00:00", "2026-04-01 00:00", []string{"04-01 00:00 04-01 00:00 3"}},
	} {
		var got []string
		for _, s := range tariff.Cut(at(test.from), at(test.to), tariff.Size{CPUs: 2}, prices) {
			const layout = "01-02 15:04"
			got = append(got, s.From.Format(layout)+" "+s.To.Format(layout)+" "+decimal.NewFromInt(s.Price).String())
			if s.CPUs != 2 {
				t.Errorf("%s: %d CPUs", test.name, s.CPUs)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestASizeCountsFromWhenItWasSeen(t *testing.T) {
	t.Parallel()
	from, to := at("2026-01-01 00:00"), at("2026-01-01 01:00")
	first := tariff.Cut(from, from, tariff.Size{CPUs: 1}, nil)[0]
	first, more := tariff.Extend(first, to, tariff.Size{CPUs: 2}, nil)
	if first.CPUs != 2 || !first.To.Equal(to) || len(more) != 0 {
		t.Fatalf("a segment without length takes the size that is seen: %+v, %+v", first, more)
	}
	first, more = tariff.Extend(first, to.Add(time.Hour), tariff.Size{CPUs: 4}, nil)
	if first.CPUs != 2 || !first.To.Equal(to.Add(time.Hour)) || len(more) != 1 || more[0].CPUs != 4 || more[0].To.After(more[0].From) {
		t.Fatalf("what was before keeps its size: %+v, %+v", first, more)
	}
}

// moment returns a time within about three years, often at an edge.
func moment(r *rand.Rand) time.Time {
	t := at("2024-01-01 00:00").Add(time.Duration(r.Int64N(1000*24*3600*1e6)) * time.Microsecond)
	if r.IntN(5) == 0 {
		t, _ = tariff.Month(t)
	}
	return t
}

// However a time is split, and however often it was counted in between, what was used is the same.
func TestTheSumOverAnySplitOfTimeIsTheSame(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var prices []tariff.Price
		for id := range r.Int64N(5) {
			prices = append(prices, tariff.Price{ID: id + 1, From: moment(r), CPUPerHour: decimal.NewFromInt(r.Int64N(9)), Currency: "EUR"})
		}
		slices.SortFunc(prices, func(a, b tariff.Price) int { return a.From.Compare(b.From) })
		times := make([]time.Time, 2+r.IntN(20))
		for i := range times {
			times[i] = moment(r)
		}
		slices.SortFunc(times, time.Time.Compare)
		from, to := times[0], times[len(times)-1]
		size := tariff.Size{CPUs: 1 + r.Int64N(64), Memory: 1 + r.Int64N(1<<20), Disk: r.Int64N(1 << 16)}

		whole := tariff.Cut(from, to, size, prices)
		grown := tariff.Cut(from, from, size, prices)
		for _, t := range times {
			last, more := tariff.Extend(grown[len(grown)-1], t, size, prices)
			grown = append(append(grown[:len(grown)-1], last), more...)
		}
		if !slices.Equal(whole, grown) {
			t.Fatalf("seed %d: counted at %v:\n%+v\nat once:\n%+v", seed, times, grown, whole)
		}
		checkSegments(t, seed, whole, from, to, prices)
		for i := range whole {
			whole[i].Egress = r.Int64N(1 << 50)
		}
		var all, split tariff.Sum
		for _, s := range whole {
			all.Add(s)
			for i := range len(times) - 1 {
				if part, ok := s.Part(times[i], times[i+1]); ok {
					split.Add(part)
				}
			}
		}
		for _, resource := range tariff.Resources() {
			if a, b := all.Whole(resource), split.Whole(resource); from.Before(to) && !a.Equal(b) {
				t.Fatalf("seed %d: %s is %s, but split %s", seed, resource, a, b)
			}
		}
	}
}

func checkSegments(t *testing.T, seed uint64, all []tariff.Segment, from, to time.Time, prices []tariff.Price) {
	t.Helper()
	next := from
	for _, s := range all {
		_, end := tariff.Month(s.From)
		if !s.From.Equal(next) || s.To.After(end) || s.Price != tariff.At(prices, s.From).ID {
			t.Fatalf("seed %d: %+v", seed, all)
		}
		if s.From.Before(s.To) && s.Price != tariff.At(prices, s.To.Add(-1)).ID {
			t.Fatalf("seed %d: the price changes within %+v", seed, s)
		}
		next = s.To
	}
	if !next.Equal(to) {
		t.Fatalf("seed %d: it ends at %s, not %s", seed, next, to)
	}
}

func TestAmountsAreRoundedOnceHalfToEven(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b   int64
		places int32
		want   string
	}{
		{1, 8, 2, "0.12"}, {3, 8, 2, "0.38"}, {1, 3, 2, "0.33"}, {2, 3, 2, "0.67"}, {5, 2, 0, "2"}, {7, 2, 0, "4"}, {1, 2, 0, "0"},
		{3, 2, 0, "2"}, {1, 2000, 3, "0"}, {3, 2000, 3, "0.002"}, {0, 7, 2, "0"}, {1, 200, 2, "0"}, {3, 200, 2, "0.02"},
	} {
		if got := tariff.RoundQuotient(decimal.NewFromInt(test.a), decimal.NewFromInt(test.b), test.places); got.String() != test.want {
			t.Errorf("%d / %d at %d places is %s, want %s", test.a, test.b, test.places, got, test.want)
		}
	}
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 2))
		a, b, places := decimal.New(r.Int64N(1<<40), -int32(r.IntN(12))), decimal.NewFromInt(1+r.Int64N(1<<20)), int32(r.IntN(4))
		want := halfEven(new(big.Rat).Quo(a.Rat(), b.Rat()), places)
		if got := tariff.RoundQuotient(a, b, places); got.Rat().Cmp(want) != 0 {
			t.Fatalf("seed %d: %s / %s at %d places is %s, want %s", seed, a, b, places, got, want)
		}
	}
}

// halfEven rounds in the way of the definition.
func halfEven(x *big.Rat, places int32) *big.Rat {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil)
	scaled := new(big.Rat).Mul(x, new(big.Rat).SetInt(scale))
	down := new(big.Int).Quo(scaled.Num(), scaled.Denom())
	rest := new(big.Rat).Sub(scaled, new(big.Rat).SetInt(down))
	if c := rest.Cmp(big.NewRat(1, 2)); c > 0 || c == 0 && down.Bit(0) == 1 {
		down.Add(down, big.NewInt(1))
	}
	return new(big.Rat).SetFrac(down, scale)
}

func TestCostsFollowPricesAndSizes(t *testing.T) {
	t.Parallel()
	cheap := tariff.Price{ID: 1, CPUPerHour: decimal.RequireFromString("0.1"), Currency: "EUR"}
	dear := tariff.Price{
		ID: 2, CPUPerHour: decimal.RequireFromString("0.3"), MemoryGBPerHour: decimal.RequireFromString("0.01"),
		DiskGBPerHour: decimal.RequireFromString("0.001"), EgressPerGB: decimal.RequireFromString("0.5"), Currency: "EUR",
	}
	prices := map[int64]tariff.Price{1: cheap, 2: dear}
	from := at("2026-01-01 00:00")
	var sum tariff.Sum
	sum.Add(tariff.Segment{From: from, To: from.Add(90 * time.Minute), Price: 1, CPUs: 2, Memory: 1024})
	sum.Add(tariff.Segment{From: from, To: from.Add(30 * time.Minute), Price: 2, CPUs: 4, Memory: 512, Disk: 10, Egress: 3 << 29})
	for r, want := range map[tariff.Resource][2]string{
		tariff.CPU: {"5", "0.9"}, tariff.Memory: {"1.75", "0.0025"}, tariff.Disk: {"5", "0.005"}, tariff.Egress: {"1.5", "0.75"},
	} {
		if q, c := sum.Quantity(r).String(), sum.Cost(r, prices, 4).String(); q != want[0] || c != want[1] {
			t.Errorf("%s: %s for %s, want %s for %s", r, q, c, want[0], want[1])
		}
	}
	if _, same := sum.UnitPrice(tariff.CPU, prices); same {
		t.Error("the price of processors changed")
	}
}

func TestCurrenciesAreThoseOfISO4217(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]int32{"EUR": 2, "USD": 2, "JPY": 0, "KWD": 3, "ISK": 0, "CHF": 2} {
		if got, ok := tariff.Places(code); !ok || got != want {
			t.Errorf("%s has %d places, %v", code, got, ok)
		}
	}
	for _, code := range []string{"", "EU", "eur", "XXX", "UR ", "R F", "EURO", "BTC"} {
		if _, ok := tariff.Places(code); ok {
			t.Errorf("%q is taken", code)
		}
	}
}

func TestPricesThatAreNotValidNameTheirField(t *testing.T) {
	t.Parallel()
	one := decimal.NewFromInt(1)
	good := tariff.Price{CPUPerHour: one, Currency: "EUR"}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for field, p := range map[string]tariff.Price{
		"cpu_per_hour":          {CPUPerHour: one.Neg(), Currency: "EUR"},
		"memory_gb_per_hour":    {MemoryGBPerHour: decimal.NewFromInt(1_000_001), Currency: "EUR"},
		"disk_gb_per_hour":      {DiskGBPerHour: decimal.New(1, -13), Currency: "EUR"},
		"network_egress_per_gb": {EgressPerGB: one.Neg(), Currency: "EUR"},
		"currency":              {Currency: "EURO"},
	} {
		if err := p.Check(); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
