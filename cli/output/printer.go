package output

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Printer writes answers to Out.
type Printer struct {
	Out    io.Writer
	Format Format
	// People tells that a person reads along, so times are told as distances.
	People bool
	Now    time.Time
}

// NewPrinter returns a printer; it asks w whether it is a terminal.
func NewPrinter(w io.Writer, f Format) *Printer {
	return &Printer{Out: w, Format: f, People: IsTerminal(w), Now: time.Now()}
}

// Object writes one object: a line a field in a table.
func (p *Printer) Object(raw []byte) error {
	return p.ObjectAs(raw, func() error { return p.fields(raw) })
}

// ObjectAs writes one object, whose table is made by the caller.
func (p *Printer) ObjectAs(raw []byte, table func() error) error {
	switch p.Format {
	case JSON:
		return writeJSON(p.Out, raw, "")
	case YAML:
		return writeYAML(p.Out, raw)
	default:
		return table()
	}
}

// Value writes one value of this program's own.
func (p *Printer) Value(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return p.Object(raw)
}

// Line writes one object of an endless sequence: a line of JSON, a YAML
// document, or the line that a person reads.
func (p *Printer) Line(raw []byte, line func() string) error {
	var err error
	switch p.Format {
	case JSON:
		_, err = fmt.Fprintf(p.Out, "%s\n", escapeJSON(raw))
	case YAML:
		if _, err = io.WriteString(p.Out, "---\n"); err == nil {
			err = writeYAML(p.Out, raw)
		}
	default:
		_, err = fmt.Fprintln(p.Out, line())
	}
	return err
}
