package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

const (
	// glance is how many seconds one request waits for the end of an operation, so that the
	// progress bar moves; gaze is used if there is no terminal.
	glance, gaze = 1, 20
	// cancelPatience is how long to wait for a canceled operation to end.
	cancelPatience = 30 * time.Second
)

// Operation returns a command that starts an operation and follows it to its end. done returns a
// sentence about the result.
func Operation(
	s *Session, v verb.Verb, r Request, done func(c *Call, op hypervisorapi.Operation) string,
) *cobra.Command {
	cmd := s.Command(v, func(ctx context.Context, c *Call) error {
		return Follow(ctx, c, func() (*http.Response, error) { return r(ctx, c) }, done)
	})
	FollowFlag(cmd)
	return cmd
}

// FollowFlag defines --no-wait, which Follow reads.
func FollowFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("no-wait", false, "print the operation's id and do not wait for its end")
}

// Follow starts an operation and shows its progress until it has ended. If ctx ends, as with
// Ctrl-C, it asks the daemon to cancel the operation.
func Follow(
	ctx context.Context, c *Call, begin func() (*http.Response, error),
	done func(c *Call, op hypervisorapi.Operation) string,
) error {
	a, err := c.Send(begin())
	op, err := Decode[hypervisorapi.Operation](a, err)
	if err != nil {
		return err
	}
	if noWait, err := c.Cmd.Flags().GetBool("no-wait"); err == nil && noWait {
		return c.Out.ObjectAs(a.Body, func() error { return c.Say("%s", op.Id) })
	}
	a, op, err = await(ctx, c, a, op)
	if err != nil {
		return err
	}
	if err := outcome(op); err != nil {
		return err
	}
	return c.Done(a, "%s", done(c, op))
}

// Finish starts an operation and waits for its end, as Follow does, and prints nothing but its progress.
func Finish(ctx context.Context, c *Call, begin func() (*http.Response, error)) error {
	a, err := c.Send(begin())
	op, err := Decode[hypervisorapi.Operation](a, err)
	if err == nil {
		_, op, err = await(ctx, c, a, op)
	}
	if err != nil {
		return err
	}
	return outcome(op)
}

func ended(op hypervisorapi.Operation) bool {
	switch op.State {
	case hypervisorapi.OperationStateQueued, hypervisorapi.OperationStateRunning:
		return false
	}
	return true
}

// outcome returns the error of an operation that has not succeeded.
func outcome(op hypervisorapi.Operation) error {
	switch op.State {
	case hypervisorapi.OperationStateSucceeded:
		return nil
	case hypervisorapi.OperationStateCancelled:
		return fmt.Errorf("the operation %s was canceled; what it did is undone", op.Id)
	}
	return fmt.Errorf("the operation %s %s: %s", op.Id, op.State, output.Escape(op.Error))
}

// await follows an operation to its end.
func await(
	ctx context.Context, c *Call, a Answer, op hypervisorapi.Operation,
) (Answer, hypervisorapi.Operation, error) {
	p := c.Progress()
	defer p.Done()
	wait := gaze
	if p.Watched() {
		wait = glance
	}
	const whole = 1000
	for !ended(op) {
		p.Draw(
			int64(op.Progress*whole), whole,
			fmt.Sprintf("%s %s, %.0fs", op.Kind, op.State, p.Elapsed().Seconds()),
		)
		var err error
		a, err = c.Send(c.Slow.GetOperation(ctx, op.Id, &hypervisorapi.GetOperationParams{Wait: &wait}))
		if ctx.Err() != nil {
			p.Done()
			return cancel(ctx, c, op)
		}
		next, err := Decode[hypervisorapi.Operation](a, err)
		if err != nil {
			return a, op, exit.Hinted(
				fmt.Errorf("the operation %s goes on, but cannot be followed: %w", op.Id, err),
				"'mainstay vm operation show "+op.Id+"' tells how far it is",
			)
		}
		op = next
	}
	return a, op, nil
}

// cancel asks the daemon to cancel an operation, and returns how it ended.
func cancel(
	ctx context.Context, c *Call, op hypervisorapi.Operation,
) (Answer, hypervisorapi.Operation, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer stop()
	c.Note("Canceling the operation %s; Ctrl-C again leaves it to the daemon.", op.Id)
	a, err := c.Send(c.API.CancelOperation(ctx, op.Id, hypervisorapi.Nothing{}))
	next, err := Decode[hypervisorapi.Operation](a, err)
	if err != nil && !IsConflict(err) { // an operation that has ended cannot be canceled
		return a, op, fmt.Errorf("interrupted; the operation %s could not be canceled: %w", op.Id, err)
	}
	if err == nil {
		op = next
	}
	wait := int(cancelPatience / time.Second)
	for err != nil || !ended(op) {
		a, err = c.Send(c.Slow.GetOperation(ctx, op.Id, &hypervisorapi.GetOperationParams{Wait: &wait}))
		if op, err = Decode[hypervisorapi.Operation](a, err); err != nil {
			return a, op, fmt.Errorf("interrupted; the operation was asked to end: %w", err)
		}
	}
	return a, op, nil
}

// IsConflict reports whether the daemon refused with a conflict, because of an object's state.
func IsConflict(err error) bool {
	var r *rest.Refusal
	return errors.As(err, &r) && r.Status == http.StatusConflict
}
