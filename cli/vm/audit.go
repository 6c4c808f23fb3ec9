package vm

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/auditlog"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) audit() *cobra.Command {
	cmd := verb.Group("audit", "The audit log: who changed what", "  mainstay vm audit list --limit 20")
	cmd.AddCommand(s.auditList(), s.auditVerify(), s.auditAcknowledge())
	return cmd
}

func (s commands) auditList() *cobra.Command {
	var tenant string
	var filter func() auditlog.Filter
	cmd := verb.List(
		s.Session,
		verb.Verb{
			Use:   "list",
			Short: "List who changed what, newest first",
			Example: "  mainstay vm audit list --limit 20\n  mainstay vm audit list --action vm.delete --from 24h\n" +
				"  mainstay vm audit list --tenant acme --result denied\n  mainstay vm audit list --search web-1",
		},
		output.Columns[hypervisorapi.AuditEntry]{
			Heads: []string{"TIME", "ACTOR", "ACTION", "TARGET", "TENANT", "RESULT", "MESSAGE"},
			Row: func(v hypervisorapi.AuditEntry) []any {
				return []any{v.Time, v.Actor, v.Action, v.Target, v.Tenant, v.Result, v.Message}
			},
		},
		func(ctx context.Context, c *daemon.Call, p verb.Page) (*http.Response, error) {
			f := filter()
			return c.API.ListAudit(ctx, &hypervisorapi.ListAuditParams{
				Limit: p.Limit, Cursor: p.Cursor, Tenant: verb.Given(c, "tenant", tenant),
				Actor: f.Actor, Action: f.Action, Target: f.Target, Result: (*hypervisorapi.ListAuditParamsResult)(f.Result),
				Q: f.Search, From: f.From, To: f.To,
			})
		},
	)
	filter = auditlog.Filters(cmd, "vm.delete")
	cmd.Flags().StringVar(&tenant, "tenant", "", "only what concerns this tenant")
	return cmd
}

func (s commands) auditVerify() *cobra.Command {
	return auditlog.Verify(s.Session, "mainstay vm", func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
		return c.API.VerifyAudit(ctx)
	})
}

func (s commands) auditAcknowledge() *cobra.Command {
	return auditlog.Acknowledge(s.Session, "mainstay vm",
		func(ctx context.Context, c *daemon.Call, through int64, note string) (*http.Response, error) {
			return c.API.AcknowledgeAudit(ctx, hypervisorapi.AuditAcknowledgement{Through: through, Note: note})
		})
}
