package guest

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// Command is a process to run in the guest.
type Command struct {
	Argv      []string  // the program, by path or looked up in PATH, and its arguments
	Env       []string  // KEY=value, beside PATH and HOME
	Dir       string    // where it starts; the root folder if empty
	Stdin     io.Reader // nil is an empty input
	Stdout    io.Writer // nil throws the output away
	Stderr    io.Writer
	Timeout   time.Duration // after which the guest kills it; none if 0
	MaxOutput int64         // bytes of both outputs, the rest is thrown away; no limit if 0
	Detach    bool          // it outlives call and session, without input and output
}

// MaxCommand is about how many bytes the arguments, the environment and the folder of a command may have
// together, as JSON: they are sent as one request.
const MaxCommand = wire.MaxFrame - 1<<10

// Fits reports whether a command can be sent.
func (c *Command) Fits() bool {
	text, err := json.Marshal([]any{c.Argv, c.Env, c.Dir})
	return err == nil && len(text) <= MaxCommand
}

// Exit describes how a process ended.
type Exit struct {
	PID       int
	Code      int    // -1 if a signal ended it
	Signal    string // as in SIGKILL
	TimedOut  bool
	Truncated bool // there was more than MaxOutput
}

// Exec runs a process and waits for its end or, with Detach, for its start. The process leads a
// group, which is killed when ctx ends, at Timeout and, as far as it still exists, when the process
// has ended. Only processes that left the group continue.
//
// Exec does not wait for a pending Read of Stdin when the process ends: do not use Stdin before
// that has returned. An error of a reader or writer cancels the process and is returned.
func (c *Client) Exec(ctx context.Context, cmd Command) (Exit, error) {
	call, err := c.open(ctx, wire.OpExec, wire.Exec{
		Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir,
		Stdin:     cmd.Stdin != nil,
		TimeoutMS: milliseconds(cmd.Timeout),
		MaxOutput: cmd.MaxOutput,
		Detach:    cmd.Detach,
	}, wire.Output, wire.Errors)
	if err != nil {
		return Exit{}, err
	}
	if cmd.Stdin != nil {
		routine.Go(nil, "guest input", func() { c.sendInput(call, cmd.Stdin) })
	}
	limit := int64(-1)
	if cmd.MaxOutput > 0 {
		limit = cmd.MaxOutput
	}
	if err := c.receive(call, limit, [...]io.Writer{nil, cmd.Stdout, cmd.Stderr}); err != nil {
		return Exit{}, err
	}
	var exit wire.Exit
	if err := c.wait(call, &exit); err != nil {
		return Exit{}, err
	}
	if exit.Code < -1 || exit.Code > 255 {
		return Exit{}, c.breach(violation("an exit code of %d", exit.Code))
	}
	return Exit{exit.PID, exit.Code, printable(exit.Signal, 16), exit.TimedOut, exit.Truncated}, nil
}

func (c *Client) sendInput(call *call, r io.Reader) {
	err := routine.Call(nil, "guest input", func() error {
		if _, err := c.sender.Copy(call.sending, call.id, wire.Input, r, call.budget); err != nil {
			return err
		}
		return c.sender.Send(call.sending, wire.Frame{ID: call.id, Op: wire.OpEnd})
	})
	if err != nil && call.sending.Err() == nil {
		call.cancel(err) // the reader failed
	}
}

// milliseconds rounds up, so that a tiny duration does not become 0, which means none.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
