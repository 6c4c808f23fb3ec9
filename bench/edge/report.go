package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// report writes Markdown.
type report struct{ w io.Writer }

func (r *report) section(title string) { r.say("\n## %s\n", title) }

func (r *report) say(format string, args ...any) { _, _ = fmt.Fprintf(r.w, format+"\n", args...) }

func (r *report) table(head []string, rows [][]string) {
	r.say("| %s |", strings.Join(head, " | "))
	r.say("|%s", strings.Repeat("---|", len(head)))
	for _, row := range rows {
		r.say("| %s |", strings.Join(row, " | "))
	}
	r.say("")
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
