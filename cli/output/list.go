package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Columns define how a table shows a list of T.
type Columns[T any] struct {
	Heads []string
	Row   func(T) []any
}

// List writes a list page by page, so that a long one needs little memory. Columns of a table are
// aligned within a page.
type List[T any] struct {
	p       *Printer
	columns Columns[T]
	begun   bool
}

// NewList starts a list. Call Close after the last page, even if there was none.
func NewList[T any](p *Printer, columns Columns[T]) *List[T] {
	return &List[T]{p: p, columns: columns}
}

// Page writes a page of items.
func (l *List[T]) Page(items []json.RawMessage) error {
	if len(items) == 0 {
		return nil
	}
	switch {
	case l.p.Short():
		for _, item := range items {
			if err := l.p.one(item); err != nil {
				return err
			}
		}
		return nil
	case l.p.Format == JSON:
		return l.json(items)
	case l.p.Format == YAML:
		l.begun = true
		for _, item := range items {
			one := append(append([]byte("["), item...), ']')
			if err := writeYAML(l.p.Out, one); err != nil {
				return err
			}
		}
		return nil
	default:
		return l.table(items)
	}
}

// Close ends the list.
func (l *List[T]) Close() error {
	var err error
	switch {
	case l.p.Short():
	case l.p.Format == JSON && l.begun:
		_, err = io.WriteString(l.p.Out, "\n]\n")
	case !l.p.Style.People() && !l.begun:
		_, err = io.WriteString(l.p.Out, "[]\n")
	case !l.begun:
		err = l.table(nil) // only the heads: the list is empty
	}
	return err
}

func (l *List[T]) json(items []json.RawMessage) error {
	for _, item := range items {
		before := ",\n  "
		if !l.begun {
			before = "[\n  "
		}
		l.begun = true
		var b strings.Builder
		if err := writeJSON(&b, item, "  "); err != nil {
			return err
		}
		if _, err := io.WriteString(l.p.Out, before+strings.TrimSuffix(b.String(), "\n")); err != nil {
			return err
		}
	}
	return nil
}

func (l *List[T]) table(items []json.RawMessage) error {
	tw := tabwriter.NewWriter(l.p.Out, 0, 0, 3, ' ', 0)
	if !l.begun {
		if err := writeRow(tw, l.columns.Heads); err != nil {
			return err
		}
	}
	l.begun = true
	rows := make([][]any, len(items))
	for i, item := range items {
		var v T
		if err := json.Unmarshal(item, &v); err != nil {
			return BadAnswer(err)
		}
		rows[i] = l.columns.Row(v)
	}
	l.p.name(rows)
	for _, row := range rows {
		cells := make([]string, len(l.columns.Heads))
		for i, c := range row {
			cells[i] = l.p.Cell(c)
		}
		if l.p.Terminal && l.p.Format != Wide {
			cut(cells)
		}
		if err := writeRow(tw, cells); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// name replaces references by the names of what they refer to. It asks for the names of a kind once.
func (p *Printer) name(rows [][]any) {
	if p.Names == nil {
		return
	}
	ids := map[string][]string{}
	for _, row := range rows {
		for _, cell := range row {
			if ref, ok := cell.(Ref); ok && ref.ID != "" && !slices.Contains(ids[ref.Kind], ref.ID) {
				ids[ref.Kind] = append(ids[ref.Kind], ref.ID)
			}
		}
	}
	for kind, some := range ids {
		names := p.Names(kind, some)
		for _, row := range rows {
			for i, cell := range row {
				if ref, ok := cell.(Ref); ok && ref.Kind == kind && names[ref.ID] != "" {
					row[i] = names[ref.ID]
				}
			}
		}
	}
}

// Add writes items that do not come from the API.
func (l *List[T]) Add(items ...T) error {
	raw := make([]json.RawMessage, len(items))
	for i, item := range items {
		text, err := json.Marshal(item)
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		raw[i] = text
	}
	return l.Page(raw)
}
