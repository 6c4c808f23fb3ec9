package twin

import (
	"bytes"
	"encoding/json"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/mergepatch"
)

const (
	// MaxBytes is the maximum size of a reported state, as compact JSON. The control plane has the
	// same limit.
	MaxBytes = 32 << 10
	maxDepth = 64
	otaKey   = "ota" // reserved for the control plane
)

// cleanPatch checks a merge patch (RFC 7396) from a program. It returns the patch as compact JSON,
// without the key "ota".
func cleanPatch(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) > 4*MaxBytes {
		return nil, tooLarge()
	}
	depth := 0
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; {
		token, err := dec.Token()
		if err != nil {
			break // the end, or invalid JSON, which decoding will report
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxDepth {
				return nil, fault.InvalidField("body", "is nested deeper than %d", maxDepth)
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	object, err := decode(raw)
	if err != nil {
		return nil, err
	}
	delete(object, otaKey)
	clean, err := json.Marshal(object)
	if err != nil {
		return nil, notObject()
	}
	if len(clean) > MaxBytes {
		return nil, tooLarge()
	}
	return clean, nil
}

func decode(raw json.RawMessage) (map[string]any, error) {
	var object map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // keep digits unchanged
	if err := dec.Decode(&object); err != nil || object == nil || dec.More() {
		return nil, notObject()
	}
	return object, nil
}

func notObject() error { return fault.InvalidField("body", "must be a JSON object") }

func tooLarge() error {
	f := fault.New(fault.TooLarge, "body: the reported state would be larger than %d bytes", MaxBytes)
	f.Field = "body"
	return f
}

// merged returns the state after the patch.
func merged(state, patch json.RawMessage) (json.RawMessage, error) {
	if len(patch) == 0 {
		return state, nil
	}
	out, err := mergepatch.Apply(state, patch)
	if err != nil {
		return nil, fault.InvalidField("body", "is not a JSON merge patch")
	}
	return out, nil
}

// composed adds a patch to the waiting one. It returns a patch that has the same effect as first
// and then second, and the new touched. touched is an object with all keys of the patches that were
// composed since the control plane last answered one.
//
// The control plane may have received any of the earlier combined patches if its response was lost.
// The result is correct for each of the states that it can be in.
func composed(base, touched, first, second json.RawMessage) (sum, nowTouched json.RawMessage, err error) {
	if len(first) == 0 {
		return second, second, nil
	}
	var objects [4]map[string]any
	for i, raw := range []json.RawMessage{base, touched, first, second} {
		if objects[i], err = decode(raw); err != nil {
			return nil, nil, err
		}
	}
	known := union(objects[0], objects[1])
	if sum, err = json.Marshal(compose(known, objects[2], objects[3])); err != nil {
		return nil, nil, err
	}
	if nowTouched, err = json.Marshal(union(objects[1], objects[3])); err == nil && len(nowTouched) > MaxBytes {
		// New keys keep coming while nothing is answered. Limit the size: then a lost response can
		// leave a key that a later patch has replaced.
		nowTouched = json.RawMessage("{}")
	}
	return sum, nowTouched, err
}

// union returns an object with the keys of both, at every level.
func union(a, b any) any {
	m, aIsObject := a.(map[string]any)
	n, bIsObject := b.(map[string]any)
	if !bIsObject {
		return a
	}
	if !aIsObject {
		return b
	}
	out := make(map[string]any, len(m)+len(n))
	for k, v := range m {
		out[k] = v
	}
	for k, v := range n {
		out[k] = union(m[k], v)
	}
	return out
}

// compose does the work of composed on decoded values. known has every key that may exist.
func compose(known any, first, second map[string]any) map[string]any {
	out := make(map[string]any, len(first)+len(second))
	for k, v := range first {
		out[k] = v
	}
	for k, v := range second {
		object, isObject := v.(map[string]any)
		before, touched := first[k]
		if !isObject || !touched {
			out[k] = v
			continue
		}
		under := member(known, k)
		if earlier, ok := before.(map[string]any); ok {
			out[k] = compose(under, earlier, object)
		} else {
			// first has replaced or deleted this value, so the object must replace it too. A merge
			// patch alone would merge into the old value.
			out[k] = replace(under, object)
		}
	}
	return out
}

// replace returns a patch that deletes all known members that are not in object.
func replace(known any, object map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	if old, ok := known.(map[string]any); ok {
		for k := range old {
			out[k] = nil
		}
	}
	for k, v := range object {
		if inner, ok := v.(map[string]any); ok {
			out[k] = replace(member(known, k), inner)
		} else {
			out[k] = v
		}
	}
	return out
}

func member(object any, key string) any {
	if m, ok := object.(map[string]any); ok {
		return m[key]
	}
	return nil
}
