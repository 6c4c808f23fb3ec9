package edge

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
)

func (s *session) audit() *cobra.Command {
	cmd := group("audit", "The audit log: who changed what", "  mainstay edge audit list --action site.revoke")
	cmd.AddCommand(s.auditList(), s.auditVerify())
	return cmd
}

func (s *session) auditList() *cobra.Command {
	var site, actor, action string
	var from, to moment
	cmd := list(s, verb{
		use: "list", short: "List audit entries, newest first",
		example: "  mainstay edge audit list --action site.revoke --from 24h\n  mainstay edge audit list --actor admin --all -o json",
	}, output.Columns[edgeapi.AuditEntry]{
		Heads: []string{"SEQ", "TIME", "ACTOR", "ACTION", "TARGET", "RESULT", "MESSAGE"},
		Row: func(v edgeapi.AuditEntry) []any {
			return []any{v.Seq, v.Time, v.Actor, v.Action, v.Target, v.Result, v.Message}
		},
	}, func(ctx context.Context, c *call, p page) (*http.Response, error) {
		return c.api.ListAudit(ctx, &edgeapi.ListAuditParams{Limit: p.limit, Cursor: p.cursor, SiteId: given(c, "site", site),
			Actor: given(c, "actor", actor), Action: given(c, "action", action), From: from.at, To: to.at})
	})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "only what concerns this site")
	f.StringVar(&actor, "actor", "", "only what this caller did")
	f.StringVar(&action, "action", "", "only this action, for example site.revoke")
	f.Var(&from, "from", "only from this time on, or from so long ago")
	f.Var(&to, "to", "only before this time")
	return cmd
}

func (s *session) auditVerify() *cobra.Command {
	return s.command(verb{
		use: "verify", short: "Check that the audit log is whole; fails when it is not",
		example: "  mainstay edge audit verify",
	}, func(ctx context.Context, c *call) error {
		a, err := c.send(c.api.VerifyAudit(ctx))
		v, err := decode[edgeapi.AuditVerification](a, err)
		if err != nil {
			return err
		}
		if err := c.out.Object(a.body); err != nil {
			return err
		}
		if !v.Ok {
			return fmt.Errorf("the audit log is not whole: %s", output.Escape(v.Reason))
		}
		return nil
	})
}
