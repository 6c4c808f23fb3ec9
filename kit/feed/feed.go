// Package feed lets clients follow what happens, as server-sent events.
//
// What happens is numbered in the database, in the order of its commits. A client that
// was cut off names the last number that it has seen (Last-Event-ID) and misses nothing
// that is still kept, on whichever replica it comes back. What this process does wakes its
// streams at once (Bell); what other replicas do is found by polling.
package feed

import (
	"context"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// Feed is something that clients can follow.
type Feed struct {
	// Newest is the number of the newest event that there is, 0 if there is none.
	Newest func(ctx context.Context) (int64, error)
	// Bell rings when there may be more.
	Bell *Bell
	// Poll is how soon a stream sees what another replica did.
	Poll time.Duration
}

// Serve answers with a stream until the client or the server ends it. Without
// Last-Event-ID it begins with what happens next.
//
// after returns the events above a number in rising order, some at a time, within the
// scope of the caller; it decides each time whether the caller may still see them. A fault
// of kind Unauthenticated ends the stream without another word.
func (f *Feed) Serve(
	w http.ResponseWriter, r *http.Request, after func(ctx context.Context, after int64) ([]httpserve.Event, error),
) error {
	// Where the stream begins is read before its client can see it open: whatever happens
	// from then on is in it.
	newest, err := f.Newest(r.Context())
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
	// A number that was not given out yet is from before a backup was restored.
	if last, resumed := stream.LastEventID(); !resumed || last > newest {
		stream.StartAfter(newest)
	}
	wake, cancel := f.Bell.Subscribe()
	defer cancel()
	err = httpserve.Loop(stream.Context(), stream, wake, f.Poll, after)
	if fault.Is(err, fault.Unauthenticated) {
		return nil // the end of the stream says enough; its header is out
	}
	return err
}
