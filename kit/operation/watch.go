package operation

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

const (
	// watchPeriod is the maximum delay until a stream shows progress. The end is shown immediately.
	watchPeriod = time.Second
	// heartbeat is the maximum time that a stream is silent.
	heartbeat = 15 * time.Second
)

// Watch sends server-sent events with a name: first the current state of the operation, then each change. Their id is
// the operation's Revision. It ends when the operation has ended, the client disconnects or until, the service's
// context, ends. A client that reconnects gets the current state first, unless it names its id (Last-Event-ID).
//
// next reads the operation in the caller's scope, waiting at most wait for it to end (Await), and returns its
// representation. Its error is returned, or ends the stream if it has begun.
func Watch(
	until context.Context, w http.ResponseWriter, r *http.Request, name string,
	next func(ctx context.Context, wait time.Duration) (shown any, o *Operation, err error),
) error {
	shown, o, err := next(r.Context(), 0)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead { // patterns of GET also match HEAD
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	stream, err := httpserve.NewEventStream(w, r, 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	seen, _ := stream.LastEventID()
	read := func(ctx context.Context, wait time.Duration) (any, bool, error) {
		if wait > 0 {
			var err error
			if shown, o, err = next(ctx, wait); err != nil {
				return nil, false, err
			}
		}
		return shown, o.Job.State.Finished(), nil
	}
	err = Follow(stream.Context(), until, read, func(shown any) error {
		id := o.Revision()
		if id == seen {
			return nil
		}
		seen = 0 // what the client has seen is over
		return stream.Send(id, name, shown)
	}, stream.Heartbeat)
	if stream.Context().Err() != nil {
		return nil // the client has disconnected, or the server drains
	}
	return err
}

// Follow reads an operation with next, as Watch does, and calls send with what it finds first, and with each change. It
// returns when the operation has ended, ctx or until ends, or something fails. It calls alive when it has sent nothing
// for a while.
func Follow[T any](
	ctx, until context.Context, next func(ctx context.Context, wait time.Duration) (shown T, ended bool, err error),
	send func(shown T) error, alive func() error,
) error {
	var sent any
	shown, ended, err := next(ctx, 0)
	for at := time.Now(); err == nil; {
		switch now := time.Now(); {
		case !reflect.DeepEqual(any(shown), sent):
			sent, at, err = shown, now, send(shown)
		case now.Sub(at) >= heartbeat:
			at, err = now, alive()
		}
		if err != nil || ended || until.Err() != nil {
			break
		}
		shown, ended, err = next(ctx, watchPeriod)
	}
	return err
}
