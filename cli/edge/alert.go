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
)

func (s *session) alerts() *cobra.Command {
	cmd := group("alert", "Alerts: what needs attention", "  mainstay edge alert list", "alerts")
	cmd.AddCommand(s.alertList(), s.alertGroups(), s.alertAcknowledge(), s.alertSilence(), s.object(verb{
		use:     "unsilence ID",
		short:   "End the silence of an alert",
		example: "  mainstay edge alert unsilence ID",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.UnsilenceAlert(ctx, c.args[0])
	}))
	return cmd
}

func (s *session) alertList() *cobra.Command {
	var site, status, kind, severity string
	var silenced, acknowledged bool
	cmd := list(s, verb{
		use:   "list",
		short: "List alerts, newest first",
		example: "  mainstay edge alert list\n  mainstay edge alert list --severity critical\n" +
			"  mainstay edge alert list --silenced=false --acknowledged=false\n" +
			"  mainstay edge alert list --status all --site ID",
	}, output.Columns[edgeapi.Alert]{
		Heads: []string{
			"SEVERITY", "STATUS", "KIND", "SITE", "SUBJECT", "SINCE", "ACKNOWLEDGED BY", "SILENCED UNTIL", "ID", "MESSAGE",
		},
		Row: func(v edgeapi.Alert) []any {
			return []any{
				v.Severity, v.Status, v.Kind, v.SiteId, v.Subject, v.FirstSeenAt, v.AcknowledgedBy, v.SilencedUntil, v.Id,
				v.Message,
			}
		},
	}, func(ctx context.Context, c *call, p page) (*http.Response, error) {
		return c.api.ListAlerts(ctx, &edgeapi.ListAlertsParams{
			Limit:        p.limit,
			Cursor:       p.cursor,
			SiteId:       given(c, "site", site),
			Status:       given(c, "status", edgeapi.ListAlertsParamsStatus(status)),
			Kind:         given(c, "kind", edgeapi.AlertKind(kind)),
			Severity:     given(c, "severity", edgeapi.AlertSeverity(severity)),
			Silenced:     given(c, "silenced", silenced),
			Acknowledged: given(c, "acknowledged", acknowledged),
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
	cmd := s.command(verb{
		use:     "groups",
		short:   "Count alerts by kind, severity or site",
		example: "  mainstay edge alert groups\n  mainstay edge alert groups --by site",
	}, func(ctx context.Context, c *call) error {
		groups, err := decode[[]json.RawMessage](c.send(c.api.ListAlertGroups(ctx, &edgeapi.ListAlertGroupsParams{
			By:     given(c, "by", edgeapi.ListAlertGroupsParamsBy(by)),
			Status: given(c, "status", edgeapi.ListAlertGroupsParamsStatus(status)),
			SiteId: given(c, "site", site),
		})))
		if err != nil {
			return err
		}
		l := output.NewList(c.out, output.Columns[edgeapi.AlertGroup]{
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
	cmd := s.object(verb{
		use:     "acknowledge ID",
		short:   "Say that you take care of an alert; it lasts until the alert resolves",
		example: `  mainstay edge alert acknowledge ID --note "a technician is on the way"`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.AcknowledgeAlert(ctx, c.args[0], edgeapi.AlertAcknowledgement{Note: given(c, "note", note)})
	})
	cmd.Flags().StringVar(&note, "note", "", "what is being done about it")
	return cmd
}

func (s *session) alertSilence() *cobra.Command {
	var span time.Duration
	var reason string
	cmd := s.object(verb{
		use:   "silence ID",
		short: "Have nobody notified of an alert for a time",
		long: "Have nobody notified of an alert for a time, nor of another one of the same kind and subject. " +
			"The alert is still listed and counted.",
		example: `  mainstay edge alert silence ID --for 8h --reason "the site is being rebuilt"`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		if err := c.required("for", "reason"); err != nil {
			return nil, err
		}
		return c.api.SilenceAlert(ctx, c.args[0], edgeapi.AlertSilence{Until: time.Now().Add(span), Reason: reason})
	})
	f := cmd.Flags()
	f.DurationVar(&span, "for", 0, "how long, for example 30m or 48h (required)")
	f.StringVar(&reason, "reason", "", "why nobody needs to know (required)")
	return cmd
}
