package output

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// widest bounds a cell of a list, so that one long text does not push the rest
// off the screen. Objects shown alone are not cut.
const widest = 60

// Cell is v as a table shows it: times as Time, nothing as "-", maps as sorted
// k=v pairs, text escaped.
func (p *Printer) Cell(v any) string {
	switch t := v.(type) {
	case time.Time:
		return p.Time(t)
	case *time.Time:
		if t == nil {
			return "-"
		}
		return p.Time(*t)
	case json.RawMessage:
		return Escape(string(t))
	case bool:
		if t {
			return "yes"
		}
		return "no"
	}
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Map:
		pairs := make([]string, 0, rv.Len())
		for _, k := range rv.MapKeys() {
			pairs = append(pairs, fmt.Sprintf("%v=%v", k, rv.MapIndex(k)))
		}
		slices.Sort(pairs)
		return p.Cell(strings.Join(pairs, ","))
	case reflect.Slice:
		items := make([]string, rv.Len())
		for i := range items {
			items[i] = fmt.Sprint(rv.Index(i))
		}
		return p.Cell(strings.Join(items, ","))
	}
	if s := fmt.Sprint(v); s != "" {
		return Escape(s)
	}
	return "-"
}

// Time is how long ago t was when a person reads along, else RFC 3339.
func (p *Printer) Time(t time.Time) string {
	if !p.People {
		return t.UTC().Format(time.RFC3339)
	}
	d, format := p.Now.Sub(t), "%s ago"
	if d < 0 {
		d, format = -d, "in %s"
	}
	return fmt.Sprintf(format, about(d))
}

// about is a span of time in its largest unit.
func about(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/day)
	}
}

func cut(s string) string {
	if utf8.RuneCountInString(s) <= widest {
		return s
	}
	return string([]rune(s)[:widest-1]) + "…"
}
