package output

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Rows writes rows of cells, aligned in columns. An empty string stays empty, so that a row may
// omit columns.
func (p *Printer) Rows(rows [][]any) error {
	tw := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, v := range row {
			if v != "" {
				cells[i] = p.Cell(v)
			}
		}
		if err := writeRow(tw, cells); err != nil {
			return err
		}
	}
	return tw.Flush()
}

func writeRow(w io.Writer, cells []string) error {
	_, err := fmt.Fprintln(w, strings.Join(cells, "\t"))
	return err
}
