package twin

import (
	"bytes"
	"encoding/json"
)

// Diff returns the differences between two states: the old and the new values. Objects are compared
// member by member, everything else as a whole. Both results are objects, which are empty if
// nothing differs.
func Diff(was, is json.RawMessage) (before, after json.RawMessage, err error) {
	var old, now map[string]json.RawMessage
	if err := json.Unmarshal(was, &old); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(is, &now); err != nil {
		return nil, nil, err
	}
	for key, value := range old {
		other, kept := now[key]
		if !kept {
			continue
		}
		if isObject(value) && isObject(other) {
			if old[key], now[key], err = Diff(value, other); err != nil {
				return nil, nil, err
			}
			value, other = old[key], now[key]
		}
		if same(value, other) {
			delete(old, key)
			delete(now, key)
		}
	}
	if before, err = json.Marshal(old); err != nil {
		return nil, nil, err
	}
	after, err = json.Marshal(now)
	return before, after, err
}

func isObject(raw json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) }

// same reports whether two values are equal apart from white space.
func same(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}
