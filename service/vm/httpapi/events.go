package httpapi

import (
	"context"
	"net/http"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/feed"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

const (
	// eventPage is the number of events that a stream reads at once.
	eventPage = 200
	// eventPoll is how often a stream looks for events. Any replica stores them, so nothing wakes a
	// stream earlier.
	eventPoll = time.Second
)

func apiEvent(c caller.Caller, e *record.Event) vmapi.Event {
	return vmapi.Event{Id: e.Seq, At: e.At.Time, Kind: e.Kind, Message: c.Public(e.Message), Actor: e.Actor}
}

// ListVMEvents lists what happened to a VM.
func (a *API) ListVMEvents(
	ctx context.Context, req vmapi.ListVMEventsRequestObject,
) (vmapi.ListVMEventsResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	c := caller.From(ctx)
	out, link, err := list.Down(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(before int64, limit int) ([]record.Event, error) { return a.store.Events(ctx, r.ID, before, limit) },
		func(e record.Event) int64 { return e.Seq },
		func(e record.Event) vmapi.Event { return apiEvent(c, &e) })
	return vmapi.ListVMEvents200JSONResponse{Body: out, Headers: vmapi.ListVMEvents200ResponseHeaders{Link: link}}, err
}

// watchEvents streams what happens to a VM until it is deleted, or the caller may not see it any more.
func (a *API) watchEvents(w http.ResponseWriter, r *http.Request, c caller.Caller) error {
	vm, err := a.store.Named(r.Context(), r.PathValue("name"), tenantIn(r))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.cfg.Ending, cancel)()
	events := feed.Feed{
		Newest: func(context.Context) (int64, error) { return vm.Events, nil },
		Bell:   new(feed.Bell),
		Poll:   eventPoll,
	}
	opened := false
	err = events.Serve(w, r.WithContext(ctx), func(ctx context.Context, after int64) ([]httpserve.Event, error) {
		opened = true
		if _, err := a.store.VM(ctx, vm.ID); err != nil {
			return nil, err
		}
		found, err := a.store.EventsAfter(ctx, vm.ID, after, eventPage)
		sent := make([]httpserve.Event, len(found))
		for i := range found {
			sent[i] = httpserve.Event{ID: found[i].Seq, Name: "event", Data: apiEvent(c, &found[i])}
		}
		return sent, err
	})
	if opened && fault.Is(err, fault.NotFound) {
		return nil // the header was already sent; ending the stream is enough
	}
	return err
}
