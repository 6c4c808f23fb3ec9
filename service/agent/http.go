package agent

import (
	"context"
	"net/http"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/kit/contract"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/service/agent/outbox"
	"github.com/mainstay-infra/mainstay/service/agent/twin"
)

// Limits that keep memory use low, whatever programs send.
const (
	maxInFlight = 128
	maxBody     = 160 << 10 // bytes, unless the contract says otherwise: room for a patch of 32 KiB with white space
	// The bodies of events share bodyBudget bytes of memory. Bodies smaller than countedFrom are
	// not counted, since maxInFlight limits them sufficiently.
	bodyBudget     = 5 << 18 // as x-body in the contract: a payload of 1 MiB with its envelope
	countedFrom    = 4 << 10
	bodyBudgetUnit = 16 << 10
)

// local translates between the contract and the domain. It contains no logic of its own.
type local struct{ a *Agent }

var _ agentapi.Server = local{}

// openShell registers the contract's operations behind their limits.
func (a *Agent) openShell(deps Deps) error {
	c, err := Contract()
	if err != nil {
		return err
	}
	alive := func(ctx context.Context) error { return a.db.Ping(ctx) }
	a.shell, err = shell.New(shell.Config[struct{}]{
		Name:        "agent",
		Contract:    c,
		Log:         a.log,
		Registry:    deps.Registry,
		Errors:      problem.Nested,
		AccessLog:   a.cfg.AccessLog,
		MaxInFlight: maxInFlight,
		MaxBody:     maxBody,
		Alive:       alive,
		Ready: []shell.Check{
			{Name: "database", Run: func(ctx context.Context) (string, error) { return "", alive(ctx) }},
		},
		Body:  a.limitEvents,
		Front: a.refuseBrowsers,
	})
	if err != nil {
		return err
	}
	agentapi.Register(a.shell, agentapi.BasePath, local{a}, a.shell.Fail)
	return nil
}

// Handler returns the handler of local requests.
func (a *Agent) Handler() http.Handler { return a.shell.Handler() }

// limitEvents makes operations with large bodies wait for memory.
func (a *Agent) limitEvents(op *contract.Operation, next http.Handler) http.Handler {
	if op.MaxBody <= maxBody {
		return next
	}
	return a.rationed(next)
}

// rationed makes requests wait until there is memory for their body.
func (a *Agent) rationed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := r.ContentLength
		if size < 0 || size > bodyBudget {
			size = bodyBudget
		}
		if size >= countedFrom {
			release, err := a.bodies.take(r.Context(), int(size+bodyBudgetUnit-1)/bodyBudgetUnit)
			if err != nil {
				a.shell.Fail(w, r, err)
				return
			}
			defer release()
		}
		next.ServeHTTP(w, r)
	})
}

// ration is a number of units that requests share.
type ration struct {
	units chan struct{} // holds one value for each unit in use
	turn  chan struct{} // held by the request that is taking units
}

func newRation(units int) *ration {
	return &ration{units: make(chan struct{}, units), turn: make(chan struct{}, 1)}
}

// take waits for n units. Requests take units one after the other, so that two requests that each
// hold a part cannot wait for each other.
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
	return outbox.Event{
		ID:      value(e.EventId),
		Topic:   e.Topic,
		Payload: e.Payload,
		Headers: value(e.Headers),
		Time:    value(e.EventTime),
	}
}

// SendEvent accepts an event.
func (l local) SendEvent(
	ctx context.Context, req agentapi.SendEventRequestObject,
) (agentapi.SendEventResponseObject, error) {
	r, err := l.a.outbox.AcceptOne(ctx, event(*req.Body))
	if err != nil {
		return nil, err
	}
	return agentapi.SendEvent202JSONResponse{EventId: r.EventID, Duplicate: r.Duplicate}, nil
}

// SendEvents accepts several events, all or none.
func (l local) SendEvents(
	ctx context.Context, req agentapi.SendEventsRequestObject,
) (agentapi.SendEventsResponseObject, error) {
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

// ListRefusedEvents lists the refused events that were set aside.
func (l local) ListRefusedEvents(
	ctx context.Context, req agentapi.ListRefusedEventsRequestObject,
) (agentapi.ListRefusedEventsResponseObject, error) {
	out, next, err := list.Down(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(before int64, limit int) ([]outbox.Refused, error) {
			return l.a.outbox.Refused(ctx, before, limit)
		},
		func(e outbox.Refused) int64 { return e.Seq },
		apiRefused,
	)
	return agentapi.ListRefusedEvents200JSONResponse{
		Body:    out,
		Headers: agentapi.ListRefusedEvents200ResponseHeaders{Link: next},
	}, err
}

func apiRefused(e outbox.Refused) agentapi.RefusedEvent {
	return agentapi.RefusedEvent{
		EventId: e.EventID,
		Topic:   e.Topic,
		Reason:  e.Reason,
		At:      e.RefusedAt.Time,
		Bytes:   e.Bytes,
		Whole:   e.Whole,
	}
}

// selected returns the IDs of a selection. No IDs mean all events.
func selected(s *agentapi.EventSelection) ([]string, error) {
	if value(s.All) == (len(value(s.EventIds)) > 0) {
		return nil, fault.InvalidField("event_ids", "name events, or set all to true; one of the two")
	}
	return value(s.EventIds), nil
}

// RetryRefusedEvents queues refused events again.
func (l local) RetryRefusedEvents(
	ctx context.Context, req agentapi.RetryRefusedEventsRequestObject,
) (agentapi.RetryRefusedEventsResponseObject, error) {
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
func (l local) DiscardRefusedEvents(
	ctx context.Context, req agentapi.DiscardRefusedEventsRequestObject,
) (agentapi.DiscardRefusedEventsResponseObject, error) {
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

// RegisterDevice registers a device.
func (l local) RegisterDevice(
	ctx context.Context, req agentapi.RegisterDeviceRequestObject,
) (agentapi.RegisterDeviceResponseObject, error) {
	b := req.Body
	err := l.a.twins.Register(ctx, req.Device, twin.Registration{
		Name:            value(b.Name),
		Model:           value(b.Model),
		FirmwareVersion: value(b.FirmwareVersion),
		Labels:          value(b.Labels),
	})
	return agentapi.RegisterDevice202Response{}, err
}

func apiTwin(t twin.Twin) agentapi.Twin {
	out := agentapi.Twin{
		DeviceId:        t.DeviceID,
		Desired:         t.Desired,
		Reported:        t.Reported,
		DesiredVersion:  t.DesiredVersion,
		ReportedVersion: t.ReportedVersion,
		Pending:         t.Pending,
	}
	if t.Error != "" {
		out.Error = &t.Error
	}
	return out
}

// ListTwins lists the twins.
func (l local) ListTwins(
	ctx context.Context, req agentapi.ListTwinsRequestObject,
) (agentapi.ListTwinsResponseObject, error) {
	out, next, err := list.Rows(
		ctx,
		req.Params.Limit,
		req.Params.Cursor,
		100,
		func(after string, limit int) ([]twin.Twin, error) {
			return l.a.twins.List(ctx, after, limit)
		},
		func(t twin.Twin) string { return t.DeviceID },
		apiTwin,
	)
	return agentapi.ListTwins200JSONResponse{Body: out, Headers: agentapi.ListTwins200ResponseHeaders{Link: next}}, err
}

// GetTwin returns a twin.
func (l local) GetTwin(ctx context.Context, req agentapi.GetTwinRequestObject) (agentapi.GetTwinResponseObject, error) {
	t, err := l.a.twins.Get(ctx, req.Device)
	if err != nil {
		return nil, err
	}
	return agentapi.GetTwin200JSONResponse(apiTwin(t)), nil
}

// PatchReported merges a patch into a device's reported state.
func (l local) PatchReported(
	ctx context.Context, req agentapi.PatchReportedRequestObject,
) (agentapi.PatchReportedResponseObject, error) {
	if req.Body == nil {
		return nil, fault.InvalidField("body", "must be a JSON object")
	}
	return agentapi.PatchReported202Response{}, l.a.twins.Patch(ctx, req.Device, *req.Body)
}

// GetStatus returns the status of the agent.
func (l local) GetStatus(
	ctx context.Context, _ agentapi.GetStatusRequestObject,
) (agentapi.GetStatusResponseObject, error) {
	s, err := l.a.status(ctx)
	if err != nil {
		return nil, err
	}
	return agentapi.GetStatus200JSONResponse(s), nil
}
