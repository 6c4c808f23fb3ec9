package answer

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// required returns an error if the text lacks a field that the contract requires. In the generated
// types, these are the fields without omitempty. Decoding alone would accept {} for anything, and
// null for an empty list.
func required[T any](text []byte) error {
	return requiredIn(reflect.TypeFor[T](), text, "the body")
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func requiredIn(t reflect.Type, text json.RawMessage, at string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	null := bytes.Equal(bytes.TrimSpace(text), []byte("null"))
	switch {
	case t.Kind() == reflect.Slice && null:
		return NewInvalid("%s is null, not a list", at)
	case t.Kind() == reflect.Slice:
		var items []json.RawMessage
		if err := json.Unmarshal(text, &items); err != nil {
			return NewInvalid("%s is not a list", at)
		}
		for _, item := range items {
			if err := requiredIn(t.Elem(), item, "an item of "+at); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct && null:
		return NewInvalid("%s is null, not an object", at)
	case t.Kind() == reflect.Struct:
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			return NewInvalid("%s is not an object", at)
		}
		return requiredFields(t, members)
	}
	return nil
}

func requiredFields(t reflect.Type, members map[string]json.RawMessage) error {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		text, there := members[name]
		optional := strings.Contains(options, "omitempty")
		if !there {
			if optional {
				continue
			}
			return NewInvalid("%s is missing", name)
		}
		if bytes.Equal(text, []byte("null")) {
			switch f.Type.Kind() {
			case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
				continue // nullable in the contract, or an empty list
			}
			return NewInvalid("%s is null", name)
		}
		if err := requiredIn(f.Type, text, name); err != nil {
			return err
		}
	}
	return nil
}
