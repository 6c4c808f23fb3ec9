// Package feed lets clients follow events as server-sent events.
//
// Events are numbered in the database, in the order of their commits. A client that was
// disconnected sends the last number that it has seen (Last-Event-ID) and misses no event that is
// still stored, whichever replica it reconnects to. Events of this process wake its streams
// immediately (Bell); events of other replicas are found by polling.
package feed

import (
	"context"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// Feed is a sequence of events that clients can follow.
type Feed struct {
	// Newest returns the number of the newest event, 0 if there is none.
	Newest func(ctx context.Context) (int64, error)
	// Bell rings when there may be new events.
	Bell *Bell
	// Poll is the polling interval for events of other replicas.
	Poll time.Duration
}

// Serve sends a stream until the client or the server ends it. Without Last-Event-ID the stream
// begins with the next event.
//
// after returns events above a number in ascending order, some at a time, within the caller's
// scope. It checks each time that the caller may still see them. A fault of kind Unauthenticated
// ends the stream without an error.
func (f *Feed) Serve(
	w http.ResponseWriter, r *http.Request, after func(ctx context.Context, after int64) ([]httpserve.Event, error),
) error {
	// Read the start position before the client can see the open stream, so that the stream
	// includes everything from then on.
	newest, err := f.Newest(r.Context())
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
	// A number that does not exist yet is from before a backup was restored.
	if last, resumed := stream.LastEventID(); !resumed || last > newest {
		stream.StartAfter(newest)
	}
	wake, cancel := f.Bell.Subscribe()
	defer cancel()
	err = httpserve.Loop(stream.Context(), stream, wake, f.Poll, after)
	if fault.Is(err, fault.Unauthenticated) {
		return nil // the header was already sent; ending the stream is enough
	}
	return err
}
