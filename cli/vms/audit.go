package vms

import (
	"context"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/auditlog"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) audit() *cobra.Command {
	cmd := verb.Group("audit", "The audit log: who changed what", "  mainstay vms audit list --limit 20")
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
				Limit: p.Limit, Cursor: p.Cursor, Tenant: verb.Given(c, "tenant", tenant),
				Actor: f.Actor, Action: f.Action, Target: f.Target, Result: (*vmapi.ListAuditParamsResult)(f.Result),
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
			Example: "  mainstay vms audit verify",
		},
		func(ctx context.Context, c *call) error {
			a, err := c.Send(c.API.VerifyAudit(ctx))
			if err != nil {
				return err
			}
			return auditlog.Print(c.Out, a.Body, "mainstay vms audit acknowledge")
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
			Example: `  mainstay vms audit acknowledge 1042 --note "restored the backup of last night"`,
		},
		func(ctx context.Context, c *call) error {
			through, err := strconv.ParseInt(c.Args[0], 10, 64)
			if err != nil {
				return exit.Usagef("%q is not a number; take it from: mainstay vms audit verify", c.Args[0])
			}
			if _, err := c.Send(
				c.API.AcknowledgeAudit(ctx, vmapi.AuditAcknowledgement{Through: through, Note: note}),
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
