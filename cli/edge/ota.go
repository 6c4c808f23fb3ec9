package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
)

func (s *session) ota() *cobra.Command {
	cmd := group("ota", "Over-the-air updates of single devices", "  mainstay edge ota status DEVICE")
	cmd.AddCommand(s.otaRequest(), s.object(verb{
		use: "status DEVICE", short: "Show a device's current update and how far it is",
		example: "  mainstay edge ota status DEVICE",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.api.GetOTA(ctx, c.args[0]) }))
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
	cmd := s.object(verb{
		use:   "request DEVICE",
		short: "Ask a device to update; takes the place of an earlier request",
		example: "  mainstay edge ota request DEVICE --version 2.1.0 --url https://files.example.com/fw-2.1.0.bin \\\n" +
			"    --sha256 $(sha256sum fw-2.1.0.bin | cut -d' ' -f1)",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		if err := c.required("version", "url", "sha256"); err != nil {
			return nil, err
		}
		return c.api.RequestOTA(ctx, c.args[0], edgeapi.OTAInput{Version: a.version, Url: a.url, Sha256: a.sha256,
			Size: given(c, "size", a.size), Force: given(c, "force", force)})
	})
	a.add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "install even when the device has this version")
	return cmd
}
