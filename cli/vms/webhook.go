package vms

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) webhooks() *cobra.Command {
	cmd := verb.Group("webhook", "Webhooks: events of VMs and backups, sent to URLs and chats",
		"  mainstay vms webhook create https://example.com/hook --event vm.failed --event backup.failed\n"+
			"  mainstay vms webhook deliveries WEBHOOK", "webhooks")
	cmd.AddCommand(
		s.webhookCreate(), s.webhookList(), s.webhookShow(), s.webhookSet(), s.webhookEnable(true), s.webhookEnable(false),
		s.webhookDelete(), s.webhookTest(), s.webhookDeliveries(), s.webhookDelivery(), s.webhookReplay(),
	)
	return cmd
}

// eventFlag adds the flag --event.
func eventFlag(cmd *cobra.Command, events *[]string) {
	cmd.Flags().StringArrayVar(events, "event", nil, "an event, such as vm.failed; repeat it for more")
}

// tagFlag adds the flag --tag.
func tagFlag(cmd *cobra.Command, tags *[]string) {
	cmd.Flags().StringArrayVar(tags, "tag", nil, "only events of VMs with this tag; repeat it for more")
}

func eventsOf(names []string) (out []vmapi.WebhookEvent) {
	for _, name := range names {
		out = append(out, vmapi.WebhookEvent(name))
	}
	return out
}

// typeOf returns the value of --type, or nil if it was not given.
func typeOf(c *call, kind string) *vmapi.WebhookType {
	return (*vmapi.WebhookType)(verb.Given(c, "type", kind))
}

// secretFrom returns the secret in the file of --secret-file, or nil if it was not given.
func secretFrom(path string) (*string, error) {
	if path == "" {
		return nil, nil
	}
	const longest = 1 << 10
	text, err := verb.ReadText("secret-file", path, longest)
	if err != nil {
		return nil, err
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil, exit.Usagef("--secret-file: the secret is empty")
	}
	return &text, nil
}

func (s commands) webhookCreate() *cobra.Command {
	var events, tags []string
	var kind, secretFile, description string
	var disabled bool
	cmd := s.Command(verb.Verb{
		Use: "create URL", Short: "Have events sent to a URL; prints the secret that signs them (shown this once)",
		Long: `Have events of VMs and backups sent to a URL. Requests are signed as in Standard Webhooks; those of the types slack
and discord are messages to a chat. The type gotify takes the URL of the server, and the token of an application in
--secret-file. The type email takes the URL of a mail server, smtp://USER@HOST?from=ADDRESS&to=ADDRESS, and the
password in --secret-file. An admin of a tenant gets its events; an admin without one gets all, or with
--tenant those of one.`,
		Example: "  mainstay vms webhook create https://example.com/hook --event vm.failed --event backup.failed\n" +
			"  mainstay vms webhook create https://hooks.slack.com/services/T/B/X --type slack --event vm.missing\n" +
			"  mainstay vms webhook create 'smtp://alerts@mail.example.org?from=m@example.org&to=ops@example.org' --type email " +
			"--secret-file password --event backup.failed --tag prod",
		Required: []string{"event"},
	}, func(ctx context.Context, c *call) error {
		secret, err := secretFrom(secretFile)
		if err != nil {
			return err
		}
		enabled := !disabled
		a, err := c.Send(c.API.CreateWebhook(ctx, vmapi.WebhookSpec{
			Url: c.Args[0], Events: eventsOf(events), DeliveryType: typeOf(c, kind), Enabled: &enabled, Secret: secret,
			Description: verb.Given(c, "description", description), Tenant: s.of(), Tags: verb.Given(c, "tag", tags),
		}))
		w, err := decode[vmapi.Webhook](a, err)
		if err != nil {
			return err
		}
		if w.Secret == nil {
			return c.Done(a, "Created the webhook %s.", w.Id)
		}
		return c.Done(a, "Created the webhook %s. Its secret is %s", w.Id, *w.Secret)
	})
	eventFlag(cmd, &events)
	tagFlag(cmd, &tags)
	cmd.Flags().StringVar(&kind, "type", "generic", "how events are sent: generic, slack, discord, gotify or email")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "file with the secret that signs requests, the token or the password; - is standard input")
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	cmd.Flags().BoolVar(&disabled, "disabled", false, "send nothing until it is enabled")
	return cmd
}

func (s commands) webhookList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list", Short: "List webhooks, oldest first", Example: "  mainstay vms webhook list",
	}, output.Columns[vmapi.Webhook]{
		Heads: []string{"ID", "URL", "TYPE", "EVENTS", "TAGS", "ENABLED", "TENANT", "DESCRIPTION"},
		Row: func(w vmapi.Webhook) []any {
			tenant := ""
			if w.Tenant != nil {
				tenant = *w.Tenant
			}
			names := make([]string, len(w.Events))
			for i, e := range w.Events {
				names[i] = string(e)
			}
			return []any{w.Id, w.Url, w.DeliveryType, strings.Join(names, " "), w.Tags, w.Enabled, tenant, w.Description}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListWebhooks(ctx, &vmapi.ListWebhooksParams{Limit: p.Limit, Cursor: p.Cursor})
	})
}

func (s commands) webhookShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show WEBHOOK", Short: "Show one webhook", Example: "  mainstay vms webhook show WEBHOOK",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetWebhook(ctx, c.Args[0]) })
}

func (s commands) webhookSet() *cobra.Command {
	var events, tags []string
	var url, description string
	cmd := s.Change(verb.Verb{
		Use: "set WEBHOOK", Short: "Change the URL, events, tags or description of a webhook",
		Example: "  mainstay vms webhook set WEBHOOK --event vm.failed --event vm.missing",
		Check: func(cmd *cobra.Command, _ []string) error {
			for _, flag := range []string{"url", "event", "tag", "description"} {
				if cmd.Flags().Changed(flag) {
					return nil
				}
			}
			return exit.Usagef("nothing to change: give --url, --event, --tag or --description")
		},
	}, "The webhook %s is changed.", func(ctx context.Context, c *call) (*http.Response, error) {
		change := vmapi.WebhookChange{
			Url: verb.Given(c, "url", url), Tags: verb.Given(c, "tag", tags),
			Description: verb.Given(c, "description", description),
		}
		if len(events) > 0 {
			change.Events = new(eventsOf(events))
		}
		return c.API.UpdateWebhook(ctx, c.Args[0], change)
	})
	eventFlag(cmd, &events)
	tagFlag(cmd, &tags)
	cmd.Flags().StringVar(&url, "url", "", "where events are sent")
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	return cmd
}

func (s commands) webhookEnable(enabled bool) *cobra.Command {
	v := verb.Verb{
		Use: "enable WEBHOOK", Short: "Send events to a webhook again", Example: "  mainstay vms webhook enable WEBHOOK",
	}
	done := "The webhook %s is enabled."
	if !enabled {
		v = verb.Verb{
			Use: "disable WEBHOOK", Short: "Send nothing more to a webhook; what waits fails, and can be replayed",
			Example: "  mainstay vms webhook disable WEBHOOK",
		}
		done = "The webhook %s is disabled."
	}
	return s.Change(v, done, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.UpdateWebhook(ctx, c.Args[0], vmapi.WebhookChange{Enabled: &enabled})
	})
}

func (s commands) webhookDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete WEBHOOK", Short: "Remove a webhook with its deliveries", Exact: true,
		Example: "  mainstay vms webhook delete WEBHOOK --yes",
	}, "Delete the webhook %s?", "Deleted the webhook %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.DeleteWebhook(ctx, c.Args[0])
	})
}

func (s commands) webhookTest() *cobra.Command {
	var kind, secretFile string
	cmd := s.Command(verb.Verb{
		Use: "test TARGET", Short: "Send a test event now, to a webhook or to a URL; fails if it is not delivered",
		Example: "  mainstay vms webhook test WEBHOOK\n  mainstay vms webhook test https://example.com/hook --type slack",
	}, func(ctx context.Context, c *call) error {
		secret, err := secretFrom(secretFile)
		if err != nil {
			return err
		}
		spec := vmapi.WebhookTest{DeliveryType: typeOf(c, kind), Secret: secret}
		if strings.Contains(c.Args[0], "://") {
			spec.Url = &c.Args[0]
		} else {
			spec.WebhookId = &c.Args[0]
		}
		a, err := c.Send(c.Slow.TestWebhook(ctx, spec))
		tested, err := decode[vmapi.WebhookTested](a, err)
		if err != nil {
			return err
		}
		if tested.Status != vmapi.WebhookTestedStatusDelivered {
			return errors.New("not delivered: " + tested.Error)
		}
		return c.Done(a, "Delivered to %s in %d ms.", c.Args[0], tested.DurationMs)
	})
	cmd.Flags().StringVar(&kind, "type", "generic", "of a URL: how the request looks: generic, slack or discord")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "of a URL: file with the secret that signs the request")
	return cmd
}

func (s commands) webhookDeliveries() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "deliveries WEBHOOK", Short: "List what was sent to a webhook, and what waits, newest first",
		Example: "  mainstay vms webhook deliveries WEBHOOK",
	}, output.Columns[vmapi.WebhookDelivery]{
		Heads: []string{"ID", "EVENT", "STATUS", "ATTEMPTS", "CREATED"},
		Row: func(d vmapi.WebhookDelivery) []any {
			return []any{d.Id, d.Event, d.Status, d.Attempts, d.Created}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListDeliveries(ctx, c.Args[0], &vmapi.ListDeliveriesParams{Limit: p.Limit, Cursor: p.Cursor})
	})
}

func (s commands) webhookDelivery() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "delivery WEBHOOK DELIVERY", Short: "Show a delivery, with what is sent and all attempts",
		Example: "  mainstay vms webhook delivery WEBHOOK DELIVERY",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetDelivery(ctx, c.Args[0], c.Args[1])
	})
}

func (s commands) webhookReplay() *cobra.Command {
	return s.Change(verb.Verb{
		Use: "replay WEBHOOK DELIVERY", Short: "Deliver an event again", Example: "  mainstay vms webhook replay WEBHOOK DELIVERY",
	}, "The delivery %s is sent again.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.ReplayDelivery(ctx, c.Args[0], c.Args[1], vmapi.Nothing{})
	})
}
