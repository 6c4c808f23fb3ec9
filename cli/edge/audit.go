package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/auditlog"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) audit() *cobra.Command {
	cmd := verb.Group("audit", "The audit log: who changed what", "  mainstay edge audit list --action site.revoke")
	cmd.AddCommand(s.auditList(), s.auditVerify(), s.auditAcknowledge())
	return cmd
}

func (s *session) auditList() *cobra.Command {
	var site, without string
	var filter func() auditlog.Filter
	cmd := verb.List(s.Session, verb.Verb{
		Use:   "list",
		Short: "List audit entries, newest first",
		Example: "  mainstay edge audit list --action site.revoke --from 24h\n  mainstay edge audit list --actor admin --all -o json\n" +
			"  mainstay edge audit list --result denied\n  mainstay edge audit list --search pump-7",
	}, output.Columns[edgeapi.AuditEntry]{
		Heads: []string{"SEQ", "TIME", "ACTOR", "ACTION", "TARGET", "RESULT", "MESSAGE"},
		Row: func(v edgeapi.AuditEntry) []any {
			return []any{v.Seq, v.Time, v.Actor, v.Action, v.Target, v.Result, v.Message}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		f := filter()
		return c.API.ListAudit(ctx, &edgeapi.ListAuditParams{
			Limit: p.Limit, Cursor: p.Cursor, SiteId: verb.Given(c, "site", site),
			Actor: f.Actor, Action: f.Action, Target: f.Target, Result: (*edgeapi.AuditResult)(f.Result),
			WithoutAction: verb.Given(c, "without-action", without), Q: f.Search, From: f.From, To: f.To,
		})
	})
	filter = auditlog.Filters(cmd, "site.revoke")
	cmd.Flags().StringVar(&site, "site", "", "only what concerns this site")
	cmd.Flags().StringVar(&without, "without-action", "",
		"leave out what succeeded of this action, for example device.register")
	return cmd
}

func (s *session) auditVerify() *cobra.Command {
	return auditlog.Verify(s.Session, "mainstay edge", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.VerifyAudit(ctx)
	})
}

func (s *session) auditAcknowledge() *cobra.Command {
	return auditlog.Acknowledge(s.Session, "mainstay edge",
		func(ctx context.Context, c *call, through int64, note string) (*http.Response, error) {
			return c.API.AcknowledgeAudit(ctx, edgeapi.AuditAcknowledgement{Through: through, Note: note})
		})
}
