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

// Watch sends server-sent events named operation: first the current state of the operation, then
// each change. It ends when the operation has ended, the client disconnects or until, the service's
// context, ends. A client that reconnects gets the current state first.
//
// next reads the operation in the caller's scope, waiting at most wait for it to end (Await), and
// returns its representation and whether it has ended. Its error is returned, or ends the stream if
// it has begun.
// stream.
func Watch(
	until context.Context, w http.ResponseWriter, r *http.Request,
	next func(ctx context.Context, wait time.Duration) (shown any, ended bool, err error),
) error {
	shown, ended, err := next(r.Context(), 0)
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
	var sent any
	for at := time.Now(); err == nil; {
		switch now := time.Now(); {
		case !reflect.DeepEqual(shown, sent):
			sent, at, err = shown, now, stream.Send(0, "operation", shown)
		case now.Sub(at) >= heartbeat:
			at, err = now, stream.Heartbeat()
		}
		if err != nil || ended || until.Err() != nil {
			break
		}
		shown, ended, err = next(stream.Context(), watchPeriod)
	}
	if stream.Context().Err() != nil {
		return nil // the client has disconnected, or the server drains
	}
	return err
}
