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

// How many characters of a text a list shows to people. A long text does not push the following
// cells off the screen; the last cell has none after it. Output for programs and single objects are
// never truncated.
const (
	widest     = 60
	widestLast = 500
)

// Ref is a cell for the ID of another object. People see the object's name instead, if it is known.
type Ref struct{ Kind, ID string }

// Cell returns v as shown in a table: times as Time, missing values as "-", maps as sorted k=v
// pairs, text escaped.
func (p *Printer) Cell(v any) string {
	switch t := v.(type) {
	case time.Time:
		return p.Time(t)
	case *time.Time:
		if t == nil {
			return "-"
		}
		return p.Time(*t)
	case Ref:
		return p.Cell(t.ID)
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

// Time returns how long ago t was for people, and RFC 3339 otherwise.
func (p *Printer) Time(t time.Time) string {
	if !p.Terminal {
		return t.UTC().Format(time.RFC3339)
	}
	d, format := p.Now.Sub(t), "%s ago"
	if d < 0 {
		d, format = -d, "in %s"
	}
	return fmt.Sprintf(format, about(d))
}

// about returns a duration in its largest unit.
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

// cut truncates the cells of a row for people.
func cut(row []string) {
	for i, text := range row {
		limit := widest
		if i == len(row)-1 {
			limit = widestLast
		}
		if utf8.RuneCountInString(text) > limit {
			row[i] = string([]rune(text)[:limit-1]) + "…"
		}
	}
}
