package output

import (
	"fmt"
	"io"
	"time"
)

// Progress shows the progress of a long job in a line on a terminal. If the output is not a
// terminal, it writes nothing, since progress is of no use in a log.
type Progress struct {
	w     io.Writer
	show  bool
	total int64
	start time.Time
}

// NewProgress starts a job of total units; 0 means that the number is unknown.
func NewProgress(w io.Writer, total int64) *Progress {
	return &Progress{w: w, show: IsTerminal(w), total: total, start: time.Now()}
}

// Update redraws the line: done units of the total, and count things so far.
func (p *Progress) Update(done, count int64, things string) {
	if !p.show {
		return
	}
	bar := ""
	if p.total > 0 {
		bar = fmt.Sprintf("%s %3d%%  ", Bar(done, p.total, 30), min(done*100/p.total, 100))
	}
	rate := float64(count) / max(time.Since(p.start).Seconds(), 0.001)
	_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s%d %s, %.0f/s", bar, count, things, rate)
}

// Done removes the line.
func (p *Progress) Done() {
	if p.show {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}
