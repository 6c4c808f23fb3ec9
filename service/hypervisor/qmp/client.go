package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

// maxLine limits the length of a line in either direction, in bytes. The longest known response,
// that of query-qmp-schema, is about 200 KiB.
const maxLine = 16 << 20

// ErrLost is wrapped by errors of calls on a lost connection. The error says why it was lost: QEMU
// ended, hung up or sent something other than QMP, or Close was called (it then wraps
// net.ErrClosed).
var ErrLost = errors.New("the connection to QEMU is lost")

// ErrSilent is the error if QEMU does not answer in time: its process is stopped or busy. It may
// still carry out the command.
var ErrSilent = errors.New("QEMU does not answer")

var errUnsubscribed = errors.New("the subscription is closed")

// callLimit is the timeout of a command, and diskLimit that of a command that QEMU answers only
// after writing to a disk.
const (
	callLimit = 30 * time.Second
	diskLimit = 2 * time.Minute
)

// limitOf returns the timeout of a command.
func limitOf(command string) time.Duration {
	switch command {
	case "blockdev-snapshot-internal-sync", "blockdev-snapshot-delete-internal-sync", "transaction":
		return diskLimit
	}
	return callLimit
}

// Options configures Dial. The zero value is for a QEMU that is already running.
type Options struct {
	// Wait retries until the context ends while there is no socket or nobody listens on it, as with
	// a QEMU that has just been started. Start QEMU with wait=on in that case: QEMU 7.2 with
	// wait=off sometimes crashes or never greets a client that connects while it sets up its
	// monitor.
	Wait bool
	// Check verifies a connection before anything is sent or read; nil: no check. If it fails, the
	// connection is not used.
	Check func(net.Conn) error
	// MaxLine is the maximum length of a received line, in bytes; 0: 16 MiB.
	MaxLine int
	// CallLimit is the timeout of commands whose context has no deadline; 0: as documented at
	// Execute.
	CallLimit time.Duration
}

// Client is a connection to one QEMU. It is safe for concurrent use.
type Client struct {
	conn     net.Conn
	version  Version
	limit    int           // of a line that is read
	patience time.Duration // with a call; 0: what limitOf says
	outgoing chan []byte   // lines for the writer
	done     chan struct{}
	loops    sync.WaitGroup

	mu sync.Mutex
	// Ids start with 31 random bits per client: QEMU sends a response that one client did not wait
	// for to the next client. first is the value before the first id, last is the latest id.
	first, last   uint64
	pending       map[uint64]chan answer // calls that wait; each has room for its answer
	subscriptions map[*Subscription]bool
	err           error // set before done is closed
}

// Dial connects to the QMP socket at path and negotiates. Give ctx a deadline: a QEMU that serves
// another client never greets.
func Dial(ctx context.Context, path string, o Options) (*Client, error) {
	conn, err := dial(ctx, path, o.Wait)
	if err != nil {
		return nil, fmt.Errorf("connect to QEMU: %w", err)
	}
	if o.Check != nil {
		if err := o.Check(conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	c, err := start(ctx, conn, o)
	if err != nil {
		return nil, fmt.Errorf("connect to QEMU at %s: %w", path, err)
	}
	return c, nil
}

func dial(ctx context.Context, path string, wait bool) (net.Conn, error) {
	if room := len(syscall.RawSockaddrUnix{}.Path); len(path) >= room {
		return nil, fmt.Errorf("the path of a socket may have %d bytes, not %d: %s", room-1, len(path), path)
	}
	var absent error
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		switch {
		case err == nil:
			return conn, nil
		case wait && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)):
			absent = err
		default: // it may be the end of ctx: then what it waited for is said, too
			return nil, errors.Join(err, absent)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), absent)
		}
	}
}

// start negotiates on a connection and returns its client. It closes the connection on errors.
func start(ctx context.Context, conn net.Conn, o Options) (*Client, error) {
	c := &Client{
		conn: conn, limit: o.MaxLine, patience: o.CallLimit,
		outgoing: make(chan []byte), done: make(chan struct{}),
		pending: map[uint64]chan answer{}, subscriptions: map[*Subscription]bool{},
	}
	if c.limit == 0 {
		c.limit = maxLine
	}
	c.first = (1 + rand.Uint64N(1<<31-1)) << 32
	c.last = c.first
	r := bufio.NewReader(conn)
	var err error
	if c.version, err = greeting(ctx, conn, r, c.limit); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.loops.Go(func() {
		c.lose(routine.Call(nil, "QEMU's answers", func() error { return c.read(r) }))
	})
	c.loops.Go(func() {
		c.lose(routine.Call(nil, "QEMU's commands", c.write))
	})
	if err := c.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func greeting(ctx context.Context, conn net.Conn, r *bufio.Reader, limit int) (Version, error) {
	interrupt := context.AfterFunc(ctx, func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // it fails only on a closed connection
	})
	line, err := readLine(r, limit)
	if !interrupt() {
		return Version{}, fmt.Errorf("no greeting (is another client connected?): %w", ctx.Err())
	}
	if err != nil {
		return Version{}, fmt.Errorf("no greeting: %w", err)
	}
	m, err := decode(line)
	if err == nil && m.greeting == nil {
		err = errors.New("the first line is not a greeting")
	}
	if err != nil {
		return Version{}, err
	}
	return *m.greeting, nil
}

// Version returns QEMU's version.
func (c *Client) Version() Version { return c.version }

// Done is closed when the connection is lost.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil while connected, then why the connection was lost, wrapping ErrLost.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the connection and waits until the client's goroutines have ended. QEMU keeps
// running.
func (c *Client) Close() {
	c.lose(net.ErrClosed)
	c.loops.Wait()
}

// Execute sends a command and decodes its result into into, unless that is nil. arguments is
// anything that encodes to a JSON object, or nil. If QEMU refuses, the error is an *Error. When ctx
// ends, the call fails immediately, but a command that was sent is still carried out; its response
// is dropped. If ctx has no deadline, the timeout is 30 seconds, or two minutes for commands that
// write to disks; the error is then ErrSilent.
func (c *Client) Execute(ctx context.Context, command string, arguments, into any) error {
	if _, limited := ctx.Deadline(); !limited {
		limit := c.patience
		if limit == 0 {
			limit = limitOf(command)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrSilent)
		defer cancel()
	}
	result, err := c.execute(ctx, command, arguments)
	if err != nil {
		return fmt.Errorf("QEMU's %s: %w", command, err)
	}
	if into == nil {
		return nil
	}
	if err := decodeValue(result, into); err != nil {
		return fmt.Errorf("QEMU's %s: its result: %w", command, err)
	}
	return nil
}

func (c *Client) execute(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
	// The end of the context is checked first, so that nothing is sent for a caller that has left.
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	id, answered, err := c.register()
	if err != nil {
		return nil, err
	}
	defer c.forget(id)
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        uint64 `json:"id"`
	}{command, arguments, id})
	if err != nil {
		return nil, fmt.Errorf("its arguments: %w", err)
	}
	if len(line) > maxLine {
		return nil, fmt.Errorf("its arguments are longer than %d bytes", maxLine)
	}
	select {
	case c.outgoing <- append(line, '\n'):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.done:
		return nil, c.Err()
	}
	select {
	case a := <-answered:
		return a.outcome()
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.done:
		err = c.Err()
	}
	select {
	case a := <-answered: // it came first: quit is answered just before the end
		return a.outcome()
	default:
		return nil, err
	}
}

func (a answer) outcome() (json.RawMessage, error) {
	if a.err != nil {
		return nil, a.err
	}
	return a.result, nil
}

func (c *Client) register() (uint64, <-chan answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	c.last++
	answered := make(chan answer, 1)
	c.pending[c.last] = answered
	return c.last, answered, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// write runs separately from the callers, so that a caller whose context ends does not leave half a
// command behind.
func (c *Client) write() error {
	for {
		select {
		case line := <-c.outgoing:
			if _, err := c.conn.Write(line); err != nil {
				return err
			}
		case <-c.done:
			return net.ErrClosed
		}
	}
}

// read dispatches QEMU's messages until the connection ends, and returns why it did.
func (c *Client) read(r *bufio.Reader) error {
	for {
		line, err := readLine(r, c.limit)
		if err != nil {
			return err
		}
		m, err := decode(line)
		if err != nil {
			return err
		}
		switch {
		case m.greeting != nil:
			return errors.New("a second greeting")
		case m.event != nil:
			c.publish(*m.event)
		default:
			if err := c.settle(*m.answer); err != nil {
				return err
			}
		}
	}
}

func (c *Client) publish(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subscriptions {
		s.put(e)
	}
}

// settle passes a response to its caller, if that still waits.
func (c *Client) settle(a answer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.id>>32 != c.first>>32 {
		return nil // it is for a client of before, who left without it
	}
	if a.id == c.first || a.id > c.last {
		return fmt.Errorf("an answer to command %d, which was never sent", a.id)
	}
	if answered, waits := c.pending[a.id]; waits {
		delete(c.pending, a.id)
		answered <- a
	}
	return nil
}

// lose closes the connection. Only the first cause counts.
func (c *Client) lose(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(cause, end) {
			cause = fmt.Errorf("QEMU ended or hung up: %w", cause)
		}
	}
	c.err = fmt.Errorf("%w: %w", ErrLost, cause)
	_ = c.conn.Close() // nothing is left to save
	for s := range c.subscriptions {
		s.end(c.err)
	}
	clear(c.subscriptions)
	close(c.done)
}
