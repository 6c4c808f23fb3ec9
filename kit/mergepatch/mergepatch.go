// Package mergepatch applies JSON merge patches (RFC 7396).
package mergepatch

import (
	"bytes"
	"encoding/json"
)

// Apply returns target with patch applied, as compact JSON: null deletes a member, objects are
// merged, everything else replaces. Arrays are replaced as a whole, and null inside them is kept.
// An empty target means no value. Both must be valid JSON, of a depth that the caller has limited.
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
