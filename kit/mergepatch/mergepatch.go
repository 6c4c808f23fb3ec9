// Package mergepatch applies JSON merge patches (RFC 7396).
package mergepatch

import (
	"bytes"
	"encoding/json"
)

// Apply returns target after patch, as compact JSON: null deletes a member, objects merge, everything
// else replaces. Arrays are values like others, and what stands in them, null included, stays as it
// is. An empty target is no value. Both must be valid JSON, of a depth that the caller has bounded.
func Apply(target, patch json.RawMessage) (json.RawMessage, error) {
	if !isObject(patch) {
		var out bytes.Buffer
		err := json.Compact(&out, patch)
		return out.Bytes(), err
	}
	var changes map[string]json.RawMessage
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, err
	}
	merged := map[string]json.RawMessage{}
	if isObject(target) {
		if err := json.Unmarshal(target, &merged); err != nil {
			return nil, err
		}
	}
	for key, value := range changes {
		if bytes.Equal(bytes.TrimSpace(value), []byte("null")) {
			delete(merged, key)
			continue
		}
		var err error
		if merged[key], err = Apply(merged[key], value); err != nil {
			return nil, err
		}
	}
	return json.Marshal(merged)
}

func isObject(raw json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) }
