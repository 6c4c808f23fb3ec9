package edge

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) crl() *cobra.Command {
	var pem bool
	var out string
	cmd := s.Command(verb.Verb{
		Use: "show", Short: "Fetch the certificate revocation list",
		Example: "  mainstay edge crl show --pem | openssl crl -noout -text\n  mainstay edge crl show --out edge.crl",
	}, func(ctx context.Context, c *call) error {
		format := edgeapi.GetCRLParamsFormatDer
		if pem {
			format = edgeapi.GetCRLParamsFormatPem
		} else if out == "" && output.IsTerminal(c.Out.Out) {
			return exit.Usagef("DER is not for terminals: --pem for text, --out FILE for a file")
		}
		a, err := c.Send(c.API.GetCRL(ctx, &edgeapi.GetCRLParams{Format: &format}))
		if err != nil {
			return err
		}
		if out == "" {
			_, err = c.Out.Out.Write(a.Body)
			return err
		}
		if err := os.WriteFile(out, a.Body, 0o644); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
		return nil
	})
	cmd.Flags().BoolVar(&pem, "pem", false, "PEM instead of DER")
	cmd.Flags().StringVar(&out, "out", "", "file to write to; standard output when absent")
	parent := verb.Group("crl", "The certificate revocation list", "  mainstay edge crl show --pem")
	parent.AddCommand(cmd)
	return parent
}
