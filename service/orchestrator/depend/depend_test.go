package depend_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/mainstay-infra/mainstay/service/orchestrator/depend"
)

func TestWorkloadsStartAfterWhatTheyDependOn(t *testing.T) {
	t.Parallel()
	g := depend.Graph{
		"web": {"api", "cache", "api"}, "api": {"db", "cache"}, "db": nil, "cache": nil, "docs": {"nothing"}, "mail": {"web", "none", "none"},
	}
	p := g.Plan()
	want := &depend.Plan{
		Waves:   [][]string{{"cache", "db", "docs"}, {"api"}, {"web"}, {"mail"}},
		Missing: map[string][]string{"docs": {"nothing"}, "mail": {"none"}},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("%+v", p)
	}
	if order := p.Order(); !slices.Equal(order, []string{"cache", "db", "docs", "api", "web", "mail"}) {
		t.Errorf("%v", order)
	}
	for of, want := range map[string][]string{"cache": {"api", "mail", "web"}, "db": {"api", "mail", "web"}, "web": {"mail"}, "mail": nil, "x": nil} {
		if got := g.Dependents(of); !slices.Equal(got, want) {
			t.Errorf("on %s depend %v", of, got)
		}
	}
}

func TestACycleIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		g     depend.Graph
		waves [][]string
		cycle []string
	}{
		{depend.Graph{"a": {"a"}}, nil, []string{"a"}},
		{depend.Graph{"b": {"c"}, "c": {"b"}, "a": nil}, [][]string{{"a"}}, []string{"b", "c"}},
		{depend.Graph{"a": {"c"}, "c": {"d"}, "d": {"b"}, "b": {"c"}}, nil, []string{"b", "c", "d"}},
		{depend.Graph{"z": {"y"}, "y": {"x"}, "x": {"z", "w"}, "w": nil, "u": {"z"}}, [][]string{{"w"}}, []string{"x", "z", "y"}},
	} {
		p := c.g.Plan()
		if !reflect.DeepEqual(p.Waves, c.waves) || !slices.Equal(p.Cycle, c.cycle) {
			t.Errorf("%v: %+v", c.g, p)
		}
	}
}

func TestEveryPlanOfARandomGraphHolds(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		n := 1 + random.IntN(12)
		g := depend.Graph{}
		for i := range n {
			name := fmt.Sprint(i)
			g[name] = nil
			for range random.IntN(3) {
				g[name] = append(g[name], fmt.Sprint(random.IntN(n+1)))
			}
		}
		p := g.Plan()
		place := map[string]int{}
		for i, wave := range p.Waves {
			for _, name := range wave {
				place[name] = i + 1
			}
		}
		for name, i := range place {
			last := 0
			for _, on := range g[name] {
				if _, known := g[on]; known {
					if place[on] == 0 || place[on] >= i {
						t.Fatalf("seed %d: %v: %s starts with or before %s: %v", seed, g, name, on, p.Waves)
					}
					last = max(last, place[on])
				}
			}
			if i != last+1 {
				t.Fatalf("seed %d: %v: %s starts later than it could: %v", seed, g, name, p.Waves)
			}
		}
		if (len(place) == n) != (len(p.Cycle) == 0) {
			t.Fatalf("seed %d: %v: %d of %d, cycle %v", seed, g, len(place), n, p.Cycle)
		}
		for i, name := range p.Cycle {
			if next := p.Cycle[(i+1)%len(p.Cycle)]; !slices.Contains(g[name], next) {
				t.Fatalf("seed %d: %v: %s does not depend on %s", seed, g, name, next)
			}
		}
	}
}
