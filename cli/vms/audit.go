package vms

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/auditlog"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) audit() *cobra.Command {
	cmd := verb.Group("audit", "The audit log: who changed what", "  mainstay vms audit list --limit 20")
	cmd.AddCommand(s.auditList(), s.auditVerify(), s.auditAcknowledge())
	return cmd
}

func (s commands) auditList() *cobra.Command {
	var filter func() auditlog.Filter
	cmd := verb.List(
		s.session,
		verb.Verb{
			Use:   "list",
			Short: "List who changed what, newest first",
			Example: "  mainstay vms audit list --limit 20\n  mainstay vms audit list --action vm.delete --from 24h\n" +
				"  mainstay vms audit list --tenant acme --result denied\n  mainstay vms audit list --search web-1",
		},
		output.Columns[vmapi.AuditEntry]{
			Heads: []string{"TIME", "ACTOR", "ACTION", "TARGET", "TENANT", "RESULT", "MESSAGE"},
			Row: func(v vmapi.AuditEntry) []any {
				return []any{v.Time, v.Actor, v.Action, v.Target, v.Tenant, v.Result, v.Message}
			},
		},
		func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			f := filter()
			return c.API.ListAudit(ctx, &vmapi.ListAuditParams{
				Limit: p.Limit, Cursor: p.Cursor, Tenant: s.of(),
				Actor: f.Actor, Action: f.Action, Target: f.Target, Result: (*vmapi.ListAuditParamsResult)(f.Result),
				Q: f.Search, From: f.From, To: f.To,
			})
		},
	)
	filter = auditlog.Filters(cmd, "vm.delete")
	return cmd
}

func (s commands) auditVerify() *cobra.Command {
	return auditlog.Verify(s.session, "mainstay vms", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.VerifyAudit(ctx)
	})
}

func (s commands) auditAcknowledge() *cobra.Command {
	return auditlog.Acknowledge(s.session, "mainstay vms",
		func(ctx context.Context, c *call, through int64, note string) (*http.Response, error) {
			return c.API.AcknowledgeAudit(ctx, vmapi.AuditAcknowledgement{Through: through, Note: note})
		})
}
