package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) alerts() *cobra.Command {
	cmd := verb.Group("alert", "Alerts: what needs attention", "  mainstay edge alert list", "alerts")
	cmd.AddCommand(s.alertList(), s.alertGroups(), s.alertAcknowledge(), s.alertSilence(), s.Object(verb.Verb{
		Use:     "unsilence ALERT",
		Short:   "End the silence of an alert",
		Example: "  mainstay edge alert unsilence ALERT",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.UnsilenceAlert(ctx, c.Args[0])
	}))
	return cmd
}

func (s *session) alertList() *cobra.Command {
	var site, status, kind, severity string
	var silenced, acknowledged bool
	cmd := verb.List(s.Session, verb.Verb{
		Use:   "list",
		Short: "List alerts, newest first",
		Example: "  mainstay edge alert list\n  mainstay edge alert list --severity critical\n" +
			"  mainstay edge alert list --silenced=false --acknowledged=false\n" +
			"  mainstay edge alert list --status all --site plant-7",
	}, output.Columns[edgeapi.Alert]{
		Heads: []string{
			"SEVERITY", "STATUS", "KIND", "SITE", "SUBJECT", "SINCE", "ACKNOWLEDGED BY", "SILENCED UNTIL", "ID", "MESSAGE",
		},
		Row: func(v edgeapi.Alert) []any {
			return []any{
				v.Severity, v.Status, v.Kind, siteRef(v.SiteId), v.Subject, v.FirstSeenAt, v.AcknowledgedBy, v.SilencedUntil, v.Id,
				v.Message,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListAlerts(ctx, &edgeapi.ListAlertsParams{
			Limit:        p.Limit,
			Cursor:       p.Cursor,
			SiteId:       verb.Given(c, "site", site),
			Status:       verb.Given(c, "status", edgeapi.ListAlertsParamsStatus(status)),
			Kind:         verb.Given(c, "kind", edgeapi.AlertKind(kind)),
			Severity:     verb.Given(c, "severity", edgeapi.AlertSeverity(severity)),
			Silenced:     verb.Given(c, "silenced", silenced),
			Acknowledged: verb.Given(c, "acknowledged", acknowledged),
		})
	})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "only what concerns this site")
	f.StringVar(&status, "status", "firing", "firing, resolved or all")
	f.StringVar(&kind, "kind", "", "only this kind, for example site_offline")
	f.StringVar(&severity, "severity", "", "only this severity: warning or critical")
	f.BoolVar(&silenced, "silenced", false, "only what is silenced; with =false, only what is not")
	f.BoolVar(&acknowledged, "acknowledged", false, "only what somebody acknowledged; with =false, only what nobody did")
	return cmd
}

func (s *session) alertGroups() *cobra.Command {
	var by, status, site string
	cmd := s.Command(verb.Verb{
		Use:     "groups",
		Short:   "Count alerts by kind, severity or site",
		Example: "  mainstay edge alert groups\n  mainstay edge alert groups --by site",
	}, func(ctx context.Context, c *call) error {
		groups, err := decode[[]json.RawMessage](c.Send(c.API.ListAlertGroups(ctx, &edgeapi.ListAlertGroupsParams{
			By:     verb.Given(c, "by", edgeapi.ListAlertGroupsParamsBy(by)),
			Status: verb.Given(c, "status", edgeapi.ListAlertGroupsParamsStatus(status)),
			SiteId: verb.Given(c, "site", site),
		})))
		if err != nil {
			return err
		}
		l := output.NewList(c.Out, output.Columns[edgeapi.AlertGroup]{
			Heads: []string{strings.ToUpper(by), "ALERTS", "ACKNOWLEDGED", "SILENCED", "NEWEST"},
			Row: func(v edgeapi.AlertGroup) []any {
				return []any{v.Key, v.Count, v.Acknowledged, v.Silenced, v.NewestAt}
			},
		})
		if err := l.Page(groups); err != nil {
			return err
		}
		return l.Close()
	})
	f := cmd.Flags()
	f.StringVar(&by, "by", "kind", "kind, severity or site")
	f.StringVar(&status, "status", "firing", "firing, resolved or all")
	f.StringVar(&site, "site", "", "only what concerns this site")
	return cmd
}

func (s *session) alertAcknowledge() *cobra.Command {
	var note string
	cmd := s.Object(verb.Verb{
		Use:     "acknowledge ALERT",
		Short:   "Say that you take care of an alert; it lasts until the alert resolves",
		Example: `  mainstay edge alert acknowledge ALERT --note "a technician is on the way"`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.AcknowledgeAlert(ctx, c.Args[0], edgeapi.AlertAcknowledgement{Note: verb.Given(c, "note", note)})
	})
	cmd.Flags().StringVar(&note, "note", "", "what is being done about it")
	return cmd
}

func (s *session) alertSilence() *cobra.Command {
	var span time.Duration
	var reason string
	cmd := s.Object(verb.Verb{
		Required: []string{"for", "reason"},
		Use:      "silence ALERT",
		Short:    "Have nobody notified of an alert for a time",
		Long: "Have nobody notified of an alert for a time, nor of another one of the same kind and subject. " +
			"The alert is still listed and counted.",
		Example: `  mainstay edge alert silence ALERT --for 8h --reason "the site is being rebuilt"`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.SilenceAlert(ctx, c.Args[0], edgeapi.AlertSilence{Until: time.Now().Add(span), Reason: reason})
	})
	f := cmd.Flags()
	f.DurationVar(&span, "for", 0, "how long, for example 30m or 48h (required)")
	f.StringVar(&reason, "reason", "", "why nobody needs to know (required)")
	return cmd
}
