package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

const (
	writeLimit   = 30 * time.Second // a guest must take a frame within
	maxAbandoned = 32               // cancelled calls that the guest did not end
)

// Errors of a session. A refused call fails with a *Refusal.
var (
	// ErrViolation is wrapped by the error of a session that ended because the guest broke the
	// protocol.
	ErrViolation = errors.New("the guest broke the protocol")
	// ErrClosed is the error of a client that was closed.
	ErrClosed = errors.New("the guest agent's client is closed")
	// ErrLost is wrapped by the error of a session whose stream ended or that the agent ended.
	ErrLost = errors.New("the connection to the guest agent is lost")
)

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrViolation, fmt.Sprintf(format, args...))
}

// Client communicates with the agent of one guest. It is safe for concurrent use.
type Client struct {
	stream io.ReadWriteCloser
	hello  wire.Hello
	sender *wire.Sender
	slots  chan struct{} // one for each open call
	turn   chan struct{} // held by who opens a call, and by a rotation until its answer
	secret string        // of who holds turn

	mu        sync.Mutex
	calls     map[uint64]*call
	last      uint64
	abandoned int

	over chan struct{}
	err  error // once over is closed
}

// Connect starts a session over a stream and waits for the agent's hello until ctx ends. It takes
// over the stream, which is closed with the client and if Connect fails. A wrong secret is detected
// only by the first call.
func Connect(ctx context.Context, stream io.ReadWriteCloser, secret string) (*Client, error) {
	if err := wire.ValidSecret(secret); err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	c := &Client{
		stream: stream, secret: secret,
		sender: wire.NewSender(),
		slots:  make(chan struct{}, wire.MaxCalls),
		turn:   make(chan struct{}, 1),
		calls:  map[uint64]*call{},
		over:   make(chan struct{}),
	}
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	reader := wire.NewReader(stream)
	err := c.greet(reader)
	if !stop() {
		err = context.Cause(ctx) // whose end closed the stream
	}
	if err != nil {
		stream.Close()
		return nil, fmt.Errorf("connect to the guest agent: %w", err)
	}
	c.keep("guest agent's commands", c.write)
	c.keep("guest agent's answers", func() error { return c.read(reader) })
	return c, nil
}

func (c *Client) greet(r *wire.Reader) error {
	nonce := wire.NewNonce()
	if _, err := c.stream.Write(nonce.Preamble()); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if _, err := r.Preamble(&nonce, wire.MaxStale); err != nil {
		return readError(err)
	}
	f, err := r.Frame()
	if err != nil {
		return readError(err)
	}
	if f.Op != wire.OpHello || wire.Body(f.Body, &c.hello) != nil {
		return violation("its first frame is not a hello")
	}
	if c.hello.Proto != wire.Proto {
		return fmt.Errorf(
			"the guest agent speaks version %d of the protocol, this program version %d", c.hello.Proto, wire.Proto,
		)
	}
	if len(c.hello.Capabilities) > 64 {
		return violation("%d capabilities", len(c.hello.Capabilities))
	}
	c.hello.Version = printable(c.hello.Version, 64)
	for i, name := range c.hello.Capabilities {
		c.hello.Capabilities[i] = printable(name, 32)
	}
	return nil
}

func readError(err error) error {
	if errors.Is(err, wire.ErrMalformed) {
		return fmt.Errorf("%w: %w", ErrViolation, err)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// Version returns the version that the agent reports, at most 64 printable characters.
func (c *Client) Version() string { return c.hello.Version }

// Capabilities returns the operations that the agent reports, at most 64.
func (c *Client) Capabilities() []string { return c.hello.Capabilities }

// Done is closed when the session is over.
func (c *Client) Done() <-chan struct{} { return c.over }

// Err returns why the session is over, or nil while it is not.
func (c *Client) Err() error {
	select {
	case <-c.over:
		return c.err
	default:
		return nil
	}
}

// Close ends the session. The agent kills what it runs for the session.
func (c *Client) Close() error {
	c.end(ErrClosed)
	return nil
}

// end ends the session and all its calls with err, unless it is over already.
func (c *Client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.over:
		return
	default:
	}
	c.err = err
	close(c.over)
	c.sender.Stop()
	c.stream.Close()
	for _, call := range c.calls {
		call.cancel(err)
	}
}

// limited ends the session if the guest does not accept a frame in time.
type limited struct{ *Client }

func (l limited) Write(b []byte) (int, error) {
	defer time.AfterFunc(writeLimit, func() {
		l.end(violation("it takes no frame for %v", writeLimit))
	}).Stop()
	return l.stream.Write(b)
}

// keep runs one half of the session. Its error ends the session.
func (c *Client) keep(name string, half func() error) {
	routine.Go(nil, name, func() {
		if err := routine.Call(nil, name, half); err != nil {
			c.end(err)
		}
	})
}

func (c *Client) write() error {
	if err := c.sender.Run(limited{c}); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

func (c *Client) read(r *wire.Reader) error {
	for {
		f, err := r.Frame()
		if err != nil {
			return readError(err)
		}
		if err := c.dispatch(f); err != nil {
			return err
		}
	}
}

// dispatch passes a frame to its call. It never blocks.
func (c *Client) dispatch(f wire.Frame) error {
	c.mu.Lock()
	call := c.calls[f.ID]
	c.mu.Unlock()
	if f.ID == 0 && f.Op == wire.OpError {
		return fmt.Errorf("%w: the agent has ended the session: %s", ErrLost, refusal(f.Body).Message)
	}
	if call == nil {
		return violation("a frame for call %d, which is not open", f.ID)
	}
	switch f.Op {
	case wire.OpData:
		if !call.receives[f.Stream] {
			return violation("data of stream %d, which the call has not", f.Stream)
		}
		return asViolation(call.inbox.Put(f.Stream, f.Data))
	case wire.OpCredit:
		return asViolation(call.budget.Add(f.Credit))
	case wire.OpHead:
		if call.head == nil {
			return violation("a head that the call has not")
		}
		select {
		case call.head <- f.Body:
			return nil
		default:
			return violation("a second head")
		}
	case wire.OpResult:
		c.finish(call, outcome{result: f.Body})
	case wire.OpError:
		c.finish(call, outcome{err: refusal(f.Body)})
	default:
		return violation("an unknown operation")
	}
	return nil
}

func asViolation(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrViolation, err)
	}
	return nil
}

// Refusal is the error of a call that the agent refused. The message is the guest's and must not be
// trusted; it is printable and short.
type Refusal struct {
	Code    wire.Code
	Message string
}

func (e *Refusal) Error() string { return fmt.Sprintf("the guest says: %s (%s)", e.Message, e.Code) }

func refusal(body json.RawMessage) *Refusal {
	var e wire.Error
	if wire.Body(body, &e) != nil {
		return &Refusal{Code: wire.Failed, Message: "an error without a reason"}
	}
	return &Refusal{Code: wire.Code(printable(string(e.Code), 32)), Message: printable(e.Message, 500)}
}

// printable returns at most n characters of a guest's text and replaces those that could mislead in
// a terminal or a log.
func printable(s string, n int) string {
	out := make([]rune, 0, min(n, len(s)))
	for _, r := range s {
		if len(out) == n {
			break
		}
		if r < ' ' || r == 0x7f || r > '~' && !isGraphic(r) {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}
