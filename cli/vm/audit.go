package vm

import (
	"context"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/auditlog"
	"github.com/mainstay-infra/mainstay/cli/exit"
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
	return s.Command(
		verb.Verb{
			Use:     "verify",
			Short:   "Check that the audit log is whole; fails when it is not",
			Example: "  mainstay vm audit verify",
		},
		func(ctx context.Context, c *daemon.Call) error {
			a, err := c.Send(c.API.VerifyAudit(ctx))
			if err != nil {
				return err
			}
			return auditlog.Print(c.Out, a.Body, "mainstay vm audit acknowledge")
		},
	)
}

func (s commands) auditAcknowledge() *cobra.Command {
	var note string
	cmd := s.Command(
		verb.Verb{
			Use:   "acknowledge ENTRY",
			Short: "Say that the breaks of the audit log are known, which ends the alarm",
			Long: "Say that the breaks of the audit log are known, up to the one that ENTRY records; audit verify shows its number. " +
				"The alarm ends. Verification still shows the breaks, with the note.",
			Example: `  mainstay vm audit acknowledge 1042 --note "restored the backup of last night"`,
		},
		func(ctx context.Context, c *daemon.Call) error {
			through, err := strconv.ParseInt(c.Args[0], 10, 64)
			if err != nil {
				return exit.Usagef("%q is not a number; take it from: mainstay vm audit verify", c.Args[0])
			}
			if _, err := c.Send(
				c.API.AcknowledgeAudit(ctx, hypervisorapi.AuditAcknowledgement{Through: through, Note: note}),
			); err != nil {
				return err
			}
			return c.Say("The breaks up to entry %d are acknowledged.", through)
		},
	)
	cmd.Flags().StringVar(&note, "note", "", "why the log broke, for those who read it later")
	_ = cmd.MarkFlagRequired("note") // fails only for an undefined flag
	return cmd
}
