package edge

import (
	"context"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/auditlog"
	"github.com/mainstay-infra/mainstay/cli/exit"
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
	return s.Command(verb.Verb{
		Use:   "verify",
		Short: "Check that the audit log is whole; fails when it is not",
		Long: "Check that the audit log is whole: recompute its chain, and hold it against its signatures and the checkpoints outside of the database. " +
			"It fails when there is a break that nobody has acknowledged.",
		Example: "  mainstay edge audit verify",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.VerifyAudit(ctx))
		if err != nil {
			return err
		}
		return auditlog.Print(c.Out, a.Body, "mainstay edge audit acknowledge")
	})
}

func (s *session) auditAcknowledge() *cobra.Command {
	var note string
	cmd := s.Command(verb.Verb{
		Use:   "acknowledge ENTRY",
		Short: "Say that the breaks of the audit log are known, which ends the alert",
		Long: "Say that the breaks of the audit log are known, up to the one that ENTRY records; audit verify shows its number. " +
			"The alert ends. Verification still shows the breaks, with the note.",
		Example: `  mainstay edge audit acknowledge 1042 --note "restored the backup of last night"`,
	}, func(ctx context.Context, c *call) error {
		through, err := strconv.ParseInt(c.Args[0], 10, 64)
		if err != nil {
			return exit.Usagef("%q is not a number; take it from: mainstay edge audit verify", c.Args[0])
		}
		if _, err := c.Send(
			c.API.AcknowledgeAudit(ctx, edgeapi.AuditAcknowledgement{Through: through, Note: note}),
		); err != nil {
			return err
		}
		return c.Say("The breaks up to entry %d are acknowledged.", through)
	})
	cmd.Flags().StringVar(&note, "note", "", "why the log broke, for those who read it later")
	_ = cmd.MarkFlagRequired("note") // fails only for an undefined flag
	return cmd
}
