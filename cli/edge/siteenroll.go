package edge

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) siteEnroll() *cobra.Command {
	var token, csr, certOut, version string
	var labels verb.Pairs
	cmd := s.Command(verb.Verb{
		Use: "enroll NAME", Short: "Make a site and print its agent's token (shown this once)",
		Long: `Make a site and print its agent's token, which is shown this once.

The enrollment token is the one of --enrollment-token, else of EDGE_ENROLLMENT_TOKEN, else, when the server runs on this
machine, the one in .mainstay/credentials.json. It decides to which org the site belongs.`,
		Example: `  mainstay edge site enroll plant-7 --label region=eu
  openssl req -new -newkey ed25519 -nodes -keyout site.key -subj /CN=plant-7 -out site.csr
  mainstay edge site enroll plant-7 --csr site.csr --cert-out site.crt`,
	}, func(ctx context.Context, c *call) error {
		body := edgeapi.EnrollRequest{Name: c.Args[0], Version: verb.Given(c, "agent-version", version)}
		if labels != nil {
			body.Labels = new(edgeapi.Labels(labels))
		}
		if certOut != "" && csr == "" {
			return exit.Usagef("--cert-out takes --csr, since there is no certificate without a request for one")
		}
		var err error
		if body.EnrollmentToken, err = enrollmentToken(c, token); err != nil {
			return err
		}
		if csr != "" {
			pem, err := os.ReadFile(csr)
			if err != nil {
				return fmt.Errorf("--csr: %w", err)
			}
			body.CsrPem = new(string(pem))
		}
		return enroll(ctx, c, body, certOut)
	})
	f := cmd.Flags()
	f.StringVar(&token, "enrollment-token", "", "enrollment token (environment: EDGE_ENROLLMENT_TOKEN)")
	f.StringVar(&csr, "csr", "", "PEM file with a certificate request to sign")
	f.StringVar(&certOut, "cert-out", "", "file to write the certificate to")
	f.StringVar(&version, "agent-version", "", "version of the agent")
	f.Var(&labels, "label", "label of the site; may be repeated")
	return cmd
}

func enroll(ctx context.Context, c *call, body edgeapi.EnrollRequest, certOut string) error {
	a, err := c.Send(c.API.Enroll(ctx, body))
	if err != nil {
		return err
	}
	// Print the token before anything else can fail: it is never shown again.
	if err := c.Out.Object(a.Body); err != nil || certOut == "" {
		return err
	}
	e, err := decode[edgeapi.Enrollment](a, nil)
	if err != nil {
		return err
	}
	if e.CertificatePem == nil {
		return fmt.Errorf("the server signed no certificate, so %s was not written", certOut)
	}
	if err := os.WriteFile(certOut, []byte(*e.CertificatePem), 0o644); err != nil {
		return fmt.Errorf("--cert-out: %w", err)
	}
	return nil
}

func enrollmentToken(c *call, flag string) (string, error) {
	token := cmp.Or(flag, c.Env.Getenv("EDGE_ENROLLMENT_TOKEN"))
	if token != "" {
		return token, nil
	}
	token, err := c.Env.DevCredential(c.Reach.Server, Service.Unit, "enrollment_token")
	if err == nil && token == "" {
		err = exit.Hinted(exit.Usagef("an enrollment token is missing: --enrollment-token or EDGE_ENROLLMENT_TOKEN"),
			"'mainstay edge org create' prints one for the new org")
	}
	return token, err
}
