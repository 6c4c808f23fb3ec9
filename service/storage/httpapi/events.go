package httpapi

import (
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/storage/monitor"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

func apiEvent(e record.Event) storageapi.Event {
	out := storageapi.Event{
		Id: string(e.Type) + "-" + e.ID, At: e.At.Time, Type: storageapi.EventType(e.Type), Kind: e.Kind, Message: e.Message,
		Actor: e.Actor, TenantId: e.Tenant, ResourceType: e.ResourceType, ResourceId: e.ResourceID,
	}
	if e.Type == record.EventAlert {
		out.ResourceType = monitor.Kinds[e.ResourceType].Resource
	}
	return out
}

func (a *API) events(
	ctx context.Context, f record.EventFilter, limit *int, cursor *string,
) ([]storageapi.Event, *string, error) {
	return list.Rows(ctx, limit, cursor, 100,
		func(after string, limit int) ([]record.Event, error) { return a.store.Events(ctx, f, after, limit) },
		record.Event.Key, apiEvent)
}

// ListEvents lists what happened lately.
func (a *API) ListEvents(
	ctx context.Context, req storageapi.ListEventsRequestObject,
) (storageapi.ListEventsResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	f := record.EventFilter{Type: record.EventType(value(q.Type)), Tenant: tenant, Resource: value(q.Resource)}
	if err := text.Check("resource", f.Resource); err != nil {
		return nil, err
	}
	out, link, err := a.events(ctx, f, q.Limit, q.Cursor)
	return storageapi.ListEvents200JSONResponse{
		Body: out, Headers: storageapi.ListEvents200ResponseHeaders{Link: link},
	}, err
}

// ListVolumeEvents lists what happened to a volume, also to one that was deleted.
func (a *API) ListVolumeEvents(
	ctx context.Context, req storageapi.ListVolumeEventsRequestObject,
) (storageapi.ListVolumeEventsResponseObject, error) {
	if _, _, err := a.store.Whereabouts(ctx, req.Id); err != nil {
		return nil, err
	}
	out, link, err := a.events(ctx, record.EventFilter{Resource: req.Id}, req.Params.Limit, req.Params.Cursor)
	return storageapi.ListVolumeEvents200JSONResponse{
		Body: out, Headers: storageapi.ListVolumeEvents200ResponseHeaders{Link: link},
	}, err
}
