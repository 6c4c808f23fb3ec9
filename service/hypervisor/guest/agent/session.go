//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// operations are all operations of calls except those that change the secret. A malformed body only fails the
// call.
var operations = map[string]func(context.Context, *call, json.RawMessage) (any, error){
	wire.OpPing:     func(context.Context, *call, json.RawMessage) (any, error) { return struct{}{}, nil },
	wire.OpExec:     with((*call).exec),
	wire.OpPutFile:  with((*call).putFile),
	wire.OpGetFile:  with((*call).getFile),
	wire.OpNetwork:  with((*call).network),
	wire.OpShutdown: with((*call).shutdown),
	wire.OpFreeze:   with((*call).freeze),
	wire.OpThaw:     with((*call).thaw),
}

func with[T any](
	do func(*call, context.Context, T) (any, error),
) func(context.Context, *call, json.RawMessage) (any, error) {
	return func(ctx context.Context, c *call, body json.RawMessage) (any, error) {
		var args T
		if err := json.Unmarshal(body, &args); err != nil {
			return nil, wire.Errorf(wire.Invalid, "the request's body: %v", err)
		}
		return do(c, ctx, args)
	}
}

func capabilities() []string {
	return []string{
		wire.OpPing, wire.OpExec, wire.OpPutFile, wire.OpGetFile, wire.OpNetwork,
		wire.OpShutdown, wire.OpFreeze, wire.OpThaw, wire.OpRotateSecret, wire.OpPersonalize,
	}
}

// session is one session of one stream.
type session struct {
	*Agent
	sender *wire.Sender
	mu     sync.Mutex
	calls  map[uint64]*call
}

// call is one open call.
type call struct {
	*session
	id     uint64
	cancel context.CancelFunc
	inbox  *wire.Inbox
	budget *wire.Budget
}

// session sends the response to the preamble, runs the session until its end, and returns the
// reason. Calls may end later, but cannot write any more.
func (a *Agent) session(ctx context.Context, stream io.Writer, r *wire.Reader, nonce wire.Nonce) error {
	hello := wire.With(
		0, wire.OpHello, wire.Hello{Proto: wire.Proto, Version: a.config.Version, Capabilities: capabilities()},
	)
	b, err := hello.Encode()
	if err != nil {
		return err
	}
	if _, err := stream.Write(append(nonce.Preamble(), b...)); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	s := &session{Agent: a, sender: wire.NewSender(), calls: map[uint64]*call{}}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = s.sender.Run(stream) // a stream that cannot be written is soon at its end
	}()
	// The next session may only write once the last frame of this one is out. If the host does not
	// read, that happens when a new daemon reads and discards it.
	defer func() {
		end()
		s.sender.Stop()
		a.freezer.endOf(s)
		<-written
	}()
	for {
		f, err := r.Frame()
		if err == nil {
			err = s.dispatch(ctx, f)
		}
		if errors.Is(err, wire.ErrMalformed) {
			s.farewell(ctx, err)
		}
		if err != nil {
			return err
		}
	}
}

// farewellLimit is the timeout for telling the host that the session is over.
const farewellLimit = time.Second

// farewell tells the host that the session is over. A port has no connection to close, so the
// host would keep waiting for answers.
func (s *session) farewell(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(ctx, farewellLimit)
	defer cancel()
	_ = s.answer(ctx, 0, nil, wire.Errorf(wire.Invalid, "%v", why)) // a host that does not read has left
}

// dispatch handles a frame without waiting for any call.
func (s *session) dispatch(ctx context.Context, f wire.Frame) error {
	s.mu.Lock()
	c, n := s.calls[f.ID], len(s.calls)
	s.mu.Unlock()
	switch f.Op {
	case wire.OpData, wire.OpEnd, wire.OpCredit, wire.OpCancel:
		if c == nil {
			return nil // it ended before the host knew
		}
		return c.follow(f)
	}
	if c != nil {
		return fmt.Errorf("%w: call %d is open already", wire.ErrMalformed, f.ID)
	}
	if err := s.authorize(ctx, f.Secret); err != nil {
		return s.answer(ctx, f.ID, nil, err)
	}
	if n >= maxCalls {
		return s.answer(ctx, f.ID, nil, wire.Errorf(wire.Busy, "%d calls are open", n))
	}
	// These are done before the next frame is read, so that it is clear which secret that frame needs.
	switch f.Op {
	case wire.OpRotateSecret:
		var args wire.RotateSecret
		if err := json.Unmarshal(f.Body, &args); err != nil {
			return s.answer(ctx, f.ID, nil, wire.Errorf(wire.Invalid, "the request's body is not as expected"))
		}
		rotated, err := s.rotate(args.New)
		return s.answer(ctx, f.ID, rotated, err)
	case wire.OpPersonalize:
		var args wire.Personalize
		if err := json.Unmarshal(f.Body, &args); err != nil {
			return s.answer(ctx, f.ID, nil, wire.Errorf(wire.Invalid, "the request's body is not as expected"))
		}
		rotated, err := s.personalize(ctx, args)
		return s.answer(ctx, f.ID, rotated, err)
	}
	do := operations[f.Op]
	if do == nil {
		return s.answer(ctx, f.ID, nil, wire.Errorf(wire.Unsupported, "no such operation"))
	}
	s.start(ctx, f, do)
	return nil
}

func (s *session) start(
	ctx context.Context, f wire.Frame, do func(context.Context, *call, json.RawMessage) (any, error),
) {
	callCtx, cancel := context.WithCancel(ctx)
	c := &call{session: s, id: f.ID, cancel: cancel, inbox: wire.NewInbox(), budget: wire.NewBudget()}
	s.mu.Lock()
	s.calls[c.id] = c
	s.mu.Unlock()
	s.running.Go(func() {
		defer cancel()
		result, err := do(callCtx, c, f.Body)
		s.mu.Lock()
		delete(s.calls, c.id)
		s.mu.Unlock()
		_ = s.answer(ctx, c.id, result, err) // fails only after the session
	})
}

func (c *call) follow(f wire.Frame) error {
	switch f.Op {
	case wire.OpData:
		return c.inbox.Put(wire.Input, f.Data)
	case wire.OpEnd:
		c.inbox.End(f.Body)
	case wire.OpCredit:
		return c.budget.Add(f.Credit)
	case wire.OpCancel:
		c.cancel()
	}
	return nil
}

// consumed sends credit to the host.
func (c *call) consumed(ctx context.Context, n int) error {
	c.inbox.Consumed(n)
	return c.sender.Send(ctx, wire.Frame{ID: c.id, Op: wire.OpCredit, Credit: n})
}

// answer ends a call.
func (s *session) answer(ctx context.Context, id uint64, result any, err error) error {
	f := wire.With(id, wire.OpResult, result)
	if err != nil {
		f = wire.With(id, wire.OpError, toError(err))
	}
	return s.sender.Send(ctx, f)
}

// toError chooses the code of an error.
func toError(err error) *wire.Error {
	var e *wire.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled):
		return wire.Errorf(wire.Cancelled, "cancelled")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return wire.Errorf(wire.NotFound, "%v", err)
	}
	return wire.Errorf(wire.Failed, "%v", err)
}
