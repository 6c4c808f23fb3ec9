package edge

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (a *agentSession) reportDeployment() *cobra.Command {
	var status, message string
	var revision int64
	cmd := a.Object(verb.Verb{
		Required: []string{"status"},
		Use:      "report-deployment ID", Short: "Say how a deployment does on the site",
		Example: "  mainstay edge agent report-deployment ID --status running --revision 3",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		site, err := a.siteID(ctx, c)
		if err != nil {
			return nil, err
		}
		return c.API.ReportDeploymentStatus(
			ctx,
			c.Args[0],
			edgeapi.DeploymentReport{SiteId: site, Status: edgeapi.DeploymentStatus(status),
				Message: verb.Given(c, "message", message), ObservedRevision: verb.Given(c, "revision", revision)},
		)
	})
	f := cmd.Flags()
	f.StringVar(&status, "status", "", "pending, pulling, running, stopped, failed, denied or rolled_back (required)")
	f.StringVar(&message, "message", "", "a sentence for people")
	f.Int64Var(&revision, "revision", 0, "revision that this is about")
	return cmd
}

func (a *agentSession) rollback() *cobra.Command {
	var reason string
	cmd := a.Object(verb.Verb{
		Use: "rollback ID", Short: "Go back to the image that a deployment ran before",
		Example: "  mainstay edge agent rollback ID --reason 'does not start'",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		site, err := a.siteID(ctx, c)
		if err != nil {
			return nil, err
		}
		return c.API.RollbackDeployment(
			ctx, c.Args[0], edgeapi.RollbackRequest{SiteId: site, Reason: verb.Given(c, "reason", reason)},
		)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}

func (a *agentSession) report() *cobra.Command {
	var data string
	var version int64
	cmd := a.Object(verb.Verb{
		Use: "report DEVICE", Short: "Merge into a device's reported state (RFC 7396; null deletes)",
		Example: "  mainstay edge agent report pump-1 --data '{\"interval\": 30}'",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		reported, err := c.JSON("data", data)
		if err != nil {
			return nil, err
		}
		return c.API.ReportTwin(
			ctx,
			c.Args[0],
			edgeapi.ReportedInput{SiteId: verb.Given(c, "site", a.site), Reported: reported,
				Version: verb.Given(c, "expected-version", version)},
		)
	})
	cmd.Flags().StringVar(&data, "data", "", "changes: a JSON object, @FILE, or - for standard input (the default)")
	cmd.Flags().Int64Var(&version, "expected-version", 0, "reported_version that you read")
	return cmd
}

func (a *agentSession) reportOTA() *cobra.Command {
	var state, message, request string
	var progress int
	cmd := a.Object(verb.Verb{
		Required: []string{"state"},
		Use:      "ota DEVICE",
		Short:    "Say how far a device's update is",
		Example:  "  mainstay edge agent ota pump-1 --state downloading --progress 40\n  mainstay edge agent ota pump-1 --state succeeded",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		site, err := a.siteID(ctx, c)
		if err != nil {
			return nil, err
		}
		in := edgeapi.OTAReport{SiteId: site}
		in.Status.State = edgeapi.OTAState(state)
		in.Status.Progress = verb.Given(c, "progress", progress)
		in.Status.Message = verb.Given(c, "message", message)
		in.Status.RequestId = verb.Given(c, "request", request)
		return c.API.ReportOTAStatus(ctx, c.Args[0], in)
	})
	f := cmd.Flags()
	f.StringVar(
		&state, "state", "", "pending, downloading, downloaded, installing, ..., succeeded or failed (required)",
	)
	f.IntVar(&progress, "progress", 0, "percent")
	f.StringVar(&message, "message", "", "a sentence for people")
	f.StringVar(&request, "request", "", "request that this is about; the current one when absent")
	return cmd
}

func (a *agentSession) rotate() *cobra.Command {
	var csr string
	cmd := a.Object(verb.Verb{
		Required: []string{"csr"},
		Use:      "rotate", Short: "Have a new certificate signed for the site",
		Example: "  mainstay edge agent rotate --csr site.csr -o json",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		pem, err := os.ReadFile(csr)
		if err != nil {
			return nil, fmt.Errorf("--csr: %w", err)
		}
		site, err := a.siteID(ctx, c)
		if err != nil {
			return nil, err
		}
		return c.API.RotateCertificate(ctx, site, edgeapi.RotateRequest{CsrPem: string(pem)})
	})
	cmd.Flags().StringVar(&csr, "csr", "", "PEM file with a certificate request (required)")
	return cmd
}
