package relay

import (
	"crypto/rand"
	"errors"
	"io"
	"sync"
)

// DefaultCapacity is the usual capacity of a Log, in bytes of output.
const DefaultCapacity = 1 << 20

// ErrBehind is returned to a viewer that did not keep up: the next output that it would read is no
// longer kept.
var ErrBehind = errors.New("relay: the viewer did not keep up")

// Position is a position in a stream's output.
type Position struct {
	// Log identifies the log. Another log of the same thing, for example after a restart, has
	// another value.
	Log string `json:"log"`
	// Offset is the number of bytes before the position, from the beginning of the log.
	Offset int64 `json:"offset"`
}

// Log is a stream with many viewers, such as a serial console. Output is written to the Log, which
// keeps the newest part for later viewers. Viewers' input goes to the stream. It is safe for
// concurrent use.
type Log struct {
	id       string
	capacity int64
	in       io.Writer

	mu     sync.Mutex
	news   sync.Cond // there is new output, or something has ended
	ring   []byte    // the byte at an offset is at the offset modulo capacity
	end    int64     // the offset of the next output
	writer *Viewer   // the only viewer who may type; nil: all may
	ended  bool
}

// NewLog returns a Log that keeps at most capacity bytes of output, at least 1, and allocates only
// what it needs. Viewers' input is written to in.
func NewLog(capacity int, in io.Writer) *Log {
	l := &Log{id: rand.Text(), capacity: int64(capacity), in: in}
	l.news.L = &l.mu
	return l
}

// Write appends output. It never fails and never waits for a viewer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	if skipped := int64(n) - l.capacity; skipped > 0 {
		p, l.end = p[skipped:], l.end+skipped
	}
	l.grow(min(l.capacity, l.end+int64(len(p))))
	for len(p) > 0 {
		m := copy(l.ring[l.end%l.capacity:], p)
		p, l.end = p[m:], l.end+int64(m)
	}
	l.news.Broadcast()
	return n, nil
}

// grow extends the ring to at least length. The lock must be held.
func (l *Log) grow(length int64) {
	if length <= int64(len(l.ring)) {
		return
	}
	if length > int64(cap(l.ring)) {
		grown := make([]byte, len(l.ring), min(l.capacity, max(length, 2*int64(cap(l.ring)))))
		copy(grown, l.ring)
		l.ring = grown
	}
	l.ring = l.ring[:length]
}

// Close ends the output. Viewers end after reading the rest.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.news.Broadcast()
	return nil
}

// View returns a Viewer that starts at from. If that position is no longer kept or belongs to
// another log, and for the zero Position, it starts at the oldest output. Viewer.Start returns the
// actual position.
func (l *Log) View(from Position) *Viewer {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &Viewer{log: l, start: l.end - int64(len(l.ring))}
	if from.Log == l.id && from.Offset > v.start && from.Offset <= l.end {
		v.start = from.Offset
	}
	v.next = v.start
	return v
}

// Viewer reads and writes a Log.
type Viewer struct {
	log   *Log
	start int64

	// The log's lock guards these.
	next   int64 // the offset of the next byte to read
	closed bool
}

// Start returns the position at which the viewer starts.
func (v *Viewer) Start() Position { return Position{Log: v.log.id, Offset: v.start} }

// Read reads output, and waits for it if necessary. It returns io.EOF at the end of the log or of
// the viewer, and ErrBehind if the viewer did not keep up.
func (v *Viewer) Read(b []byte) (int, error) {
	l := v.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for v.next == l.end && !l.ended && !v.closed {
		l.news.Wait()
	}
	switch {
	case v.closed || v.next == l.end:
		return 0, io.EOF
	case v.next < l.end-int64(len(l.ring)):
		return 0, ErrBehind
	}
	at := v.next % l.capacity
	n := copy(b, l.ring[at:min(int64(len(l.ring)), at+l.end-v.next)])
	v.next += int64(n)
	return n, nil
}

// Write sends input. Input is dropped while another viewer has claimed the right to type, so that a
// stray key does not end a watching session.
func (v *Viewer) Write(b []byte) (int, error) {
	v.log.mu.Lock()
	watches := v.log.writer != nil && v.log.writer != v
	v.log.mu.Unlock()
	if watches {
		return len(b), nil
	}
	return v.log.in.Write(b)
}

// Claim makes the viewer the only one who may type, until it calls Release or Close. It returns
// false if another viewer has claimed it. While there is no claim, all viewers may type.
func (v *Viewer) Claim() bool {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	if v.closed || v.log.writer != nil && v.log.writer != v {
		return false
	}
	v.log.writer = v
	return true
}

// Release ends the viewer's claim, if it has one, so that all viewers may type again.
func (v *Viewer) Release() {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	v.release()
}

func (v *Viewer) release() {
	if v.log.writer == v {
		v.log.writer = nil
	}
}

// Close ends the viewer and unblocks Read.
func (v *Viewer) Close() error {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	v.closed = true
	v.release()
	v.log.news.Broadcast()
	return nil
}
