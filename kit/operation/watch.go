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
// until it has ended, or the client has left, or the service ends. A client that was cut off begins
// again with what the operation is.
//
// next reads the operation in the caller's scope, after at most wait if nothing has ended before
// (Await), and says what is shown of it and whether it has ended. Its error is the answer, or ends the
// stream.
func (r *Runner) Watch(
	w http.ResponseWriter, req *http.Request,
	next func(ctx context.Context, wait time.Duration) (shown any, ended bool, err error),
) error {
	shown, ended, err := next(req.Context(), 0)
	if err != nil {
		return err
	}
	if req.Method == http.MethodHead { // which takes the patterns of GET, too
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	stream, err := httpserve.NewEventStream(w, req, 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	var sent any
	for at := r.now(); err == nil; {
		switch now := r.now(); {
		case !reflect.DeepEqual(shown, sent):
			sent, at, err = shown, now, stream.Send(0, "operation", shown)
		case now.Sub(at) >= heartbeat:
			at, err = now, stream.Heartbeat()
		}
		if err != nil || ended || r.ending.Err() != nil {
			break
		}
		shown, ended, err = next(stream.Context(), watchPeriod)
	}
	if stream.Context().Err() != nil {
		return nil // the client has left, or the server drains
	}
	return err
}
