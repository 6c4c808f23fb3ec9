package terminal

import (
	"fmt"
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/cli/output"
)

// erase returns to the begin of the line and erases it.
const erase = "\r\x1b[K"

// Status is a line that changes at the bottom of a terminal, below the text that is written to it. If
// its writer is no terminal, every change is a line of its own. It is safe for concurrent use.
type Status struct {
	w     io.Writer
	live  bool
	width func() int // columns, or 0 if unknown

	mu   sync.Mutex
	line string
	end  bool // the text so far ends a line
}

// NewStatus returns a Status without a line.
func NewStatus(w io.Writer) *Status {
	s := &Status{w: w, live: output.IsTerminal(w), width: func() int { return 0 }, end: true}
	if s.live {
		s.width = func() int { return columns(w.(*os.File)) }
	}
	return s
}

// Live reports whether the writer is a terminal.
func (s *Status) Live() bool { return s.live }

// Set replaces the line.
func (s *Status) Set(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = output.Escape(line)
	if !s.live {
		_, _ = fmt.Fprintln(s.w, s.line) // nobody misses a line of a log that cannot be written
		return
	}
	_ = s.draw("") // nor a line of the screen
}

// Write writes text above the line.
func (s *Status) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live {
		return s.w.Write(text)
	}
	return len(text), s.draw(string(text))
}

// draw writes text and draws the line below it. It is one write, so that nothing comes in between. A
// line that is longer than the terminal is wide would take two, of which only one could be erased.
func (s *Status) draw(text string) error {
	before, line := "", ""
	if s.end {
		before = erase
	}
	if text != "" {
		s.end = text[len(text)-1] == '\n'
	}
	if s.end {
		line = s.line
		if width := s.width(); width > 0 && utf8.RuneCountInString(line) >= width {
			line = string([]rune(line)[:max(width-2, 0)]) + "…"
		}
	}
	_, err := io.WriteString(s.w, before+text+line)
	return err
}

// Close removes the line.
func (s *Status) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = ""
	if s.live {
		_ = s.draw("") // as in Set
	}
}
