package verb

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/cli/output"
)

// redraw is the minimum time between redraws of a line.
const redraw = 100 * time.Millisecond

// Progress shows the progress of a job in a line on a terminal. If the output is not a terminal, it
// writes nothing, since progress is of no use in a log. It is safe for concurrent use.
type Progress struct {
	w     io.Writer
	show  bool
	start time.Time

	mu    sync.Mutex
	drawn time.Time
}

// Progress starts a line.
func (c *Call[A]) Progress() *Progress {
	w := c.Cmd.ErrOrStderr()
	return &Progress{w: w, show: output.IsTerminal(w), start: time.Now()}
}

// Watched reports whether the output is a terminal.
func (p *Progress) Watched() bool { return p.show }

// Elapsed returns the time since the line was started.
func (p *Progress) Elapsed() time.Duration { return time.Since(p.start) }

// Draw draws the line: a bar for done of total, unless total is 0, and a text.
func (p *Progress) Draw(done, total int64, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.show || time.Since(p.drawn) < redraw && done < total {
		return
	}
	p.drawn = time.Now()
	bar := ""
	if total > 0 {
		bar = fmt.Sprintf("%s %3d%%  ", output.Bar(done, total, 30), min(max(done, 0)*100/total, 100))
	}
	_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s%s", bar, output.Escape(text))
}

// Bytes draws the transferred bytes of a total, which is 0 or less if unknown.
func (p *Progress) Bytes(done, total int64) {
	rate := float64(done) / max(time.Since(p.start).Seconds(), 0.001)
	p.Draw(done, max(total, 0), fmt.Sprintf("%s, %s/s", Bytes(done), Bytes(int64(rate))))
}

// Done removes the line.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.show {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.show = false
	}
}

// While shows a text and the elapsed time while f runs.
func (c *Call[A]) While(ctx context.Context, text string, f func() error) error {
	return c.whileOf(ctx, text, func() (done, total int64) { return 0, 0 }, f)
}

// whileOf is While with a bar for done of total, unless total is 0.
func (c *Call[A]) whileOf(ctx context.Context, text string, of func() (done, total int64), f func() error) error {
	p := c.Progress()
	defer p.Done()
	ctx, cancel := context.WithCancel(ctx)
	var drawing sync.WaitGroup
	if p.Watched() {
		drawing.Go(func() {
			ticker := time.NewTicker(redraw)
			defer ticker.Stop()
			for {
				done, total := of()
				p.Draw(done, total, fmt.Sprintf("%s … %.1fs", text, time.Since(p.start).Seconds()))
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
	err := f()
	cancel()
	drawing.Wait()
	return err
}

// Bytes formats a number of bytes for people.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, i := float64(n)/unit, 0
	for ; value >= 999.95 && i < 4; i++ {
		value /= unit
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[i])
}
