package configfile

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// Row is a key in the reference of the document.
type Row struct {
	Key     string // the path of the key, with [] after lists
	Type    string
	Default string // empty if there is none, or "required"
	Meaning string // one or more sentences
}

// Reference lists all keys, in the order of the document.
func Reference() []Row { return rowsOf(reflect.TypeFor[Config](), "") }

func rowsOf(t reflect.Type, prefix string) (rows []Row) {
	for i := range t.NumField() {
		field := t.Field(i)
		key := field.Tag.Get("key")
		if key == "" {
			continue
		}
		row := Row{
			Key:     prefix + key,
			Default: field.Tag.Get("default"),
			Meaning: field.Tag.Get("help") + span(field.Tag),
		}
		if field.Tag.Get("required") == "true" {
			row.Default = "required"
		}
		inner := field.Type
		switch {
		case inner.Kind() == reflect.Pointer:
			inner = inner.Elem()
		case inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct && isObject(inner.Elem()):
			inner = inner.Elem()
			row.Key, row.Type = row.Key+"[]", "list"
		}
		if inner.Kind() == reflect.Struct && isObject(inner) {
			if row.Type == "" {
				row.Type = "keys"
			}
			rows = append(append(rows, row), rowsOf(inner, row.Key+".")...)
			continue
		}
		row.Type = typeName(field.Type)
		rows = append(rows, row)
	}
	return rows
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[netip.Addr]():
		return "address"
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[datapath.MAC]():
		return "Ethernet address"
	case reflect.TypeFor[PortRange]():
		return "FIRST-LAST"
	case reflect.TypeFor[probe.StatusRange]():
		return "status or FIRST-LAST"
	case reflect.TypeFor[datapath.Protocol](), reflect.TypeFor[datapath.Mode](), reflect.TypeFor[Community]():
		return "word"
	}
	switch t.Kind() {
	case reflect.Slice:
		if one := typeName(t.Elem()); strings.HasSuffix(one, "s") {
			return "list of " + one + "es"
		}
		return "list of " + typeName(t.Elem()) + "s"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	}
	return "number"
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
func Markdown() string {
	var b strings.Builder
	b.WriteString("| key | type | default | what it means |\n|---|---|---|---|\n")
	for _, r := range Reference() {
		value := r.Default
		if value != "" && value != "required" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Key, r.Type, value, strings.ReplaceAll(r.Meaning, "|", `\|`))
	}
	return b.String()
}
