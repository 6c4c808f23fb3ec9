package storage

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) alerts() *cobra.Command {
	cmd := verb.Group("alert", "Alerts: what needs attention",
		"  mainstay storage alert list\n  mainstay storage alert acknowledge ALERT", "alerts")
	cmd.AddCommand(s.alertList(), s.alertEvaluate(), s.alertAcknowledge(), s.alertSilence(), s.alertResolve())
	return cmd
}

func (s commands) alertList() *cobra.Command {
	var state, severity string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List alerts, newest first",
		Example: "  mainstay storage alert list\n  mainstay storage alert list --severity critical\n" +
			"  mainstay storage alert list --state all",
	}, output.Columns[storageapi.Alert]{
		Heads: []string{
			"SEVERITY", "STATE", "SOURCE", "SINCE", "ACKNOWLEDGED BY", "SILENCED UNTIL", "TENANT", "ID", "DESCRIPTION",
		},
		Row: func(a storageapi.Alert) []any {
			return []any{
				a.Severity, a.State, a.Source, a.CreatedAt, a.AcknowledgedBy, a.SilencedUntil, a.TenantId, a.Id, a.Description,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		params := storageapi.ListAlertsParams{
			Limit: p.Limit, Cursor: p.Cursor, Severity: verb.Given(c, "severity", storageapi.Severity(severity)),
		}
		if state != "all" {
			params.State = new(storageapi.AlertState(state))
		}
		return c.API.ListAlerts(ctx, &params)
	})
	cmd.Flags().StringVar(&state, "state", "open", "open, resolved or all")
	cmd.Flags().StringVar(&severity, "severity", "", "only this severity: warning or critical")
	return cmd
}

func (s commands) alertEvaluate() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "evaluate", Short: "Check all conditions now, rather than within a minute",
		Example: "  mainstay storage alert evaluate",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.EvaluateAlerts(ctx, storageapi.Nothing{})
	})
}

func (s commands) alertAcknowledge() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "acknowledge ALERT", Short: "Say that you take care of an alert; it lasts until the alert resolves",
		Example: "  mainstay storage alert acknowledge ALERT",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.AcknowledgeAlert(ctx, c.Args[0], storageapi.Nothing{})
	})
}

func (s commands) alertSilence() *cobra.Command {
	var span time.Duration
	var reason string
	cmd := s.Object(verb.Verb{
		Use: "silence ALERT", Short: "Have nobody told of an alert for a time",
		Long: "Have nobody told of an alert for a time, nor of another one of the same source and subject. " +
			"The alert is still listed.",
		Example: `  mainstay storage alert silence ALERT --for 8h --reason "the OSD is being replaced"`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.SilenceAlert(ctx, c.Args[0], storageapi.Silence{
			Secs: new(int(span / time.Second)), Reason: verb.Given(c, "reason", reason),
		})
	})
	cmd.Flags().DurationVar(&span, "for", time.Hour, "how long, for example 30m or 48h; at most 720h")
	cmd.Flags().StringVar(&reason, "reason", "", "why nobody needs to know")
	return cmd
}

func (s commands) alertResolve() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "resolve ALERT", Short: "Say that an alert is over; it opens again if its cause is still there",
		Example: "  mainstay storage alert resolve ALERT",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.ResolveAlert(ctx, c.Args[0], storageapi.Nothing{})
	})
}
