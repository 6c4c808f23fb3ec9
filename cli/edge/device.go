package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
)

func (s *session) devices() *cobra.Command {
	cmd := group("device", "Devices that sites look after", "  mainstay edge device list --site ID", "devices")
	cmd.AddCommand(
		s.deviceList(),
		s.get(
			"device", "device",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.api.GetDevice(ctx, c.args[0]) },
		),
		s.delete("device", "device", " and its twin", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.api.DeleteDevice(ctx, c.args[0])
		}),
	)
	return cmd
}

func (s *session) deviceList() *cobra.Command {
	var site string
	cmd := list(s, verb{
		use: "list", short: "List devices",
		example: "  mainstay edge device list --site ID\n  mainstay edge device list --all -o yaml",
	}, output.Columns[edgeapi.Device]{
		Heads: []string{"ID", "SITE", "NAME", "MODEL", "FIRMWARE", "LAST SEEN", "LABELS"},
		Row: func(v edgeapi.Device) []any {
			return []any{v.DeviceId, v.SiteId, v.Name, v.Model, v.FirmwareVersion, v.LastSeenAt, v.Labels}
		},
	}, func(ctx context.Context, c *call, p page) (*http.Response, error) {
		return c.api.ListDevices(
			ctx, &edgeapi.ListDevicesParams{Limit: p.limit, Cursor: p.cursor, SiteId: given(c, "site", site)},
		)
	})
	cmd.Flags().StringVar(&site, "site", "", "only devices of this site")
	return cmd
}
