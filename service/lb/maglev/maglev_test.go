package maglev_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mainstay-infra/mainstay/service/lb/maglev"
)

func named(n int, weight func(i int) int) []maglev.Backend {
	backends := make([]maglev.Backend, n)
	for i := range backends {
		backends[i] = maglev.Backend{Name: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), Weight: weight(i)}
	}
	return backends
}

func one(int) int { return 1 }

func TestSlotsAreSharedByWeight(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, backends := range [][]maglev.Backend{
		named(1, one), named(3, one), named(100, one), named(1000, one),
		named(3, func(i int) int { return []int{1, 2, 1000}[i] }),
		named(50, func(int) int { return 1 + random.IntN(1000) }),
	} {
		table := maglev.Table(backends)
		if len(table) != maglev.Slots {
			t.Fatalf("%d slots", len(table))
		}
		got, sum := make([]int, len(backends)), 0
		for _, b := range table {
			got[b]++
		}
		for _, b := range backends {
			sum += b.Weight
		}
		for i, b := range backends {
			want := float64(maglev.Slots) * float64(b.Weight) / float64(sum)
			if off := float64(got[i]) - want; off > max(1.5, want/100) || -off > max(1.5, want/100) {
				t.Errorf(
					"of %d backends, the one of weight %d of %d has %d slots, want %.1f", len(backends), b.Weight,
					sum, got[i], want,
				)
			}
		}
	}
}

func TestTableDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	backends := named(20, func(i int) int { return 1 + i%3 })
	before := maglev.Table(backends)
	shuffled := slices.Clone(backends)
	rand.New(rand.NewPCG(3, 4)).Shuffle(
		len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] },
	)
	for slot, b := range maglev.Table(shuffled) {
		if shuffled[b] != backends[before[slot]] {
			t.Fatalf("slot %d went from %v to %v", slot, backends[before[slot]], shuffled[b])
		}
	}
}

func TestFewSlotsMoveBesideThoseOfARemovedBackend(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 10, 50, 100} {
		for _, weight := range []func(int) int{one, func(i int) int { return 1 + i%5 }} {
			backends := named(n, weight)
			before := maglev.Table(backends)
			for gone := range min(n, 5) {
				rest := slices.Delete(slices.Clone(backends), gone, gone+1)
				after := maglev.Table(rest)
				moved := 0
				for slot, b := range after {
					if old := before[slot]; int(old) != gone && backends[old] != rest[b] {
						moved++
					}
				}
				if percent := 100 * float64(moved) / maglev.Slots; percent > 1 {
					t.Errorf(
						"of %d backends number %d went, and %.2f %% of all slots moved that were not its own", n,
						gone, percent,
					)
				}
			}
		}
	}
}

func TestNoBackendsMakeNoTable(t *testing.T) {
	t.Parallel()
	if maglev.Table(nil) != nil {
		t.Error("want nil")
	}
}

func BenchmarkTable(b *testing.B) {
	for _, n := range []int{3, 10, 100, 1000} {
		backends := named(n, func(i int) int { return 1 + i%3 })
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				maglev.Table(backends)
			}
		})
	}
}
