// Package twin holds the rules of device twins: what desired and reported state may contain, how
// reports are merged, and how a twin's ETag is computed.
//
// A device's update is shown as desired.ota and reported.ota. Those two keys belong to the control
// plane: values that users or agents send for them are dropped.
package twin

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/mergepatch"
)

// MaxBytes is the maximum size of a desired or reported state as compact JSON, in bytes.
const MaxBytes = 32 << 10

// maxDepth limits nesting, so that a hostile document cannot exhaust the stack of its readers.
const maxDepth = 64

// OTAKey is the key that belongs to the control plane.
const OTAKey = "ota"

// Clean checks a state that a caller sent and returns it as compact JSON without the key "ota".
// field is the name of the field in errors.
func Clean(field string, raw json.RawMessage) (json.RawMessage, error) {
	if err := check(field, raw); err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, fault.InvalidField(field, "must be a JSON object")
	}
	delete(object, OTAKey)
	return encode(field, object)
}

// Merge applies a JSON merge patch (RFC 7396) to the reported state: null
// deletes, objects merge, everything else replaces.
func Merge(field string, reported, patch json.RawMessage) (json.RawMessage, error) {
	if err := check(field, patch); err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(patch, &object); err != nil || object == nil {
		return nil, fault.InvalidField(field, "must be a JSON object")
	}
	delete(object, OTAKey)
	patch, err := encode(field, object)
	if err != nil {
		return nil, err
	}
	merged, err := mergepatch.Apply(reported, patch)
	if err != nil {
		return nil, fault.InvalidField(field, "is not a JSON merge patch")
	}
	return limited(field, merged)
}

// With returns the state with the key "ota" set to value. If value is empty, it returns the state
// unchanged.
func With(state json.RawMessage, value json.RawMessage) json.RawMessage {
	if len(value) == 0 {
		return state
	}
	// The stored state never has this key, so it can be inserted at the front.
	rest := bytes.TrimSpace(state)[1:]
	comma := ","
	if bytes.Equal(bytes.TrimSpace(rest), []byte("}")) {
		comma = ""
	}
	return fmt.Appendf(nil, `{%q:%s%s%s`, OTAKey, value, comma, rest)
}

// ETag returns the entity tag for the versions of a twin.
func ETag(desiredVersion, reportedVersion int64) string {
	return fmt.Sprintf(`"%d-%d"`, desiredVersion, reportedVersion)
}

func check(field string, raw json.RawMessage) error {
	if len(raw) > 4*MaxBytes { // allows for white space, within limits
		return tooLarge(field)
	}
	depth := 0
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		tok, err := dec.Token()
		if err != nil {
			break // the end, or invalid JSON, which decoding reports
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxDepth {
				return fault.InvalidField(field, "is nested deeper than %d", maxDepth)
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return nil
}

func encode(field string, object map[string]json.RawMessage) (json.RawMessage, error) {
	b, err := json.Marshal(object)
	if err != nil {
		return nil, fault.InvalidField(field, "must be a JSON object")
	}
	return limited(field, b)
}

func limited(field string, b json.RawMessage) (json.RawMessage, error) {
	if len(b) > MaxBytes {
		return nil, tooLarge(field)
	}
	return b, nil
}

func tooLarge(field string) error {
	f := fault.New(fault.TooLarge, "%s: larger than %d bytes", field, MaxBytes)
	f.Field = field
	return f
}
