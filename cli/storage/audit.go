package storage

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/auditlog"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) audit() *cobra.Command {
	cmd := verb.Group("audit", "The audit log: who changed what", "  mainstay storage audit list --limit 20")
	cmd.AddCommand(s.auditList(), s.auditVerify(), s.auditAcknowledge())
	return cmd
}

func (s commands) auditList() *cobra.Command {
	var tenant string
	var filter func() auditlog.Filter
	cmd := verb.List(
		s.session,
		verb.Verb{
			Use:   "list",
			Short: "List who changed what, newest first",
			Example: "  mainstay storage audit list --limit 20\n  mainstay storage audit list --action volume.delete --from 24h\n" +
				"  mainstay storage audit list --tenant acme --result denied\n  mainstay storage audit list --search data",
		},
		output.Columns[storageapi.AuditEntry]{
			Heads: []string{"TIME", "ACTOR", "ACTION", "TARGET", "TENANT", "RESULT", "MESSAGE"},
			Row: func(v storageapi.AuditEntry) []any {
				return []any{v.Time, v.Actor, v.Action, v.Target, v.Tenant, v.Result, v.Message}
			},
		},
		func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			f := filter()
			return c.API.ListAudit(ctx, &storageapi.ListAuditParams{
				Limit: p.Limit, Cursor: p.Cursor, Tenant: verb.Given(c, "tenant", tenant),
				Actor: f.Actor, Action: f.Action, Target: f.Target, Result: (*storageapi.ListAuditParamsResult)(f.Result),
				Q: f.Search, From: f.From, To: f.To,
			})
		},
	)
	filter = auditlog.Filters(cmd, "volume.delete")
	cmd.Flags().StringVar(&tenant, "tenant", "", "only what concerns this tenant")
	return cmd
}

func (s commands) auditVerify() *cobra.Command {
	return auditlog.Verify(s.session, "mainstay storage", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.VerifyAudit(ctx)
	})
}

func (s commands) auditAcknowledge() *cobra.Command {
	return auditlog.Acknowledge(s.session, "mainstay storage",
		func(ctx context.Context, c *call, through int64, note string) (*http.Response, error) {
			return c.API.AcknowledgeAudit(ctx, storageapi.AuditAcknowledgement{Through: through, Note: note})
		})
}
