package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ErrEnded is returned when sending in a session that is over.
var ErrEnded = errors.New("the session is over")

// Sender writes frames to a stream, one after another, in the order in which callers arrive.
type Sender struct {
	frames chan []byte
	stop   chan struct{}
	once   sync.Once
}

// NewSender returns a Sender that sends while Run runs.
func NewSender() *Sender {
	return &Sender{frames: make(chan []byte), stop: make(chan struct{})}
}

// Run writes to w until Stop, or until a write fails, whose error it returns.
func (s *Sender) Run(w io.Writer) error {
	defer s.Stop()
	for {
		select {
		case b := <-s.frames:
			if _, err := w.Write(b); err != nil {
				return err
			}
		case <-s.stop:
			return nil
		}
	}
}

// Stop makes all calls of Send return, and Run after its current write.
func (s *Sender) Stop() { s.once.Do(func() { close(s.stop) }) }

// Send returns when f is next to be written, or when ctx ends.
func (s *Sender) Send(ctx context.Context, f Frame) error {
	b, err := f.Encode()
	if err != nil {
		return err
	}
	select {
	case s.frames <- b:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.stop:
		return ErrEnded
	}
}

// Copy sends r in chunks as data of a call until the end of r, within the budget. It returns the
// number of bytes read. It does not send the end frame.
func (s *Sender) Copy(ctx context.Context, id uint64, stream int, r io.Reader, budget *Budget) (int64, error) {
	buffer := make([]byte, MaxChunk)
	for total := int64(0); ; {
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		n, err := r.Read(buffer)
		total += int64(n)
		for chunk := buffer[:n]; len(chunk) > 0; {
			k, err := budget.take(ctx, len(chunk))
			if err != nil {
				return total, err
			}
			if err := s.Send(ctx, Frame{ID: id, Op: OpData, Stream: stream, Data: chunk[:k]}); err != nil {
				return total, err
			}
			chunk = chunk[k:]
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Budget is the number of data bytes that a call may send, initially Window.
type Budget struct {
	mu   sync.Mutex
	used int
	more chan struct{} // holds a token when bytes were added
}

// NewBudget returns a Budget of Window bytes.
func NewBudget() *Budget { return &Budget{more: make(chan struct{}, 1)} }

// Add adds credit from the other side. It fails with ErrMalformed for more than was used.
func (b *Budget) Add(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n <= 0 || n > b.used {
		return fmt.Errorf("%w: credit of %d bytes where %d are on their way", ErrMalformed, n, b.used)
	}
	b.used -= n
	signal(b.more)
	return nil
}

// take waits until something can be sent and returns how much, at most want.
func (b *Budget) take(ctx context.Context, want int) (int, error) {
	for {
		b.mu.Lock()
		n := min(want, Window-b.used)
		b.used += n
		if b.used < Window {
			signal(b.more) // for another stream of the same call
		}
		b.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-b.more:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// Inbox holds the data that a call received and that was not consumed yet, at most Window bytes.
type Inbox struct {
	mu      sync.Mutex
	parts   [Errors + 1][]byte
	held    int // received, and no credit given for it
	dropped bool
	ended   bool
	end     json.RawMessage
	news    chan struct{}
}

// NewInbox returns an empty Inbox.
func NewInbox() *Inbox { return &Inbox{news: make(chan struct{}, 1)} }

// Put stores a copy of data. It fails with ErrMalformed for more than the window, or after the end.
func (in *Inbox) Put(stream int, data []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended {
		return fmt.Errorf("%w: data after its end", ErrMalformed)
	}
	if in.held += len(data); in.held > Window {
		return fmt.Errorf("%w: more than %d bytes without credit", ErrMalformed, Window)
	}
	if !in.dropped {
		in.parts[stream] = append(in.parts[stream], data...)
		signal(in.news)
	}
	return nil
}

// End marks the end of the data and stores the body of the end frame.
func (in *Inbox) End(body json.RawMessage) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended, in.end = true, body
	signal(in.news)
}

// Drop discards the stored data and all later data, since nobody will consume it.
func (in *Inbox) Drop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.dropped, in.parts = true, [Errors + 1][]byte{}
}

// Take waits for data and returns everything that is stored for one stream, or io.EOF at the end.
// The data counts against the window until Consumed. Only one goroutine may call it.
func (in *Inbox) Take(ctx context.Context) (stream int, data []byte, err error) {
	for {
		in.mu.Lock()
		for i, part := range in.parts {
			if len(part) > 0 {
				in.parts[i] = nil
				in.mu.Unlock()
				return i, part, nil
			}
		}
		ended := in.ended
		in.mu.Unlock()
		if ended {
			return 0, nil, io.EOF
		}
		select {
		case <-in.news:
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		}
	}
}

// Trailer returns the body of the end frame, once Take returned io.EOF.
func (in *Inbox) Trailer() json.RawMessage {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.end
}

// Consumed frees n bytes of the window. Call it just before sending credit for them.
func (in *Inbox) Consumed(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.held -= n
}

// signal leaves a token in a channel of capacity one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
