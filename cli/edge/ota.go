package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) ota() *cobra.Command {
	cmd := verb.Group("ota", "Over-the-air updates of single devices", "  mainstay edge ota status pump-1")
	cmd.AddCommand(s.otaRequest(), s.Object(verb.Verb{
		Use: "status DEVICE", Short: "Show a device's current update and how far it is",
		Example: "  mainstay edge ota status pump-1",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetOTA(ctx, c.Args[0]) }))
	return cmd
}

// artifactFlags describe the artifact that devices should install.
type artifactFlags struct {
	version, url, sha256 string
	size                 int64
}

func (a *artifactFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.version, "version", "", "version to install (required)")
	f.StringVar(&a.url, "url", "", "where devices fetch the artifact (required)")
	f.StringVar(&a.sha256, "sha256", "", "the artifact's SHA-256, 64 hex digits (required)")
	f.Int64Var(&a.size, "size", 0, "the artifact's bytes")
}

func (s *session) otaRequest() *cobra.Command {
	var a artifactFlags
	var force bool
	cmd := s.Object(verb.Verb{
		Required: []string{"version", "url", "sha256"},
		Use:      "request DEVICE",
		Short:    "Ask a device to update; takes the place of an earlier request",
		Example: "  mainstay edge ota request pump-1 --version 2.1.0 --url https://files.example.com/fw-2.1.0.bin \\\n" +
			"    --sha256 $(sha256sum fw-2.1.0.bin | cut -d' ' -f1)",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.RequestOTA(ctx, c.Args[0], edgeapi.OTAInput{Version: a.version, Url: a.url, Sha256: a.sha256,
			Size: verb.Given(c, "size", a.size), Force: verb.Given(c, "force", force)})
	})
	a.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "install even when the device has this version")
	return cmd
}
