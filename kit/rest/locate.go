package rest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// locate returns the path of the first value in a JSON document that cannot be decoded into its place
// in a Go type, such as events.3.event_time, and the error from decoding that value alone. The errors
// of encoding/json name no path for a time.Time, an element of a map or the index in a list. ok is
// false if no value is wrong by itself.
func locate(raw []byte, t reflect.Type) (path string, err error, ok bool) {
	var steps []string
	err = locateIn(raw, t, &steps)
	slices.Reverse(steps)
	return strings.Join(steps, "."), err, err != nil
}

// locateIn adds the steps of the path in reverse.
func locateIn(raw []byte, t reflect.Type, steps *[]string) error {
	into := reflect.New(t)
	err := json.Unmarshal(raw, into.Interface())
	if err == nil {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, own := reflect.New(t).Interface().(json.Unmarshaler); own {
		return err
	}
	below := func(step string, value []byte, t reflect.Type) bool {
		inner := locateIn(value, t, steps)
		if inner == nil {
			return false
		}
		*steps, err = append(*steps, step), inner
		return true
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return err
		}
		for i, item := range items {
			if below(strconv.Itoa(i), item, t.Elem()) {
				return err
			}
		}
	case reflect.Map:
		var items map[string]json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return err
		}
		keys := make([]string, 0, len(items))
		for key := range items {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			if below(key, items[key], t.Elem()) {
				return err
			}
		}
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil {
			return err
		}
		for _, field := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if value, given := fields[name]; given && name != "-" && below(name, value, field.Type) {
				return err
			}
		}
	}
	return err
}
