package configfile

import (
	"reflect"
	"strings"
)

// Markdown returns a table of all settings of a document, for the documentation.
func Markdown() string {
	b := &strings.Builder{}
	b.WriteString("| key | type | what it does |\n|---|---|---|\n")
	describe(b, "", reflect.TypeFor[Config]())
	return b.String()
}

func describe(b *strings.Builder, prefix string, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		path := prefix + f.Tag.Get("toml")
		kind, inner := f.Type, f.Type
		if kind.Kind() == reflect.Slice {
			inner = kind.Elem()
		}
		if help := f.Tag.Get("help"); help != "" {
			b.WriteString("| `" + path + "` | " + typeName(kind) + " | " + help + " |\n")
		}
		if inner.Kind() == reflect.Struct {
			if kind.Kind() == reflect.Slice {
				path += "[]"
			}
			describe(b, path+".", inner)
		}
	}
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Struct:
		return "table"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return "tables"
		}
		return "texts"
	}
	return "text"
}
