package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Short reports whether objects are printed one by one, with less than all fields: as IDs, as names,
// or by a template.
func (p *Printer) Short() bool { return p.Quiet || p.Format == Name || p.template.parsed != nil }

// one prints an object on a line of its own.
func (p *Printer) one(raw []byte) error {
	if p.template.parsed != nil {
		return p.byTemplate(raw)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil // nothing with a name, such as an empty answer
	}
	fields := idFields
	if p.Format == Name {
		fields = append([]string{"name"}, idFields...)
	}
	for _, field := range fields {
		if value, ok := object[field]; ok {
			return p.line(value)
		}
	}
	for _, value := range object {
		if len(object) == 1 { // such as a count
			return p.line(value)
		}
	}
	return nil
}

// idFields are the fields in which the APIs have the ID of an object, in the order of precedence.
var idFields = []string{"id", "device_id", "event_id", "site_id", "digest", "seq", "name", "vip"}

// line prints a JSON string as text, and every other value as JSON.
func (p *Printer) line(value json.RawMessage) error {
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	_, err := fmt.Fprintln(p.Out, Escape(text))
	return err
}

// byTemplate prints an object by the template, which sees the fields of the API.
func (p *Printer) byTemplate(raw []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // keep all digits of large numbers
	var object any
	if err := decoder.Decode(&object); err != nil {
		return BadAnswer(err)
	}
	var b strings.Builder
	if err := p.template.parsed.Execute(&b, object); err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	text := b.String()
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(p.Out, escapeLines(text))
	return err
}

// escapeLines escapes control characters except line ends and tabs.
func escapeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t")
		for j := range cells {
			cells[j] = Escape(cells[j])
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}
