package document

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Schema returns the JSON Schema (draft 2020-12) of documents that are read into a struct. Editors complete and check
// by it. It knows what the tags say; checks across values are the reader's.
func (s *Syntax) Schema(t reflect.Type, title string) map[string]any {
	all := s.objectSchema(t)
	all["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	all["title"] = title
	return all
}

func (s *Syntax) objectSchema(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		field := t.Field(i)
		key := keyOf(field)
		if key == "" {
			continue
		}
		one := s.typeSchema(field.Type, field.Tag)
		one["description"] = field.Tag.Get("help")
		if text := field.Tag.Get("default"); text != "" {
			one["default"] = s.literal(field.Type, text)
		}
		properties[key] = one
		if field.Tag.Get("required") == "true" {
			required = append(required, key)
		}
	}
	o := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func (s *Syntax) typeSchema(t reflect.Type, tag reflect.StructTag) map[string]any {
	items := func() int {
		if n, err := strconv.Atoi(tag.Get("items")); err == nil {
			return n
		}
		return s.MaxItems
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return s.objectSchema(t.Elem())
	case isObject(t):
		return s.objectSchema(t)
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": s.typeSchema(t.Elem(), tag), "maxItems": items()}
	case t.Kind() == reflect.Map:
		return map[string]any{
			"type": "object", "additionalProperties": s.typeSchema(t.Elem(), tag), "maxProperties": items(),
		}
	}
	return s.scalarSchema(t, tag)
}

// scalarSchema describes a single value. Numbers may also be given as texts, and the other way round.
func (s *Syntax) scalarSchema(t reflect.Type, tag reflect.StructTag) map[string]any {
	if own, ok := s.Scalars[t]; ok {
		one := map[string]any{"type": []string{"string", "number"}}
		if own.Pattern != "" {
			one["pattern"] = own.Pattern
		}
		return one
	}
	one := map[string]any{"type": "string"}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		one["pattern"] = DurationPattern
	case t == reflect.TypeFor[netip.Addr]():
		one["anyOf"] = []any{map[string]any{"format": "ipv4"}, map[string]any{"format": "ipv6"}}
	case t.Kind() == reflect.Bool:
		one["type"] = "boolean"
	case t.Kind() == reflect.String:
		one["type"] = []string{"string", "number", "boolean"}
		if words := strings.Fields(tag.Get("enum")); len(words) > 0 {
			one = map[string]any{"enum": words}
		}
		if form := s.Forms[tag.Get("form")]; form.Pattern != nil {
			one["type"] = "string"
			one["pattern"] = form.Pattern.String()
			if form.Max > 0 {
				one["maxLength"] = form.Max
			}
		}
	default:
		one["type"] = "integer"
		if t.Kind() == reflect.Float64 {
			one["type"] = "number"
		}
		one["minimum"] = 0
		for name, bound := range map[string]string{"minimum": tag.Get("min"), "maximum": tag.Get("max")} {
			if bound != "" {
				one[name] = json.Number(bound)
			}
		}
	}
	return one
}

// DurationPattern matches what time.ParseDuration reads, but for negative ones.
const DurationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`

// literal returns a default as a JSON value.
func (s *Syntax) literal(t reflect.Type, text string) any {
	if _, own := s.Scalars[t]; own || t == reflect.TypeFor[time.Duration]() {
		return text
	}
	switch t.Kind() {
	case reflect.Bool:
		return text == "true"
	case reflect.Int, reflect.Uint16, reflect.Uint32, reflect.Float64:
		return json.Number(text)
	}
	return text
}
