package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) devices() *cobra.Command {
	cmd := verb.Group("device", "Devices that sites look after", "  mainstay edge device list --site plant-7", "devices")
	cmd.AddCommand(
		s.deviceList(),
		s.show(
			"device", "DEVICE", "device",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetDevice(ctx, c.Args[0]) },
		),
		s.delete("device", "DEVICE", "device", " and its twin", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.DeleteDevice(ctx, c.Args[0])
		}),
	)
	return cmd
}

func (s *session) deviceList() *cobra.Command {
	var site, search, sort string
	var update []string
	cmd := verb.List(s.Session, verb.Verb{
		Use: "list", Short: "List devices",
		Example: "  mainstay edge device list --site plant-7\n  mainstay edge device list --search pump --sort name\n  mainstay edge device list --update failed,timed_out\n  mainstay edge device list --all -o yaml",
	}, output.Columns[edgeapi.Device]{
		Heads: []string{"ID", "SITE", "NAME", "MODEL", "FIRMWARE", "LAST SEEN", "LABELS"},
		Row: func(v edgeapi.Device) []any {
			return []any{v.DeviceId, siteRef(v.SiteId), v.Name, v.Model, v.FirmwareVersion, v.LastSeenAt, v.Labels}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListDevices(ctx, &edgeapi.ListDevicesParams{
			Limit:  p.Limit,
			Cursor: p.Cursor,
			SiteId: verb.Given(c, "site", site),
			Q:      verb.Given(c, "search", search),
			Sort:   verb.Given(c, "sort", edgeapi.ListDevicesParamsSort(sort)),

			OtaState: verb.Given(c, "update", words[edgeapi.OTAState](update)),
		})
	})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "only devices of this site")
	f.StringSliceVar(
		&update, "update", nil, "only devices whose last update is in this state, as succeeded or failed; may be repeated",
	)
	f.StringVar(&search, "search", "", "only devices with this text in the ID, the name, the model or a label")
	f.StringVar(&sort, "sort", "", "device_id, name or last_seen_at; a dash before it means descending")
	return cmd
}
