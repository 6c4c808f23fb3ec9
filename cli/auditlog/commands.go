package auditlog

import (
	"context"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// Verify returns the command `NOUN audit verify`. noun is the command of the service, such as
// "mainstay edge", and r asks for the verification.
func Verify[A any](s *verb.Session[A], noun string, r verb.Request[A]) *cobra.Command {
	return s.Command(verb.Verb{
		Use:   "verify",
		Short: "Check that the audit log is whole; fails when it is not",
		Long: `Check that the audit log is whole: recompute its chain, and hold it against its signatures and the checkpoints outside
of the database. It fails when there is a break that nobody has acknowledged.`,
		Example: "  " + noun + " audit verify",
	}, func(ctx context.Context, c *verb.Call[A]) error {
		a, err := c.Send(r(ctx, c))
		if err != nil {
			return err
		}
		return Print(c.Out, a.Body, noun+" audit acknowledge")
	})
}

// Acknowledge returns the command `NOUN audit acknowledge`. r acknowledges the breaks up to the one that an entry
// records.
func Acknowledge[A any](
	s *verb.Session[A], noun string,
	r func(ctx context.Context, c *verb.Call[A], through int64, note string) (*http.Response, error),
) *cobra.Command {
	var note string
	cmd := s.Command(verb.Verb{
		Use:   "acknowledge ENTRY",
		Short: "Say that the breaks of the audit log are known, which ends the alarm",
		Long: `Say that the breaks of the audit log are known, up to the one that ENTRY records; audit verify shows its number. The
alarm ends. Verification still shows the breaks, with the note.`,
		Example: "  " + noun + ` audit acknowledge 1042 --note "restored the backup of last night"`,
	}, func(ctx context.Context, c *verb.Call[A]) error {
		through, err := strconv.ParseInt(c.Args[0], 10, 64)
		if err != nil {
			return exit.Usagef("%q is not a number; take it from: %s audit verify", c.Args[0], noun)
		}
		if _, err := c.Send(r(ctx, c, through, note)); err != nil {
			return err
		}
		return c.Say("The breaks up to entry %d are acknowledged.", through)
	})
	cmd.Flags().StringVar(&note, "note", "", "why the log broke, for those who read it later")
	_ = cmd.MarkFlagRequired("note") // fails only for an undefined flag
	return cmd
}
