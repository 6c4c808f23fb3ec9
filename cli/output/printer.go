package output

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Printer writes results to Out.
type Printer struct {
	Out io.Writer
	Style
	// Terminal means that the output is a terminal, so times are shown relative to now.
	Terminal bool
	Now      time.Time
	// Names returns the names of objects by their IDs, as far as they are known. Nil means that none is.
	Names func(kind string, ids []string) map[string]string
}

// NewPrinter returns a Printer. It checks whether w is a terminal.
func NewPrinter(w io.Writer, s Style) *Printer {
	return &Printer{Out: w, Style: s, Terminal: IsTerminal(w), Now: time.Now()}
}

// Object writes one object; in a table, one line per field.
func (p *Printer) Object(raw []byte) error {
	return p.ObjectAs(raw, func() error { return p.fields(raw) })
}

// ObjectAs writes one object. table writes it in table format.
func (p *Printer) ObjectAs(raw []byte, table func() error) error {
	switch {
	case p.Short():
		return p.one(raw)
	case p.Format == JSON:
		return writeJSON(p.Out, raw, "")
	case p.Format == YAML:
		return writeYAML(p.Out, raw)
	default:
		return table()
	}
}

// Value writes a value that does not come from the API.
func (p *Printer) Value(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return p.Object(raw)
}

// Line writes one object of an endless sequence: a line of JSON, a YAML document, or a line for
// people.
func (p *Printer) Line(raw []byte, line func() string) error {
	var err error
	switch {
	case p.Short():
		err = p.one(raw)
	case p.Format == JSON:
		_, err = fmt.Fprintf(p.Out, "%s\n", escapeJSON(raw))
	case p.Format == YAML:
		if _, err = io.WriteString(p.Out, "---\n"); err == nil {
			err = writeYAML(p.Out, raw)
		}
	default:
		_, err = fmt.Fprintln(p.Out, line())
	}
	return err
}
