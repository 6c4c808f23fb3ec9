package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

const secret = "correct-horse-battery"

// enemy is the guest's end of a stream, and does what a test says.
type enemy struct {
	t testing.TB
	net.Conn
	r *wire.Reader
}

func (e *enemy) send(frames ...wire.Frame) {
	for _, f := range frames {
		b, err := f.Encode()
		if err != nil {
			e.t.Error(err)
		}
		if _, err := e.Write(b); err != nil {
			return // the daemon has had enough
		}
	}
}

// next is the next frame of the daemon with the operation.
func (e *enemy) next(op string) wire.Frame {
	for {
		f, err := e.r.Frame()
		if err != nil {
			runtime.Goexit() // the daemon is gone; if it should not be, a call says so
		}
		if f.Op == op {
			f.Data = bytes.Clone(f.Data)
			return f
		}
	}
}

// ignore reads what the daemon sends and does nothing.
func (e *enemy) ignore() { _, _ = io.Copy(io.Discard, e.Conn) }

func data(id uint64, n int) wire.Frame {
	return wire.Frame{ID: id, Op: wire.OpData, Stream: wire.Output, Data: make([]byte, n)}
}

// connect makes a client whose guest behaves until hello and then as behave says.
func connect(t testing.TB, behave func(*enemy)) *guest.Client {
	t.Helper()
	host, far := net.Pipe()
	go func() {
		e := &enemy{t, far, wire.NewReader(far)}
		nonce, err := e.r.Preamble(nil, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = far.Write(nonce.Preamble())
		e.send(
			wire.With(
				0, wire.OpHello, wire.Hello{Proto: wire.Proto, Version: "evil\x1b[2J", Capabilities: []string{"exec"}},
			),
		)
		behave(e)
	}()
	c, err := guest.Connect(t.Context(), host, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); far.Close() })
	return c
}

// breaking is a stream that panics when it is read, once broken is closed.
type breaking struct {
	net.Conn
	broken chan struct{}
}

func (s breaking) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	select {
	case <-s.broken:
		panic("boom")
	default:
		return n, err
	}
}

func TestASessionThatTheAgentEndsIsOverAtOnce(t *testing.T) {
	t.Parallel()
	c := connect(t, func(e *enemy) {
		e.next(wire.OpPutFile)
		e.send(wire.With(0, wire.OpError, wire.Errorf(wire.Invalid, "malformed frame")))
		e.ignore()
	})
	err := c.PutFile(t.Context(), "/f", 0o600, 1<<40, endless{})
	if !errors.Is(err, guest.ErrLost) ||
		!strings.Contains(err.Error(), "the agent has ended the session: malformed frame") {
		t.Errorf("%v", err)
	}
	if refusal := (*guest.Refusal)(nil); errors.As(err, &refusal) {
		t.Errorf("it is taken for a refusal of the call: %v", err)
	}
}

func TestAPanicInASessionEndsItAndItsCalls(t *testing.T) {
	t.Parallel()
	host, far := net.Pipe()
	stream := breaking{host, make(chan struct{})}
	go func() {
		e := &enemy{t, far, wire.NewReader(far)}
		nonce, err := e.r.Preamble(nil, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = far.Write(nonce.Preamble())
		e.send(wire.With(0, wire.OpHello, wire.Hello{Proto: wire.Proto}))
		f := e.next(wire.OpPing)
		close(stream.broken)
		e.send(wire.With(f.ID, wire.OpResult, struct{}{}))
	}()
	c, err := guest.Connect(t.Context(), stream, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); far.Close() })
	if err := c.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "panic: boom") {
		t.Errorf("the call ended with %v", err)
	}
	<-c.Done()
}

// The calls that a case makes.
func ping(ctx context.Context, c *guest.Client) error { return c.Ping(ctx) }
func run(ctx context.Context, c *guest.Client) error {
	_, err := c.Exec(ctx, guest.Command{Argv: []string{"x"}, MaxOutput: 1000})
	return err
}
func get(ctx context.Context, c *guest.Client) error {
	_, _, err := c.GetFile(ctx, "/x", io.Discard)
	return err
}
func put(ctx context.Context, c *guest.Client) error {
	return c.PutFile(ctx, "/x", 0o600, 1<<40, endless{})
}
func network(ctx context.Context, c *guest.Client) error {
	_, err := c.Network(ctx)
	return err
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func TestAGuestThatBreaksTheProtocolEndsTheSessionWithAReason(t *testing.T) {
	t.Parallel()
	result := func(f wire.Frame, v any) wire.Frame { return wire.With(f.ID, wire.OpResult, v) }
	head := func(f wire.Frame, size int64) wire.Frame {
		return wire.With(f.ID, wire.OpHead, wire.Head{Mode: 0o600, Size: size})
	}
	for name, c := range map[string]struct {
		call   func(context.Context, *guest.Client) error
		behave func(e *enemy)
		reason string
	}{
		"garbage":                {ping, func(e *enemy) { _, _ = e.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }, "of 1213486160 bytes"},
		"a frame too large":      {ping, func(e *enemy) { _, _ = e.Write([]byte{0, 4, 0, 1}) }, "of 262145 bytes"},
		"a preamble":             {ping, func(e *enemy) { _, _ = e.Write(wire.Nonce{}.Preamble()) }, "preamble"},
		"another hello":          {ping, func(e *enemy) { e.send(wire.With(0, wire.OpHello, wire.Hello{})) }, "call 0, which is not open"},
		"another's answer":       {ping, func(e *enemy) { e.send(result(wire.Frame{ID: 99}, 1)) }, "call 99, which is not open"},
		"an unknown operation":   {ping, func(e *enemy) { e.send(wire.Frame{ID: e.next("ping").ID, Op: "dance"}) }, "unknown operation"},
		"a request of its own":   {ping, func(e *enemy) { e.send(wire.Frame{ID: e.next("ping").ID, Op: "exec"}) }, "unknown operation"},
		"data for a ping":        {ping, func(e *enemy) { e.send(data(e.next("ping").ID, 1)) }, "data of stream 1"},
		"a head for a ping":      {ping, func(e *enemy) { e.send(head(e.next("ping"), 1)) }, "a head"},
		"a result of a kind":     {ping, func(e *enemy) { e.send(result(e.next("ping"), "no")) }, "result"},
		"credit for nothing":     {ping, func(e *enemy) { e.send(wire.Frame{ID: e.next("ping").ID, Op: "credit", Credit: 1}) }, "credit"},
		"negative credit":        {put, func(e *enemy) { e.send(wire.Frame{ID: e.next("data").ID, Op: "credit", Credit: -5}) }, "credit"},
		"endless credit":         {put, func(e *enemy) { e.send(wire.Frame{ID: e.next("data").ID, Op: "credit", Credit: 1 << 40}) }, "credit"},
		"input as output":        {run, func(e *enemy) { e.send(wire.Frame{ID: e.next("exec").ID, Op: "data", Data: []byte{1}}) }, "stream 0"},
		"more output than asked": {run, func(e *enemy) { e.send(data(e.next("exec").ID, 1001)); e.ignore() }, "more data"},
		"an exit code too large": {run, func(e *enemy) { e.send(result(e.next("exec"), wire.Exit{Code: 256})) }, "exit code"},
		"a file before its head": {get, func(e *enemy) {
			f := e.next("get-file")
			e.send(data(f.ID, 10), result(f, wire.Sum{Size: 10}))
		}, "without a head"},
		"two heads":            {get, func(e *enemy) { f := e.next("get-file"); e.send(head(f, 1), head(f, 1), head(f, 1)) }, "second head"},
		"a size below nothing": {get, func(e *enemy) { e.send(head(e.next("get-file"), -2)) }, "head"},
		"more than its size":   {get, func(e *enemy) { f := e.next("get-file"); e.send(head(f, 10), data(f.ID, 11)); e.ignore() }, "more data"},
		"less than its size":   {get, func(e *enemy) { f := e.next("get-file"); e.send(head(f, 10), result(f, wire.Sum{Size: 10})) }, "of 0 bytes instead of the 10"},
		"a wrong checksum":     {get, func(e *enemy) { f := e.next("get-file"); e.send(head(f, -1), result(f, wire.Sum{SHA256: "00"})) }, "checksum"},
		"a wrong MAC": {network, func(e *enemy) {
			e.send(result(e.next("network-info"), wire.Network{Interfaces: []wire.Interface{{MAC: "x"}}}))
		}, "MAC"},
		"too many interfaces": {network, func(e *enemy) {
			e.send(result(e.next("network-info"), wire.Network{Interfaces: make([]wire.Interface, 1025)}))
		}, "1025 network interfaces"},
		"an address of no kind": {network, func(e *enemy) {
			f := e.next("network-info")
			e.send(wire.Frame{ID: f.ID, Op: "result", Body: []byte(`{"interfaces":[{"addresses":["1.2.3.4"]}]}`)})
		}, "result"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect(t, c.behave)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := c.call(ctx, client)
			if !errors.Is(err, guest.ErrViolation) || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("the call: %v, want a violation with %q", err, c.reason)
			}
			<-client.Done()
			if err := client.Err(); !errors.Is(err, guest.ErrViolation) {
				t.Errorf("the session: %v", err)
			}
			if err := client.Ping(ctx); !errors.Is(err, guest.ErrViolation) {
				t.Errorf("a later call: %v", err)
			}
		})
	}
}

func TestAWriterThatBlocksHoldsAWindowAndNobodyElse(t *testing.T) {
	t.Parallel()
	c := connect(t, func(e *enemy) {
		id := e.next("exec").ID
		for range wire.Window / wire.MaxChunk {
			e.send(data(id, wire.MaxChunk))
		}
		e.send(wire.With(e.next("ping").ID, wire.OpResult, struct{}{}))
		e.next("cancel")
		e.send(wire.With(id, wire.OpError, wire.Error{Code: wire.Cancelled}))
	})
	ctx, cancel := context.WithCancel(t.Context())
	writing, unblock := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := c.Exec(ctx, guest.Command{Argv: []string{"x"}, Stdout: writer(func(b []byte) (int, error) {
			select {
			case <-writing:
			default:
				close(writing)
			}
			<-unblock
			return len(b), nil
		})})
		ended <- err
	}()
	<-writing
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	close(unblock)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestDataBeyondTheWindowEndsTheSession(t *testing.T) {
	t.Parallel()
	c := connect(t, func(e *enemy) {
		for id := e.next("exec").ID; ; {
			if b, err := new(data(id, wire.MaxChunk)).Encode(); err != nil {
				e.t.Error(err)
			} else if _, err := e.Write(b); err != nil {
				return
			}
		}
	})
	unblock := make(chan struct{})
	go func() { <-c.Done(); close(unblock) }()
	_, err := c.Exec(t.Context(), guest.Command{Argv: []string{"x"}, Stdout: writer(func(b []byte) (int, error) {
		<-unblock
		return len(b), nil
	})})
	if !errors.Is(err, guest.ErrViolation) || !strings.Contains(err.Error(), "without credit") {
		t.Error(err)
	}
}

func TestAGuestThatSaysNothingCostsACallItsDeadline(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *guest.Client) error{
		"ping": ping, "exec": run, "get-file": get, "put-file": put,
		"network-info": network,
		"rotate-secret": func(ctx context.Context, c *guest.Client) error {
			_, err := c.RotateSecret(ctx, "new")
			return err
		},
		"personalize": func(ctx context.Context, c *guest.Client) error {
			_, err := c.Personalize(ctx, wire.Personalize{Secret: "new"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, (*enemy).ignore)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := call(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		})
	}
}

// What a file is read from, or written to, may be a device that never answers.
func TestAFileThatAGuestDoesNotGoOnWithEndsTheCallAndNotTheSession(t *testing.T) {
	t.Parallel()
	for name, it := range map[string]struct {
		behave func(*enemy)
		call   func(context.Context, *guest.Client) error
	}{
		"no head": {(*enemy).ignore, get},
		"half a file": {func(e *enemy) {
			id := e.next(wire.OpGetFile).ID
			e.send(wire.With(id, wire.OpHead, wire.Head{Mode: 0o644, Size: 1000}), data(id, 500))
			e.ignore()
		}, get},
		"no credit": {(*enemy).ignore, func(ctx context.Context, c *guest.Client) error {
			return c.PutFile(ctx, "/f", 0o644, 4*wire.Window, bytes.NewReader(make([]byte, 4*wire.Window)))
		}},
		"no end": {(*enemy).ignore, func(ctx context.Context, c *guest.Client) error {
			return c.PutFile(ctx, "/f", 0o644, 3, strings.NewReader("abc"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, it.behave)
				if err := it.call(t.Context(), c); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if err := c.Err(); err != nil {
					t.Errorf("the session is over: %v", err)
				}
			})
		})
	}
}

func TestAFileGoesOnForAsLongAsTheOtherEndOfItTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, func(e *enemy) {
			id := e.next(wire.OpGetFile).ID
			e.send(wire.With(id, wire.OpHead, wire.Head{Mode: 0o644, Size: -1}))
			for range 10 {
				e.send(data(id, 1))
				e.next(wire.OpCredit)
				time.Sleep(50 * time.Second)
			}
			e.ignore()
		})
		slow := writerFunc(func(b []byte) (int, error) {
			time.Sleep(time.Hour)
			return len(b), nil
		})
		if _, n, err := c.GetFile(t.Context(), "/f", slow); n != 10 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d bytes, %v; want 10, and the end of the guest's time", n, err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestAGuestThatTakesNothingEndsTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := connect(t, func(*enemy) {})
		if err := put(t.Context(), c); !errors.Is(err, guest.ErrViolation) ||
			!strings.Contains(err.Error(), "takes no frame") {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("after %v only", took)
		}
	})
}

func TestARotationWithoutAnAnswerHoldsUpOthersUpToTheirDeadlineOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, (*enemy).ignore)
		rotating, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { _, _ = c.RotateSecret(rotating, "new") }()
		synctest.Wait()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := c.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		<-c.Done() // nobody knows which secret is right
	})
}

func TestAGuestThatEndsNoCancelledCallEndsTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, (*enemy).ignore)
		for range 33 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = c.Ping(ctx)
			cancel()
		}
		if err := c.Err(); !errors.Is(err, guest.ErrViolation) || !strings.Contains(err.Error(), "cancelled") {
			t.Error(err)
		}
	})
}

func TestAnAnswerBeforeTheRequestDoesNoHarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := make(chan struct{})
		c := connect(t, func(e *enemy) {
			// The second call is open, but its request waits behind the first, which
			// this guest does not read.
			<-now
			e.send(wire.With(2, wire.OpResult, struct{}{}))
		})
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() { _ = c.Ping(t.Context()) })
		}
		synctest.Wait()
		close(now)
		synctest.Wait()
		c.Close()
		calls.Wait()
	})
}

func TestNoMoreCallsThanAllowedAreOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, (*enemy).ignore)
		for range wire.MaxCalls {
			go func() { _ = c.Ping(t.Context()) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) || c.Err() != nil {
			t.Error(err, c.Err())
		}
		c.Close()
	})
}

func TestWhatAGuestSaysIsPrintableAndShort(t *testing.T) {
	t.Parallel()
	c := connect(t, func(e *enemy) {
		message := "no\x1b]0;owned\a\n\u202e" + strings.Repeat("x", 100_000)
		e.send(wire.With(e.next("ping").ID, wire.OpError, wire.Error{Code: "\n", Message: message}))
	})
	err := c.Ping(t.Context())
	if err == nil || len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\x1b\a\n\u202e") {
		t.Errorf("%q", err)
	}
	if v := c.Version(); v != "evil?[2J" {
		t.Errorf("%q", v)
	}
}

func TestConnectFailsWithAReasonAndClosesTheStream(t *testing.T) {
	t.Parallel()
	answer := func(f wire.Frame) func(wire.Nonce, net.Conn) {
		return func(nonce wire.Nonce, conn net.Conn) {
			b, _ := f.Encode()
			_, _ = conn.Write(append(nonce.Preamble(), b...))
		}
	}
	for name, c := range map[string]struct {
		behave func(wire.Nonce, net.Conn)
		want   error
		reason string
	}{
		"silence":           {func(wire.Nonce, net.Conn) {}, context.DeadlineExceeded, ""},
		"gigabytes":         {func(_ wire.Nonce, c net.Conn) { _, _ = io.Copy(c, endless{}) }, guest.ErrViolation, "no answer to the preamble"},
		"another's answer":  {func(_ wire.Nonce, c net.Conn) { answer(wire.Frame{Op: "hello"})(wire.Nonce{1}, c) }, context.DeadlineExceeded, ""},
		"hanging up":        {func(_ wire.Nonce, c net.Conn) { c.Close() }, guest.ErrLost, ""},
		"no hello":          {answer(wire.Frame{Op: "result"}), guest.ErrViolation, "not a hello"},
		"an empty hello":    {answer(wire.Frame{Op: "hello"}), guest.ErrViolation, "not a hello"},
		"a later version":   {answer(wire.With(0, "hello", wire.Hello{Proto: 2})), nil, "speaks version 2"},
		"many capabilities": {answer(wire.With(0, "hello", wire.Hello{Proto: 1, Capabilities: make([]string, 65)})), guest.ErrViolation, "65 capabilities"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				host, far := net.Pipe()
				defer far.Close()
				go func() {
					nonce, _ := wire.NewReader(far).Preamble(nil, 0)
					c.behave(nonce, far)
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := guest.Connect(ctx, host, secret)
				if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.reason) {
					t.Errorf("%v, want %v with %q", err, c.want, c.reason)
				}
				if _, err := host.Write([]byte{1}); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("the stream was left open: %v", err)
				}
			})
		})
	}
}

func TestASecretThatCanBeNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "two words", "a\nline", strings.Repeat("x", wire.MaxSecret+1)} {
		host, _ := net.Pipe()
		if _, err := guest.Connect(t.Context(), host, s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

// FuzzGuest lets a guest answer with any bytes whatever to all kinds of calls.
func FuzzGuest(f *testing.F) {
	frame := func(fr wire.Frame) []byte {
		b, err := fr.Encode()
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	f.Add([]byte("garbage"))
	f.Add(frame(wire.With(1, wire.OpResult, struct{}{})))
	f.Add(append(frame(data(2, 100)), frame(wire.With(2, wire.OpResult, wire.Exit{}))...))
	f.Add(append(frame(wire.With(3, wire.OpHead, wire.Head{Size: 5})), frame(data(3, 5))...))
	f.Add(frame(wire.Frame{ID: 4, Op: wire.OpCredit, Credit: 5}))
	f.Fuzz(func(t *testing.T, answer []byte) {
		c := connect(t, func(e *enemy) {
			go e.ignore()
			_, _ = e.Write(answer)
			e.Close()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		results := make(chan error)
		calls := []func(context.Context, *guest.Client) error{ping, run, get, put, network}
		for _, call := range calls {
			go func() { results <- call(ctx, c) }()
		}
		for range calls {
			if err := <-results; errors.Is(err, context.DeadlineExceeded) {
				t.Error("a call outlived its session")
			}
		}
		select {
		case <-c.Done():
		case <-ctx.Done():
			t.Error("the session outlived its stream")
		}
	})
}
