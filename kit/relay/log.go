package relay

import (
	"crypto/rand"
	"errors"
	"io"
	"sync"
)

// DefaultCapacity is how much of what was printed a Log usually keeps, in bytes.
const DefaultCapacity = 1 << 20

// ErrBehind is why a viewer is let go that did not keep up: what it would read next is not kept
// any more.
var ErrBehind = errors.New("relay: the viewer did not keep up")

// Position is a place in what a stream prints.
type Position struct {
	// Log names the log. Another log of the same thing, as after a restart, has another name.
	Log string `json:"log"`
	// Offset counts the bytes before it, from the beginning of the log.
	Offset int64 `json:"offset"`
}

// Log is a stream that many look at, such as a serial console. What is printed is written to the
// Log, which keeps the newest of it for those who come later. What viewers type goes to the stream.
// It is safe for concurrent use.
type Log struct {
	id       string
	capacity int64
	in       io.Writer

	mu     sync.Mutex
	news   sync.Cond // something was printed, or something has ended
	ring   []byte    // the byte at an offset is at the offset modulo capacity
	end    int64     // the offset of what is printed next
	writer *Viewer   // the only one who may type; nil: everybody may
	ended  bool
}

// NewLog makes a Log that keeps at most capacity bytes, at least 1, and takes memory only for what
// was printed. What viewers type is written to in.
func NewLog(capacity int, in io.Writer) *Log {
	l := &Log{id: rand.Text(), capacity: int64(capacity), in: in}
	l.news.L = &l.mu
	return l
}

// Write takes what is printed. It never fails or waits for a viewer.
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

// grow makes the ring at least as long as it is to be. The lock is held.
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

// Close says that nothing more is printed. Viewers end when they have read what there is.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.news.Broadcast()
	return nil
}

// View begins to look at from, or, where that is not kept or is of another log, at the oldest that
// is kept; the zero Position is the oldest. The viewer's Start says which it is.
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

// Viewer is somebody who looks at a Log.
type Viewer struct {
	log   *Log
	start int64

	// The log's lock guards these.
	next   int64 // the offset of what is read next
	closed bool
}

// Start is where the viewer begins.
func (v *Viewer) Start() Position { return Position{Log: v.log.id, Offset: v.start} }

// Read reads what is printed, and waits for it. It is io.EOF at the end of the log or of the viewer,
// and ErrBehind if the viewer did not keep up.
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

// Write types. What is typed while another viewer has claimed that is dropped: those who watch may
// touch a key without losing sight.
func (v *Viewer) Write(b []byte) (int, error) {
	v.log.mu.Lock()
	watches := v.log.writer != nil && v.log.writer != v
	v.log.mu.Unlock()
	if watches {
		return len(b), nil
	}
	return v.log.in.Write(b)
}

// Claim makes the viewer the only one who may type, until it releases that or is closed. It is false
// if another viewer has claimed it. While nobody does, everybody may type.
func (v *Viewer) Claim() bool {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	if v.closed || v.log.writer != nil && v.log.writer != v {
		return false
	}
	v.log.writer = v
	return true
}

// Release lets everybody type again, if the viewer has claimed that.
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

// Close ends looking, and what waits in Read.
func (v *Viewer) Close() error {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	v.closed = true
	v.release()
	v.log.news.Broadcast()
	return nil
}
