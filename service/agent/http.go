package agent

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/service/agent/outbox"
	"github.com/mainstay-infra/mainstay/service/agent/twin"
)

// Limits that keep the agent small, whatever programs send.
const (
	maxInFlight   = 128
	maxEventsBody = 5 << 18   // bytes: a payload of 1 MiB and what is around it
	maxOtherBody  = 160 << 10 // a patch of 32 KiB, white space and all
	// Bodies of events share so much memory; those below the second bound are not
	// counted, since maxInFlight bounds them well enough.
	bodyBudget     = maxEventsBody
	countedFrom    = 4 << 10
	bodyBudgetUnit = 16 << 10
)

// local translates between the contract and the domain, and does nothing else.
type local struct{ a *Agent }

var _ agentapi.Server = local{}

// Handler answers local requests: the contract's under /v1, and beside it /healthz,
// /metrics, /openapi.yaml and /docs.
func (a *Agent) Handler() http.Handler {
	router := contract.NewRouter(a.contract, a.render, a.admit)
	agentapi.Register(router, agentapi.BasePath, local{a}, a.render)
	a.contract.Mount(router)
	router.Handle("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.db.Ping(r.Context()); err != nil {
			a.render(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // a client that hung up needs no answer
	}))
	router.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
	mode, err := httpserve.ParseLogMode(a.cfg.AccessLog)
	if err != nil {
		panic(err) // Validate has checked it
	}
	return httpserve.Chain(router,
		httpserve.RequestID,
		httpserve.AccessLog(a.log, mode),
		httpserve.Metrics(a.registry, "agent"),
		httpserve.Recover(a.render, a.log),
		httpserve.LimitInFlight(maxInFlight, a.render),
		a.refuseBrowsers,
	)
}

// admit stands before every operation: it bounds what a request may cost, and
// holds it against the contract.
func (a *Agent) admit(op *contract.Operation, next http.Handler) http.Handler {
	if body, has := shapes[op.ID]; has {
		next = a.strictBody(body, next)
	}
	if op.HandlerValidates {
		return httpserve.LimitBody(maxEventsBody)(a.rationed(next))
	}
	checked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := op.CheckRequest(r); err != nil {
			a.render(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
	return httpserve.LimitBody(maxOtherBody)(checked)
}

// rationed lets requests wait until there is room for their body.
func (a *Agent) rationed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := r.ContentLength
		if size < 0 || size > bodyBudget {
			size = bodyBudget
		}
		if size >= countedFrom {
			release, err := a.bodies.take(r.Context(), int(size+bodyBudgetUnit-1)/bodyBudgetUnit)
			if err != nil {
				a.render(w, r, err)
				return
			}
			defer release()
		}
		next.ServeHTTP(w, r)
	})
}

// ration is a number of units that requests share.
type ration struct {
	units chan struct{} // holds what is taken
	turn  chan struct{} // held by the one request that is taking
}

func newRation(units int) *ration {
	return &ration{units: make(chan struct{}, units), turn: make(chan struct{}, 1)}
}

// take waits for n units. Requests take one after the other, so that two that each
// have a part never wait for each other.
func (q *ration) take(ctx context.Context, n int) (release func(), err error) {
	taken := 0
	release = func() {
		for range taken {
			<-q.units
		}
	}
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for ; taken < n; taken++ {
		select {
		case q.units <- struct{}{}:
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func event(e agentapi.EventInput) outbox.Event {
	return outbox.Event{ID: value(e.EventId), Topic: e.Topic, Payload: e.Payload, Headers: value(e.Headers), Time: value(e.EventTime)}
}

// SendEvent accepts one event.
func (l local) SendEvent(ctx context.Context, req agentapi.SendEventRequestObject) (agentapi.SendEventResponseObject, error) {
	receipts, err := l.a.outbox.Accept(ctx, []outbox.Event{event(*req.Body)})
	if err != nil {
		return nil, err
	}
	return agentapi.SendEvent202JSONResponse{EventId: receipts[0].EventID, Duplicate: receipts[0].Duplicate}, nil
}

// SendEvents accepts many events, all or none.
func (l local) SendEvents(ctx context.Context, req agentapi.SendEventsRequestObject) (agentapi.SendEventsResponseObject, error) {
	events := make([]outbox.Event, len(req.Body.Events))
	for i, e := range req.Body.Events {
		events[i] = event(e)
	}
	receipts, err := l.a.outbox.Accept(ctx, events)
	if err != nil {
		return nil, err
	}
	out := make(agentapi.SendEvents202JSONResponse, len(receipts))
	for i, r := range receipts {
		out[i] = agentapi.EventReceipt{EventId: r.EventID, Duplicate: r.Duplicate}
	}
	return out, nil
}

// ListRefusedEvents lists the events that are set aside.
func (l local) ListRefusedEvents(ctx context.Context, req agentapi.ListRefusedEventsRequestObject) (agentapi.ListRefusedEventsResponseObject, error) {
	p, err := httpserve.ParsePage(req.Params.Limit, req.Params.Cursor, 100, 1000)
	if err != nil {
		return nil, err
	}
	before := int64(0)
	if p.After != "" {
		if before, err = strconv.ParseInt(p.After, 10, 64); err != nil {
			return nil, fault.InvalidField("cursor", "is not one that a Link header held")
		}
	}
	events, err := l.a.outbox.Refused(ctx, before, p.Limit+1)
	if err != nil {
		return nil, err
	}
	var out agentapi.ListRefusedEvents200JSONResponse
	if len(events) > p.Limit {
		events = events[:p.Limit]
		out.Headers.Link = nextPage("/events/refused", p.Limit, strconv.FormatInt(events[p.Limit-1].Seq, 10))
	}
	out.Body = make([]agentapi.RefusedEvent, len(events))
	for i, e := range events {
		out.Body[i] = apiRefused(e)
	}
	return out, nil
}

func apiRefused(e outbox.Refused) agentapi.RefusedEvent {
	return agentapi.RefusedEvent{EventId: e.EventID, Topic: e.Topic, Reason: e.Reason, At: e.RefusedAt.Time, Bytes: e.Bytes, Whole: e.Whole}
}

// selected are the ids that a selection names; none stand for all.
func selected(s *agentapi.EventSelection) ([]string, error) {
	if value(s.All) == (len(value(s.EventIds)) > 0) {
		return nil, fault.InvalidField("event_ids", "name events, or set all to true; one of the two")
	}
	return value(s.EventIds), nil
}

// RetryRefusedEvents has refused events sent again.
func (l local) RetryRefusedEvents(ctx context.Context, req agentapi.RetryRefusedEventsRequestObject) (agentapi.RetryRefusedEventsResponseObject, error) {
	ids, err := selected(req.Body)
	if err != nil {
		return nil, err
	}
	n, err := l.a.outbox.Retry(ctx, ids)
	if err != nil {
		return nil, err
	}
	l.a.log.Info("refused events are sent again", "events", n)
	return agentapi.RetryRefusedEvents200JSONResponse{Events: n}, nil
}

// DiscardRefusedEvents deletes refused events.
func (l local) DiscardRefusedEvents(ctx context.Context, req agentapi.DiscardRefusedEventsRequestObject) (agentapi.DiscardRefusedEventsResponseObject, error) {
	ids, err := selected(req.Body)
	if err != nil {
		return nil, err
	}
	n, err := l.a.outbox.Discard(ctx, ids)
	if err != nil {
		return nil, err
	}
	l.a.log.Warn("refused events were discarded", "events", n)
	return agentapi.DiscardRefusedEvents200JSONResponse{Events: n}, nil
}

// nextPage is the Link header of a list's next page.
func nextPage(path string, limit int, cursor string) *string {
	here := &url.URL{Path: agentapi.BasePath + path, RawQuery: url.Values{"limit": {strconv.Itoa(limit)}}.Encode()}
	next := httpserve.NextLink(&http.Request{URL: here}, httpserve.EncodeCursor(cursor))
	return &next
}

// RegisterDevice notes a device.
func (l local) RegisterDevice(ctx context.Context, req agentapi.RegisterDeviceRequestObject) (agentapi.RegisterDeviceResponseObject, error) {
	b := req.Body
	err := l.a.twins.Register(ctx, req.Device, twin.Registration{Name: value(b.Name), Model: value(b.Model), FirmwareVersion: value(b.FirmwareVersion), Labels: value(b.Labels)})
	return agentapi.RegisterDevice202Response{}, err
}

func apiTwin(t twin.Twin) agentapi.Twin {
	out := agentapi.Twin{DeviceId: t.DeviceID, Desired: t.Desired, Reported: t.Reported, DesiredVersion: t.DesiredVersion, ReportedVersion: t.ReportedVersion, Pending: t.Pending}
	if t.Error != "" {
		out.Error = &t.Error
	}
	return out
}

// ListTwins lists the twins.
func (l local) ListTwins(ctx context.Context, req agentapi.ListTwinsRequestObject) (agentapi.ListTwinsResponseObject, error) {
	p, err := httpserve.ParsePage(req.Params.Limit, req.Params.Cursor, 100, 1000)
	if err != nil {
		return nil, err
	}
	twins, err := l.a.twins.List(ctx, p.After, p.Limit+1)
	if err != nil {
		return nil, err
	}
	var out agentapi.ListTwins200JSONResponse
	if len(twins) > p.Limit {
		twins = twins[:p.Limit]
		out.Headers.Link = nextPage("/twins", p.Limit, twins[p.Limit-1].DeviceID)
	}
	out.Body = make([]agentapi.Twin, len(twins))
	for i, t := range twins {
		out.Body[i] = apiTwin(t)
	}
	return out, nil
}

// GetTwin reads one twin.
func (l local) GetTwin(ctx context.Context, req agentapi.GetTwinRequestObject) (agentapi.GetTwinResponseObject, error) {
	t, err := l.a.twins.Get(ctx, req.Device)
	if err != nil {
		return nil, err
	}
	return agentapi.GetTwin200JSONResponse(apiTwin(t)), nil
}

// PatchReported merges into a device's reported state.
func (l local) PatchReported(ctx context.Context, req agentapi.PatchReportedRequestObject) (agentapi.PatchReportedResponseObject, error) {
	if req.Body == nil {
		return nil, fault.InvalidField("body", "must be a JSON object")
	}
	return agentapi.PatchReported202Response{}, l.a.twins.Patch(ctx, req.Device, *req.Body)
}

// GetStatus tells how the agent is.
func (l local) GetStatus(ctx context.Context, _ agentapi.GetStatusRequestObject) (agentapi.GetStatusResponseObject, error) {
	s, err := l.a.status(ctx)
	if err != nil {
		return nil, err
	}
	return agentapi.GetStatus200JSONResponse(s), nil
}
