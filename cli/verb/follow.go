package verb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/cli/exit"
)

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
	// silence is how long a stream may send nothing, not even heartbeats, before it is considered
	// dead.
	silence = time.Minute
)

// Follow calls use with each server-sent event of a stream until ctx ends. When the connection breaks,
// it connects again, after the last event. open requests the stream; last is the id of that event, or
// empty. If the first connection fails or the server refuses one, Follow returns the error.
func (c *Call[A]) Follow(
	ctx context.Context, last string, open func(ctx context.Context, last string) (*http.Response, error),
	use func(name, data string) error,
) error {
	pause, connected := firstPause, false
	for {
		before := last
		accepted, err := c.stream(ctx, &last, open, use)
		if ctx.Err() != nil {
			return nil // the only successful end
		}
		connected = connected || accepted
		// An error response would be repeated, and if the first connection fails, the user should
		// know.
		if !connected || exit.Code(err) != exit.Failure {
			return err
		}
		if last != before {
			pause = firstPause
		}
		if _, err := fmt.Fprintf(c.Cmd.ErrOrStderr(), "The stream broke (%v); connecting again.\n", err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// stream reads the events of one connection and stores the id of the last one.
func (c *Call[A]) stream(
	ctx context.Context, last *string, open func(ctx context.Context, last string) (*http.Response, error),
	use func(name, data string) error,
) (accepted bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dead := time.AfterFunc(silence, func() { cancel(errors.New("no sign of life")) })
	defer dead.Stop()
	r, err := c.Open(open(ctx, *last))
	if err != nil {
		return false, err
	}
	// The connection has ended; errors of closing do not matter.
	defer func() { _ = r.Body.Close() }()
	err = readEvents(r.Body, func() { dead.Reset(silence) }, func(id, name, data string) error {
		if err := use(name, data); err != nil {
			return err
		}
		if id != "" {
			*last = id
		}
		return nil
	})
	switch {
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return true, err
}

// AcceptEvents asks for server-sent events.
func AcceptEvents(_ context.Context, r *http.Request) error {
	r.Header.Set("Accept", "text/event-stream")
	return nil
}
