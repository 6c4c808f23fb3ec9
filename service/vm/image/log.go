package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	// flushEvery is how often what was printed is stored.
	flushEvery = time.Second
	// maxPiece is the most bytes of one piece of the log. A tool that prints faster loses what is older.
	maxPiece = 64 << 10
	// maxLine is the most bytes of a line.
	maxLine = 4 << 10
)

// logger takes what tools print. It keeps whole lines of printable characters, stores them every second,
// and tells each to watch.
type logger struct {
	store func(text string) error
	watch func(line string)

	mu      sync.Mutex
	line    []byte // the beginning of a line
	cut     bool   // the line was longer
	lines   []string
	size    int
	dropped int
	failed  error // why storing has failed
	full    bool  // a tool said that there is no room left

	stop context.CancelFunc
	done <-chan error
}

// newLogger returns a logger, which must be closed.
func newLogger(ctx context.Context, store func(text string) error) *logger {
	l := &logger{store: store, watch: func(string) {}}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.done = routine.Start(nil, "log of an image", func() error {
		ticker := time.NewTicker(flushEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				l.flush()
			}
		}
	})
	return l
}

// Write takes output. It never fails, so that a log that cannot be stored does not end what is logged.
func (l *logger) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range p {
		switch {
		case c == '\n' || c == '\r':
			l.endLine()
		case len(l.line) >= maxLine:
			l.cut = true
		case c < ' ' || c > '~':
			l.line = append(l.line, map[bool]byte{true: ' ', false: '?'}[c == '\t'])
		default:
			l.line = append(l.line, c)
		}
	}
	return len(p), nil
}

func (l *logger) endLine() {
	if len(l.line) == 0 {
		return
	}
	text := string(l.line)
	if l.cut {
		text += " (cut)"
	}
	l.line, l.cut = l.line[:0], false
	l.watch(text)
	l.full = l.full || strings.Contains(text, "No space left on device") || strings.Contains(text, "enough free space")
	l.lines, l.size = append(l.lines, text), l.size+len(text)+1
	for l.size > maxPiece {
		l.size, l.dropped = l.size-len(l.lines[0])-1, l.dropped+1
		l.lines[0] = ""
		l.lines = l.lines[1:]
	}
}

// say writes a line of the service's own.
func (l *logger) say(format string, args ...any) { _, _ = fmt.Fprintf(l, format+"\n", args...) }

// isFull reports whether a tool said that there is no room left.
func (l *logger) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full
}

// flush stores what has come.
func (l *logger) flush() {
	l.mu.Lock()
	var text strings.Builder
	if l.dropped > 0 {
		fmt.Fprintf(&text, "(%d lines left out)\n", l.dropped)
	}
	for _, line := range l.lines {
		text.WriteString(line + "\n")
	}
	l.lines, l.size, l.dropped = nil, 0, 0
	l.mu.Unlock()
	if text.Len() == 0 {
		return
	}
	if err := l.store(text.String()); err != nil {
		l.mu.Lock()
		l.failed = err
		l.mu.Unlock()
	}
}

// close stores what is left. It returns why something could not be stored.
func (l *logger) close() error {
	l.stop()
	failed := <-l.done
	l.mu.Lock()
	l.endLine()
	l.mu.Unlock()
	l.flush()
	return errors.Join(failed, l.failed)
}
