package twin

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// apply is the algorithm of RFC 7396, section 2, word for word.
func apply(target, patch any) any {
	object, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if old, ok := target.(map[string]any); ok {
		for k, v := range old {
			out[k] = v
		}
	}
	for k, v := range object {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = apply(out[k], v)
		}
	}
	return out
}

func randomObject(r *rand.Rand, depth int, nulls bool) map[string]any {
	object := map[string]any{}
	for range r.IntN(4) {
		key := string(rune('a' + r.IntN(3)))
		switch kind := r.IntN(5); {
		case kind == 0 && nulls:
			object[key] = nil
		case kind <= 2 && depth > 0:
			object[key] = randomObject(r, depth-1, nulls)
		case kind == 3:
			object[key] = []any{float64(r.IntN(3)), nil}
		default:
			object[key] = float64(r.IntN(5))
		}
	}
	return object
}

func TestAComposedPatchDoesWhatItsPartsDoInTurnHoweverOftenItIsApplied(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a fixed seed: every run tries the same
	for range 20_000 {
		base := randomObject(r, 3, false)
		var want any = base
		patch := map[string]any{}
		states, known := []any{base}, any(base)
		for range 1 + r.IntN(5) {
			next := randomObject(r, 3, true)
			patch = compose(known, patch, next)
			known = union(known, next)
			want = apply(want, next)
			states = append(states, apply(base, patch))
		}
		// The control plane may have got any of the earlier compositions already.
		for i, state := range states {
			if got := apply(state, patch); !reflect.DeepEqual(got, want) {
				t.Fatalf("from state %d %v: patch %v makes %v, want %v", i, state, patch, got, want)
			}
		}
	}
}

func TestMergingIsThatOfRFC7396(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a fixed seed: every run tries the same
	for range 2000 {
		state, patch := randomObject(r, 3, false), randomObject(r, 3, true)
		a, _ := json.Marshal(state) // maps of these values always encode
		b, _ := json.Marshal(patch)
		out, err := merged(a, b)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		if want := apply(state, patch); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s with %s: %s, want %v", a, b, out, want)
		}
	}
}

func TestPatchesThatTheControlPlaneWouldRefuseAreRefusedHere(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"no object":  `[1]`,
		"null":       `null`,
		"two values": `{} {}`,
		"broken":     `{"a":`,
		"deep":       strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65),
		"large":      `{"a":"` + strings.Repeat("x", MaxBytes) + `"}`,
	} {
		if _, err := cleanPatch([]byte(raw)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	clean, err := cleanPatch([]byte(` { "ota": {"state": "succeeded"}, "n": 12345678901234567890, "x": null } `))
	if err != nil || string(clean) != `{"n":12345678901234567890,"x":null}` {
		t.Errorf("%s, %v", clean, err)
	}
}

func FuzzPatch(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":null}`, `{"a":{"b":[1,{"c":null}]},"ota":1}`, `{"a":1e400}`, `{"a":"\ud800"}`, `[`, `nul`} {
		f.Add([]byte(seed), []byte(`{"a":{"b":1}}`))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		first, err := cleanPatch(one)
		if err != nil {
			return
		}
		second, err := cleanPatch(two)
		if err != nil {
			return
		}
		both, _, err := composed([]byte("{}"), first, first, second)
		if err != nil {
			t.Fatalf("compose %s and %s: %v", first, second, err)
		}
		if _, err := merged([]byte("{}"), both); err != nil {
			t.Fatalf("merge %s: %v", both, err)
		}
	})
}
