package edge

import (
	"context"
	"encoding/json"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
)

func eventInput(e edgeapi.EventInput) EventInput {
	return EventInput{
		EventID:   value(e.EventId),
		SiteID:    e.SiteId,
		Topic:     e.Topic,
		Payload:   e.Payload,
		Headers:   value(e.Headers),
		EventTime: e.EventTime,
	}
}

// IngestEvent accepts one event.
func (a api) IngestEvent(
	ctx context.Context, req edgeapi.IngestEventRequestObject,
) (edgeapi.IngestEventResponseObject, error) {
	receipt, err := a.s.Ingest(ctx, eventInput(*req.Body))
	if err != nil {
		return nil, err
	}
	return edgeapi.IngestEvent202JSONResponse{EventId: receipt.EventID, Duplicate: receipt.Duplicate}, nil
}

// IngestEvents accepts many events, all or none.
func (a api) IngestEvents(
	ctx context.Context, req edgeapi.IngestEventsRequestObject,
) (edgeapi.IngestEventsResponseObject, error) {
	receipts, err := a.s.IngestBatch(ctx, list.Each(req.Body.Events, eventInput))
	if err != nil {
		return nil, err
	}
	return edgeapi.IngestEvents202JSONResponse(list.Each(receipts, func(r Receipt) edgeapi.EventReceipt {
		return edgeapi.EventReceipt{EventId: r.EventID, Duplicate: r.Duplicate}
	})), nil
}

// ListEvents lists events, newest first.
func (a api) ListEvents(
	ctx context.Context, req edgeapi.ListEventsRequestObject,
) (edgeapi.ListEventsResponseObject, error) {
	q := req.Params
	find := func(before int64, limit int) ([]Event, int64, error) {
		return a.s.Events(ctx, EventFilter{
			SiteID:  value(q.SiteId),
			Minutes: value(q.Minutes),
			Topic:   value(q.Topic),
			Text:    value(q.Q),
			Before:  before,
			Limit:   limit,
		})
	}
	out, next, err := list.DownExamined(
		ctx, q.Limit, q.Cursor, 100, find, func(e Event) int64 { return e.Seq }, apiEvent,
	)
	return edgeapi.ListEvents200JSONResponse{Body: out, Headers: edgeapi.ListEvents200ResponseHeaders{Link: next}}, err
}

func apiEvent(e Event) edgeapi.Event {
	return edgeapi.Event{
		EventId:    e.EventID,
		OrgId:      e.OrgID,
		SiteId:     e.SiteID,
		Topic:      e.Topic,
		Payload:    payload(e.Payload),
		Headers:    orEmpty(e.Headers.V),
		EventTime:  e.EventTime.Time,
		ReceivedAt: e.ReceivedAt.Time,
	}
}

// payload returns a stored payload as JSON. If the database was edited and it is not valid JSON,
// payload returns it as a JSON string, so that one such row does not hide the others.
func payload(stored string) json.RawMessage {
	if !json.Valid([]byte(stored)) {
		return mustJSON(stored)
	}
	return json.RawMessage(stored)
}

func apiRoute(r RouteWithHealth) edgeapi.Route {
	out := edgeapi.Route{
		Id:             r.ID,
		OrgId:          r.OrgID,
		Name:           r.Name,
		SiteId:         r.SiteID,
		Topic:          r.Topic,
		TargetUrl:      r.TargetURL,
		Method:         edgeapi.RouteMethod(r.Method),
		Enabled:        r.Enabled,
		RetryMax:       r.RetryMax,
		TimeoutSeconds: r.TimeoutSeconds,
		CreatedAt:      r.CreatedAt.Time,
		UpdatedAt:      r.UpdatedAt.Time,
		Delivery: edgeapi.RouteDelivery{
			State:         edgeapi.RouteDeliveryState(r.State),
			LastStatus:    r.LastStatus,
			LastError:     r.LastError,
			LastSuccessAt: r.LastSuccessAt.Ptr(),
			LastFailureAt: r.LastFailureAt.Ptr(),
		},
	}
	if r.DisabledReason != "" {
		out.DisabledReason = &r.DisabledReason
	}
	return out
}

// ListRoutes lists routes in scope.
func (a api) ListRoutes(
	ctx context.Context, req edgeapi.ListRoutesRequestObject,
) (edgeapi.ListRoutesResponseObject, error) {
	q := req.Params
	var order list.Order
	out, next, err := list.Rows(
		ctx, q.Limit, q.Cursor, 100, func(after string, limit int) (all []RouteWithHealth, err error) {
			all, order, err = a.s.Routes(ctx, RouteFilter{
				Status: string(value(q.Status)),
				Text:   value(q.Q),
				Sort:   string(value(q.Sort)),
				After:  after,
				Limit:  limit,
			})
			return all, err
		}, func(r RouteWithHealth) string { return routeKey(order, r.Route) }, apiRoute,
	)
	return edgeapi.ListRoutes200JSONResponse{Body: out, Headers: edgeapi.ListRoutes200ResponseHeaders{Link: next}}, err
}

// CreateRoute creates a route. Only this response contains its secret.
func (a api) CreateRoute(
	ctx context.Context, req edgeapi.CreateRouteRequestObject,
) (edgeapi.CreateRouteResponseObject, error) {
	b := req.Body
	r, secret, err := a.s.CreateRoute(ctx, RouteInput{
		Name:           &b.Name,
		SiteID:         b.SiteId,
		Topic:          &b.Topic,
		TargetURL:      &b.TargetUrl,
		Method:         (*string)(b.Method),
		Secret:         b.Secret,
		Enabled:        b.Enabled,
		RetryMax:       b.RetryMax,
		TimeoutSeconds: b.TimeoutSeconds,
	})
	if err != nil {
		return nil, err
	}
	shown, err := a.s.RouteWithHealth(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	out := apiRoute(shown)
	out.Secret = &secret
	return edgeapi.CreateRoute201JSONResponse(out), nil
}

// GetRoute returns one route.
func (a api) GetRoute(ctx context.Context, req edgeapi.GetRouteRequestObject) (edgeapi.GetRouteResponseObject, error) {
	r, err := a.s.RouteWithHealth(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetRoute200JSONResponse(apiRoute(r)), nil
}

// PatchRoute changes a route.
func (a api) PatchRoute(
	ctx context.Context, req edgeapi.PatchRouteRequestObject,
) (edgeapi.PatchRouteResponseObject, error) {
	b := req.Body
	_, err := a.s.PatchRoute(ctx, req.Id, RouteInput{
		Name:           b.Name,
		SiteID:         b.SiteId,
		Topic:          b.Topic,
		TargetURL:      b.TargetUrl,
		Method:         (*string)(b.Method),
		Secret:         b.Secret,
		Enabled:        b.Enabled,
		RetryMax:       b.RetryMax,
		TimeoutSeconds: b.TimeoutSeconds,
	})
	if err != nil {
		return nil, err
	}
	r, err := a.s.RouteWithHealth(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.PatchRoute200JSONResponse(apiRoute(r)), nil
}

// DeleteRoute deletes a route.
func (a api) DeleteRoute(
	ctx context.Context, req edgeapi.DeleteRouteRequestObject,
) (edgeapi.DeleteRouteResponseObject, error) {
	return edgeapi.DeleteRoute204Response{}, a.s.DeleteRoute(ctx, req.Id)
}

// TestRoute sends a test event to a route's target.
func (a api) TestRoute(
	ctx context.Context, req edgeapi.TestRouteRequestObject,
) (edgeapi.TestRouteResponseObject, error) {
	var sent []byte
	if req.Body != nil && req.Body.Payload != nil {
		sent = *req.Body.Payload
	}
	res, err := a.s.TestRoute(ctx, req.Id, sent)
	if err != nil {
		return nil, err
	}
	out := edgeapi.TestRoute200JSONResponse{
		Delivered:  webhook.Classify(res.Status, res.Err) == webhook.Delivered,
		Status:     res.Status,
		DurationMs: int(res.Duration / time.Millisecond),
	}
	out.Error = res.Problem()
	if res.BodySnippet != "" {
		out.Response = &res.BodySnippet
	}
	return out, nil
}

// GetRouteStats returns the delivery statistics of a route.
func (a api) GetRouteStats(
	ctx context.Context, req edgeapi.GetRouteStatsRequestObject,
) (edgeapi.GetRouteStatsResponseObject, error) {
	minutes := 60
	set(&minutes, req.Params.Minutes)
	st, err := a.s.RouteStats(ctx, req.Id, minutes)
	if err != nil {
		return nil, err
	}
	breaker := edgeapi.RouteStatsBreakerClosed
	switch st.Breaker {
	case webhook.Open:
		breaker = edgeapi.RouteStatsBreakerOpen
	case webhook.HalfOpen:
		breaker = edgeapi.RouteStatsBreakerHalfOpen
	}
	return edgeapi.GetRouteStats200JSONResponse{
		RouteId:        req.Id,
		Pending:        st.Pending,
		Delivered:      st.Delivered,
		FailedAttempts: st.FailedAttempts,
		DeadLettered:   st.DeadLettered,
		Breaker:        breaker,
		LastStatus:     st.LastStatus,
		LastError:      st.LastError,
		LastSuccessAt:  st.LastSuccessAt.Ptr(),
		LastFailureAt:  st.LastFailureAt.Ptr(),
		Series: list.Each(st.Minutes, func(m RouteMinute) edgeapi.RouteMinute {
			return edgeapi.RouteMinute{
				Minute:         m.Minute.Time,
				Delivered:      m.Delivered,
				FailedAttempts: m.FailedAttempts,
				DeadLettered:   m.DeadLettered,
			}
		}),
	}, nil
}

func apiDeadLetter(d delivery.DeadLetter) edgeapi.DeadLetter {
	return edgeapi.DeadLetter{
		Id:          d.ID,
		RouteId:     d.RouteID,
		Attempts:    d.Attempts,
		LastStatus:  d.LastStatus,
		LastError:   d.LastError,
		Reason:      edgeapi.DeadLetterReason(d.Reason),
		Status:      edgeapi.DeadLetterStatus(d.Status),
		CreatedAt:   d.CreatedAt.Time,
		ReplayCount: d.ReplayCount,
		Event: edgeapi.Event{
			EventId:    d.EventID,
			OrgId:      d.EventOrgID,
			SiteId:     d.SiteID,
			Topic:      d.Topic,
			Payload:    payload(d.Payload),
			Headers:    orEmpty(d.Headers.V),
			EventTime:  d.EventTime.Time,
			ReceivedAt: d.ReceivedAt.Time,
		},
	}
}

// ListDeadLetters lists dead letters, newest first.
func (a api) ListDeadLetters(
	ctx context.Context, req edgeapi.ListDeadLettersRequestObject,
) (edgeapi.ListDeadLettersResponseObject, error) {
	q := req.Params
	out, next, err := list.Examined(
		ctx,
		q.Limit,
		q.Cursor,
		100,
		func(after string, limit int) ([]delivery.DeadLetter, string, error) {
			return a.s.DeadLetters(ctx, DeadLetterFilter{
				SiteID:  value(q.SiteId),
				RouteID: value(q.RouteId),
				Reason:  string(value(q.Reason)),
				Topic:   value(q.Topic),
				Text:    value(q.Q),
				After:   after,
				Limit:   limit,
			})
		},
		deadLetterCursor,
		apiDeadLetter,
	)
	return edgeapi.ListDeadLetters200JSONResponse{
		Body:    out,
		Headers: edgeapi.ListDeadLetters200ResponseHeaders{Link: next},
	}, err
}

// GetDeadLetter returns one dead letter.
func (a api) GetDeadLetter(
	ctx context.Context, req edgeapi.GetDeadLetterRequestObject,
) (edgeapi.GetDeadLetterResponseObject, error) {
	d, err := a.s.DeadLetter(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.GetDeadLetter200JSONResponse(apiDeadLetter(d)), nil
}

// DeleteDeadLetter deletes a dead letter.
func (a api) DeleteDeadLetter(
	ctx context.Context, req edgeapi.DeleteDeadLetterRequestObject,
) (edgeapi.DeleteDeadLetterResponseObject, error) {
	return edgeapi.DeleteDeadLetter204Response{}, a.s.DeleteDeadLetter(ctx, req.Id)
}

// ReplayDeadLetter queues a dead letter for delivery again.
func (a api) ReplayDeadLetter(
	ctx context.Context, req edgeapi.ReplayDeadLetterRequestObject,
) (edgeapi.ReplayDeadLetterResponseObject, error) {
	d, err := a.s.ReplayDeadLetter(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return edgeapi.ReplayDeadLetter202JSONResponse(apiDeadLetter(d)), nil
}

// ReplayDeadLetters starts a job that queues many dead letters for delivery again.
func (a api) ReplayDeadLetters(
	ctx context.Context, req edgeapi.ReplayDeadLettersRequestObject,
) (edgeapi.ReplayDeadLettersResponseObject, error) {
	job, matched, err := a.s.ReplayDeadLetters(ctx, req.Body.RouteId, value(req.Body.From), value(req.Body.To))
	if err != nil {
		return nil, err
	}
	return edgeapi.ReplayDeadLetters202JSONResponse{JobId: job, Matched: matched}, nil
}
