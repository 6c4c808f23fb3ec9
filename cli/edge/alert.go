package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
)

func (s *session) alerts() *cobra.Command {
	var site, status, kind, severity string
	cmd := list(s, verb{
		use:     "list",
		short:   "List alerts, newest first",
		example: "  mainstay edge alert list\n  mainstay edge alert list --severity critical\n  mainstay edge alert list --status all --site ID",
	}, output.Columns[edgeapi.Alert]{
		Heads: []string{"SEVERITY", "STATUS", "KIND", "SITE", "SUBJECT", "SINCE", "MESSAGE"},
		Row: func(v edgeapi.Alert) []any {
			return []any{v.Severity, v.Status, v.Kind, v.SiteId, v.Subject, v.FirstSeenAt, v.Message}
		},
	}, func(ctx context.Context, c *call, p page) (*http.Response, error) {
		return c.api.ListAlerts(ctx, &edgeapi.ListAlertsParams{
			Limit:    p.limit,
			Cursor:   p.cursor,
			SiteId:   given(c, "site", site),
			Status:   given(c, "status", edgeapi.ListAlertsParamsStatus(status)),
			Kind:     given(c, "kind", edgeapi.AlertKind(kind)),
			Severity: given(c, "severity", edgeapi.AlertSeverity(severity)),
		})
	})
	cmd.Flags().StringVar(&site, "site", "", "only what concerns this site")
	cmd.Flags().StringVar(&status, "status", "firing", "firing, resolved or all")
	cmd.Flags().StringVar(&kind, "kind", "", "only this kind, for example site_offline")
	cmd.Flags().StringVar(&severity, "severity", "", "only this severity: warning or critical")
	parent := group("alert", "Alerts: what needs attention", "  mainstay edge alert list", "alerts")
	parent.AddCommand(cmd)
	return parent
}
