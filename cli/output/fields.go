package output

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// field is one line of an object that is shown alone.
type field struct {
	name  string
	value string
}

// fields writes an object, one line per field; identifying fields come first.
func (p *Printer) fields(raw []byte) error {
	all, err := p.flatten("", raw)
	if err != nil {
		return BadAnswer(err)
	}
	slices.SortStableFunc(all, func(a, b field) int { return rank(a.name) - rank(b.name) })
	tw := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	for _, f := range all {
		title := strings.ToUpper(strings.NewReplacer("_", " ", ".", " ").Replace(f.name))
		if err := writeRow(tw, []string{Escape(title), f.value}); err != nil {
			return err
		}
	}
	return tw.Flush()
}

func rank(name string) int {
	first := []string{"id", "device_id", "event_id", "name", "status"}
	if i := slices.Index(first, name); i >= 0 {
		return i
	}
	return len(first)
}

// flatten lists an object's fields in order. Nested objects become fields of their own, except
// those whose keys users choose.
func (p *Printer) flatten(prefix string, raw []byte) ([]field, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, err
	}
	keys, err := keysOf(raw)
	if err != nil {
		return nil, err
	}
	var all []field
	for _, key := range keys {
		value := values[key]
		if value[0] == '{' && !isFree(key) {
			nested, err := p.flatten(prefix+key+".", value)
			if err != nil {
				return nil, err
			}
			all = append(all, nested...)
			continue
		}
		all = append(all, field{prefix + key, p.text(value)})
	}
	return all, nil
}

// isFree reports whether an object of the API has no fixed fields.
func isFree(key string) bool {
	switch key {
	case "labels", "headers", "env", "payload", "detail", "desired", "reported":
		return true
	}
	return false
}

// text returns a JSON value as shown to people.
func (p *Printer) text(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return Escape(string(raw))
	}
	switch t := v.(type) {
	case nil:
		return "-"
	case bool:
		return p.Cell(t)
	case string:
		if when, err := time.Parse(time.RFC3339Nano, t); err == nil {
			return p.Time(when)
		}
		return p.Cell(t)
	case []any:
		if texts, ok := allStrings(t); ok {
			return p.Cell(texts)
		}
	case map[string]any:
		if len(t) == 0 {
			return "-"
		}
	}
	// Numbers and nested values are printed unchanged, on one line.
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return Escape(string(raw))
	}
	return Escape(b.String())
}

func allStrings(items []any) ([]string, bool) {
	texts := make([]string, len(items))
	for i, item := range items {
		s, ok := item.(string)
		if !ok {
			return nil, false
		}
		texts[i] = s
	}
	return texts, true
}

// keysOf lists an object's keys in their order, which a map would lose.
func keysOf(raw []byte) ([]string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var keys []string
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return nil, err
		}
	}
	return keys, nil
}
