package httpapi

import (
	"context"
	"net/http"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

const (
	// feedPage is the number of events that are read at once.
	feedPage = 500
	// feedPoll is how often a stream looks for events even if nothing woke it.
	feedPoll = 5 * time.Second
)

// The names of the events of the stream.
const (
	feedVM    = "vm"
	feedReset = "reset"
)

// watchVMs streams what happens to the VMs in the caller's scope. An event named reset tells the client
// to list the VMs: at the beginning, and where events are missing that are not kept any longer.
func (a *API) watchVMs(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	// The position is read before the client can list anything, so that nothing is missed in between.
	_, newest, err := a.store.FeedBounds(r.Context())
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
	// A number that does not exist yet is from before a backup of the database was restored.
	if last, resumed := stream.LastEventID(); !resumed || last > newest {
		stream.StartAfter(newest)
		if stream.Send(newest, feedReset, struct{}{}) != nil {
			return nil // the client has left
		}
	}
	wake, cancel := a.store.FeedBell().Subscribe()
	defer cancel()
	return httpserve.Loop(stream.Context(), stream, wake, feedPoll, a.feedAfter)
}

// feedAfter returns the next events of a stream.
func (a *API) feedAfter(ctx context.Context, after int64) ([]httpserve.Event, error) {
	found, err := a.store.FeedAfter(ctx, after, feedPage)
	if err != nil {
		return nil, err
	}
	// Read last: what is removed meanwhile must be noticed.
	oldest, newest, err := a.store.FeedBounds(ctx)
	if err != nil {
		return nil, err
	}
	if after < oldest-1 {
		return []httpserve.Event{{ID: newest, Name: feedReset, Data: struct{}{}}}, nil
	}
	events := make([]httpserve.Event, len(found))
	for i := range found {
		events[i] = httpserve.Event{ID: found[i].ID, Name: feedVM, Data: apiFeedEvent(&found[i])}
	}
	return events, nil
}

func apiFeedEvent(e *record.FeedEvent) hypervisorapi.VMEvent {
	return hypervisorapi.VMEvent{
		At: e.At.Time, VmId: e.VM, Name: e.Name, Tenant: e.Tenant, Kind: e.Kind, State: some(hypervisorapi.State(e.State)),
		Message: e.Message, Actor: some(e.Actor),
	}
}
