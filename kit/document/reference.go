package document

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// Row is a key in the reference of a syntax.
type Row struct {
	Key     string // the path of the key, with [] after lists
	Type    string
	Default string // empty if there is none, or "required"
	Meaning string // one or more sentences
}

// Reference lists all keys of a struct, in the order of the document.
func (s *Syntax) Reference(t reflect.Type) []Row { return s.rowsOf(t, "") }

func (s *Syntax) rowsOf(t reflect.Type, prefix string) (rows []Row) {
	for i := range t.NumField() {
		field := t.Field(i)
		key := keyOf(field)
		if key == "" {
			continue
		}
		row := Row{Key: prefix + key, Default: field.Tag.Get("default"), Meaning: field.Tag.Get("help") + span(field.Tag)}
		if field.Tag.Get("required") == "true" {
			row.Default = "required"
		}
		inner := field.Type
		switch {
		case inner.Kind() == reflect.Pointer:
			inner = inner.Elem()
		case inner.Kind() == reflect.Slice && isObject(inner.Elem()):
			inner = inner.Elem()
			row.Key, row.Type = row.Key+"[]", "list"
		}
		if isObject(inner) {
			if row.Type == "" {
				row.Type = "keys"
			}
			rows = append(append(rows, row), s.rowsOf(inner, row.Key+".")...)
			continue
		}
		row.Type = s.typeName(field.Type)
		rows = append(rows, row)
	}
	return rows
}

func (s *Syntax) typeName(t reflect.Type) string {
	if own, ok := s.Scalars[t]; ok {
		return own.Name
	}
	switch t {
	case reflect.TypeFor[netip.Addr]():
		return "address"
	case reflect.TypeFor[time.Duration]():
		return "duration"
	}
	switch t.Kind() {
	case reflect.Slice:
		return "list of " + plural(s.typeName(t.Elem()))
	case reflect.Map:
		return "keys with " + plural(s.typeName(t.Elem()))
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	}
	return "number"
}

func plural(word string) string {
	if strings.HasSuffix(word, "s") {
		return word + "es"
	}
	return word + "s"
}

func span(tag reflect.StructTag) string {
	lowest, highest := tag.Get("min"), tag.Get("max")
	switch {
	case lowest != "" && highest != "":
		return " Allowed: " + lowest + " to " + highest + "."
	case highest != "":
		return " Allowed: at most " + highest + "."
	}
	return "" // a lower bound alone is always 1, which needs no mention
}

// Markdown returns the reference as a Markdown table.
func (s *Syntax) Markdown(t reflect.Type) string {
	var b strings.Builder
	b.WriteString("| key | type | default | what it means |\n|---|---|---|---|\n")
	for _, r := range s.Reference(t) {
		value := r.Default
		if value != "" && value != "required" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Key, r.Type, value, strings.ReplaceAll(r.Meaning, "|", `\|`))
	}
	return b.String()
}
