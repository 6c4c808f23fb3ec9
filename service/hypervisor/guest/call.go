package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// call is one open call. It ends when the guest ends it, even if it was abandoned.
type call struct {
	id       uint64
	inbox    *wire.Inbox
	budget   *wire.Budget
	receives [wire.Errors + 1]bool
	head     chan json.RawMessage // nil if the operation has none
	done     chan outcome         // of capacity one

	ctx       context.Context // of the caller, and of the session
	cancel    context.CancelCauseFunc
	sending   context.Context // ends earlier, with the answer
	stop      context.CancelFunc
	abandoned bool // under Client.mu
}

type outcome struct {
	result json.RawMessage
	err    error
}

// open sends the frame that opens a call. If it succeeds, the caller must call wait or abandon.
func (c *Client) open(ctx context.Context, op string, args any, streams ...int) (*call, error) {
	if err := c.take(ctx, c.slots); err != nil {
		return nil, err
	}
	if err := c.take(ctx, c.turn); err != nil {
		<-c.slots
		return nil, err
	}
	defer func() { <-c.turn }()
	return c.openInTurn(ctx, op, args, streams...)
}

func (c *Client) take(ctx context.Context, places chan<- struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.over:
		return c.err
	}
}

// openInTurn is open for a caller that holds turn and a slot. It releases the slot if it fails.
func (c *Client) openInTurn(ctx context.Context, op string, args any, streams ...int) (*call, error) {
	call := &call{inbox: wire.NewInbox(), budget: wire.NewBudget(), done: make(chan outcome, 1)}
	call.ctx, call.cancel = context.WithCancelCause(ctx)
	call.sending, call.stop = context.WithCancel(call.ctx)
	for _, s := range streams {
		call.receives[s] = true
	}
	if op == wire.OpGetFile {
		call.head = make(chan json.RawMessage, 1)
	}
	c.mu.Lock()
	c.last++
	call.id = c.last
	c.calls[call.id] = call
	over := c.Err()
	c.mu.Unlock()
	f := wire.With(call.id, op, args)
	f.Secret = c.secret
	err := over
	if err == nil {
		err = c.sender.Send(call.ctx, f)
	}
	if err != nil { // it was not sent
		if cause := c.Err(); cause != nil {
			err = cause
		}
		c.finish(call, outcome{})
		call.cancel(err)
		return nil, err
	}
	return call, nil
}

// finish ends a call, once: the guest has ended it, or never received it. A guest can also end a
// call before it has received it.
func (c *Client) finish(call *call, o outcome) {
	c.mu.Lock()
	if c.calls[call.id] != call {
		c.mu.Unlock()
		return
	}
	delete(c.calls, call.id)
	if call.abandoned {
		c.abandoned--
	}
	c.mu.Unlock()
	call.done <- o
	call.inbox.End(nil)
	call.stop()
	<-c.slots
}

// wait waits for the guest's response and decodes it into result. If the caller's ctx ends first,
// it tells the guest to cancel.
func (c *Client) wait(call *call, result any) error {
	var o outcome
	select {
	case o = <-call.done:
	case <-call.ctx.Done():
		select {
		case o = <-call.done:
		default:
			return c.abandon(call, context.Cause(call.ctx))
		}
	}
	call.cancel(nil)
	if o.err != nil {
		return o.err
	}
	if err := wire.Body(o.result, result); err != nil {
		return c.breach(violation("a result of another form"))
	}
	return nil
}

// abandon stops waiting for a call. It returns err, or why the session is over.
func (c *Client) abandon(call *call, err error) error {
	call.cancel(err)
	call.inbox.Drop()
	c.mu.Lock()
	_, open := c.calls[call.id]
	if open && !call.abandoned {
		call.abandoned = true
		c.abandoned++
	}
	tooMany := c.abandoned > maxAbandoned
	c.mu.Unlock()
	if over := c.Err(); over != nil {
		return over
	}
	if tooMany {
		c.end(violation("it does not end calls that were cancelled"))
	}
	if open {
		// Waits behind others; ends with the session at the latest.
		routine.Go(nil, "guest agent's commands", func() {
			_ = c.sender.Send(context.Background(), wire.Frame{ID: call.id, Op: wire.OpCancel})
		})
	}
	return err
}

// breach ends the session and returns why it is over.
func (c *Client) breach(err error) error {
	c.end(err)
	return c.Err()
}

// receive copies a call's data to the writers of its streams until the guest's response, which wait
// then returns. More than limit bytes is a violation; a negative limit means none.
func (c *Client) receive(call *call, limit int64, writers [wire.Errors + 1]io.Writer) error {
	for {
		stream, data, err := call.inbox.Take(call.ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return c.abandon(call, err)
		}
		if limit >= 0 {
			if limit -= int64(len(data)); limit < 0 {
				return c.breach(violation("more data than was said or asked"))
			}
		}
		if w := writers[stream]; w != nil {
			if _, err := w.Write(data); err != nil {
				return c.abandon(call, err)
			}
		}
		call.inbox.Consumed(len(data))
		err = c.sender.Send(call.sending, wire.Frame{ID: call.id, Op: wire.OpCredit, Credit: len(data)})
		if err != nil && call.ctx.Err() != nil {
			return c.abandon(call, context.Cause(call.ctx))
		}
	}
}

// ask makes a call without data.
func (c *Client) ask(ctx context.Context, op string, args, result any) error {
	call, err := c.open(ctx, op, args)
	if err != nil {
		return err
	}
	return c.wait(call, result)
}

func isGraphic(r rune) bool { return unicode.IsGraphic(r) && r != unicode.ReplacementChar }

// IsRefusal reports whether err is a refusal by the agent with the code.
func IsRefusal(err error, code wire.Code) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Code == code
}
