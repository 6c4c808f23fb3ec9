package compare_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mainstay-infra/mainstay/service/orchestrator/compare"
	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

func tree(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDifferencesHaveTheirPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to string
		want     []string
	}{
		{`{}`, `{}`, nil},
		{`1`, `2`, []string{"~ : 1 -> 2"}},
		{`{"a":1,"b":2}`, `{"b":3,"c":4}`, []string{"- a: 1", "~ b: 2 -> 3", "+ c: 4"}},
		{`{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":2}}}`, []string{"~ a.b.c: 1 -> 2"}},
		{`{"a":{"b":1}}`, `{"a":[1]}`, []string{`~ a: {"b":1} -> [1]`}},
		{`{"a":[1,2]}`, `{"a":[1,3,4]}`, []string{"~ a[1]: 2 -> 3", "+ a[2]: 4"}},
		{`{"a":[1,2]}`, `{"a":[1]}`, []string{"- a[1]: 2"}},
		{`{"a":null}`, `{}`, []string{"- a: null"}},
		// By their names, wherever they are.
		{`[{"name":"a","v":1},{"name":"b","v":2}]`, `[{"name":"b","v":2},{"name":"a","v":3}]`, []string{"~ [a].v: 1 -> 3"}},
		{`[{"name":"a"}]`, `[{"name":"b"}]`, []string{`- [a]: {"name":"a"}`, `+ [b]: {"name":"b"}`}},
		{`[{"name":"a"},{"name":"a"}]`, `[{"name":"a"}]`, []string{`- [1]: {"name":"a"}`}},
		{`[]`, `[{"name":"a"}]`, []string{`+ [a]: {"name":"a"}`}},
	} {
		var got []string
		for _, change := range compare.Trees(tree(t, c.from), tree(t, c.to)) {
			got = append(got, change.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s and %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
}

func TestWhatARuntimeAddsIsNotADifference(t *testing.T) {
	t.Parallel()
	want := tree(t, `{"image":"a","ports":[{"name":"http","port":80}],"env":{"A":"1"}}`)
	have := tree(t, `{"image":"a","uid":"x","ports":[{"name":"http","port":80,"nodePort":3},{"name":"more"}],"env":{"A":"1","B":"2"}}`)
	if changes := compare.Covers(want, have); len(changes) > 0 {
		t.Errorf("%v", changes)
	}
	changes := compare.Covers(want, tree(t, `{"image":"b","ports":[],"env":{"A":"1"}}`))
	if len(changes) != 2 || changes[0].Path != "image" || changes[1].Path != "ports[http]" || changes[1].Type != compare.Removed {
		t.Errorf("%v", changes)
	}
}

func TestRevisionsOfAWorkloadAreCompared(t *testing.T) {
	t.Parallel()
	read := func(text string) any {
		s, _, err := spec.Read([]byte("apiVersion: orch/v1\nmetadata: {name: web}\nimage: {repository: library/nginx, tag: '1'}\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		v, err := compare.Tree(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	changes := compare.Trees(read("network: {ports: [{name: http, port: 80}]}\n"), read("scaling: {replicas: 3}\nnetwork: {ports: [{name: http, port: 81}]}\n"))
	if len(changes) != 2 || changes[0].String() != "~ network.ports[http].port: 80 -> 81" || changes[1].String() != "~ scaling.replicas: 1 -> 3" {
		t.Errorf("%v", changes)
	}
}

// Changes that are made one after another lead from one tree to the other.
func TestRandomTreesAreToldApart(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var grow func(depth int) any
	grow = func(depth int) any {
		switch n := random.IntN(4); {
		case depth == 0 || n == 0:
			return float64(random.IntN(3))
		case n == 1:
			list := []any{}
			for range random.IntN(3) {
				list = append(list, grow(depth-1))
			}
			return list
		}
		object := map[string]any{}
		for range random.IntN(3) {
			object[string(rune('a'+random.IntN(3)))] = grow(depth - 1)
		}
		return object
	}
	for range 5000 {
		from, to := grow(3), grow(3)
		a, err := json.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(to)
		if err != nil {
			t.Fatal(err)
		}
		forth, back := compare.Trees(from, to), compare.Trees(to, from)
		if (string(a) == string(b)) != (len(forth) == 0) || len(forth) != len(back) {
			t.Fatalf("seed %d: %s and %s: %v, %v", seed, a, b, forth, back)
		}
		for i, c := range forth {
			r := back[i]
			if r.Path != c.Path || (c.Type == compare.Added) != (r.Type == compare.Removed) || (c.Type == compare.Changed) != (r.Type == compare.Changed) {
				t.Fatalf("seed %d: %s and %s: %v, %v", seed, a, b, forth, back)
			}
		}
	}
}
