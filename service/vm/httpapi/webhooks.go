package httpapi

import (
	"context"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/endpoint"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// formatOf translates a delivery type.
func formatOf(t *vmapi.WebhookType) endpoint.Format {
	switch orElse(t, vmapi.WebhookTypeGeneric) {
	case vmapi.WebhookTypeSlack:
		return endpoint.Slack
	case vmapi.WebhookTypeDiscord:
		return endpoint.Discord
	case vmapi.WebhookTypeGotify:
		return endpoint.Gotify
	case vmapi.WebhookTypeEmail:
		return endpoint.Email
	}
	return endpoint.Standard
}

func apiWebhook(p endpoint.Endpoint) vmapi.Webhook {
	out := vmapi.Webhook{
		Id: p.ID, Url: p.URL, DeliveryType: vmapi.WebhookTypeGeneric, Enabled: p.Enabled,
		DisabledReason: some(p.DisabledReason), Description: p.Description, Tenant: some(p.OrgID),
		Created: p.CreatedAt.Time, Updated: p.UpdatedAt.Time, Events: list.Each(p.Events.V, webhookEvent),
		Tags: orEmpty(p.Tags.V),
	}
	if p.Format != endpoint.Standard {
		out.DeliveryType = vmapi.WebhookType(p.Format)
	}
	return out
}

func webhookEvent(name string) vmapi.WebhookEvent { return vmapi.WebhookEvent(name) }

func eventName(e vmapi.WebhookEvent) string { return string(e) }

// ListWebhooks lists webhooks.
func (a *API) ListWebhooks(
	ctx context.Context, req vmapi.ListWebhooksRequestObject,
) (vmapi.ListWebhooksResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]endpoint.Endpoint, error) { return a.notifier.List(ctx, after, limit) },
		func(p endpoint.Endpoint) string { return p.ID }, apiWebhook)
	return vmapi.ListWebhooks200JSONResponse{Body: out, Headers: vmapi.ListWebhooks200ResponseHeaders{Link: link}}, err
}

// CreateWebhook adds a webhook.
func (a *API) CreateWebhook(
	ctx context.Context, req vmapi.CreateWebhookRequestObject,
) (vmapi.CreateWebhookResponseObject, error) {
	b := req.Body
	made, secret, err := a.notifier.Create(ctx, orElse(b.Tenant, caller.From(ctx).Tenant), endpoint.Input{
		Description: value(b.Description), URL: b.Url, Format: formatOf(b.DeliveryType),
		Events: list.Each(b.Events, eventName), Enabled: orElse(b.Enabled, true), Secret: value(b.Secret),
		Tags: value(b.Tags),
	})
	if err != nil {
		return nil, err
	}
	out := apiWebhook(made)
	out.Secret = some(secret)
	return vmapi.CreateWebhook201JSONResponse(out), nil
}

// GetWebhook returns a webhook.
func (a *API) GetWebhook(
	ctx context.Context, req vmapi.GetWebhookRequestObject,
) (vmapi.GetWebhookResponseObject, error) {
	p, err := a.notifier.Get(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return vmapi.GetWebhook200JSONResponse(apiWebhook(p)), nil
}

// UpdateWebhook changes a webhook.
func (a *API) UpdateWebhook(
	ctx context.Context, req vmapi.UpdateWebhookRequestObject,
) (vmapi.UpdateWebhookResponseObject, error) {
	b := req.Body
	p, err := a.notifier.Update(ctx, req.Id, func(in *endpoint.Input) {
		in.URL, in.Enabled = orElse(b.Url, in.URL), orElse(b.Enabled, in.Enabled)
		in.Description = orElse(b.Description, in.Description)
		if b.Tags != nil {
			in.Tags = *b.Tags
		}
		if b.Events != nil {
			in.Events = list.Each(*b.Events, eventName)
		}
	})
	if err != nil {
		return nil, err
	}
	return vmapi.UpdateWebhook200JSONResponse(apiWebhook(p)), nil
}

// DeleteWebhook removes a webhook.
func (a *API) DeleteWebhook(
	ctx context.Context, req vmapi.DeleteWebhookRequestObject,
) (vmapi.DeleteWebhookResponseObject, error) {
	return vmapi.DeleteWebhook204Response{}, a.notifier.Delete(ctx, req.Id)
}

// TestWebhook sends a test event.
func (a *API) TestWebhook(
	ctx context.Context, req vmapi.TestWebhookRequestObject,
) (vmapi.TestWebhookResponseObject, error) {
	b := req.Body
	var attempt endpoint.Attempt
	var err error
	switch {
	case (b.WebhookId == nil) == (b.Url == nil):
		return nil, fault.InvalidField("webhook_id", "give either webhook_id or url")
	case b.WebhookId != nil && (b.Secret != nil || b.DeliveryType != nil):
		return nil, fault.InvalidField("webhook_id", "the webhook has its own secret and delivery_type; leave them out")
	case b.WebhookId != nil:
		attempt, err = a.notifier.Test(ctx, *b.WebhookId)
	default:
		attempt, err = a.notifier.Probe(ctx, endpoint.Input{
			URL: *b.Url, Format: formatOf(b.DeliveryType), Secret: value(b.Secret),
		})
	}
	if err != nil {
		return nil, err
	}
	out := vmapi.WebhookTested{
		Status: vmapi.WebhookTestedStatusFailed, HttpStatus: some(attempt.Status), Error: attempt.Problem,
		DurationMs: milliseconds(attempt),
	}
	if attempt.Ok() {
		out.Status = vmapi.WebhookTestedStatusDelivered
	}
	return vmapi.TestWebhook200JSONResponse(out), nil
}

func milliseconds(a endpoint.Attempt) int64 {
	return a.DurationUS / int64(time.Millisecond/time.Microsecond)
}

func apiDelivery(d endpoint.Delivery) vmapi.WebhookDelivery {
	return vmapi.WebhookDelivery{
		Id: d.ID, Event: d.Event, Status: vmapi.WebhookDeliveryStatus(d.State), Attempts: d.Attempts, Replays: d.Replays,
		Created: d.CreatedAt.Time, Finished: d.FinishedAt.Ptr(),
	}
}

// ListDeliveries lists what was sent to a webhook.
func (a *API) ListDeliveries(
	ctx context.Context, req vmapi.ListDeliveriesRequestObject,
) (vmapi.ListDeliveriesResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(before string, limit int) ([]endpoint.Delivery, error) {
			return a.notifier.Deliveries(ctx, req.Id, before, limit)
		},
		func(d endpoint.Delivery) string { return d.ID }, apiDelivery)
	return vmapi.ListDeliveries200JSONResponse{Body: out, Headers: vmapi.ListDeliveries200ResponseHeaders{Link: link}}, err
}

// GetDelivery returns a delivery with its attempts.
func (a *API) GetDelivery(
	ctx context.Context, req vmapi.GetDeliveryRequestObject,
) (vmapi.GetDeliveryResponseObject, error) {
	d, attempts, err := a.notifier.Delivery(ctx, req.Id, req.Delivery)
	if err != nil {
		return nil, err
	}
	out := apiDelivery(d)
	out.Body = &d.Body
	out.Log = ref(list.Each(attempts, func(at endpoint.Attempt) vmapi.WebhookAttempt {
		return vmapi.WebhookAttempt{
			Number: at.Number, At: at.At.Time, HttpStatus: some(at.Status), Error: at.Problem, DurationMs: milliseconds(at),
		}
	}))
	return vmapi.GetDelivery200JSONResponse(out), nil
}

// ReplayDelivery delivers an event again.
func (a *API) ReplayDelivery(
	ctx context.Context, req vmapi.ReplayDeliveryRequestObject,
) (vmapi.ReplayDeliveryResponseObject, error) {
	d, err := a.notifier.Replay(ctx, req.Id, req.Delivery)
	if err != nil {
		return nil, err
	}
	return vmapi.ReplayDelivery202JSONResponse(apiDelivery(d)), nil
}
