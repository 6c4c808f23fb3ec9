package operation

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

const (
	// watchPeriod is how soon a stream shows progress. The end is shown at once.
	watchPeriod = time.Second
	// heartbeat is how long a stream may be silent.
	heartbeat = 15 * time.Second
)

// Watch answers with server-sent events named operation, what the operation is first, then each change,
// until it has ended, the client has left, or until ends, which is the context of the service. A client
// that was cut off begins again with what the operation is.
//
// next reads the operation in the caller's scope, after at most wait if nothing has ended before
// (Await), and says what is shown of it and whether it has ended. Its error is the answer, or ends the
// stream.
func Watch(
	until context.Context, w http.ResponseWriter, r *http.Request,
	next func(ctx context.Context, wait time.Duration) (shown any, ended bool, err error),
) error {
	shown, ended, err := next(r.Context(), 0)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead { // which takes the patterns of GET, too
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
		return nil // the client has left, or the server drains
	}
	return err
}
