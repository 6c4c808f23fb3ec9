package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) twins() *cobra.Command {
	cmd := verb.Group("twin", "Device twins: desired and reported state", "  mainstay edge twin show pump-1", "twins")
	cmd.AddCommand(
		s.twinList(),
		s.show(
			"twin", "DEVICE", "twin, by its device's id",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetTwin(ctx, c.Args[0]) },
		),
		s.twinSet(),
	)
	return cmd
}

// twinColumns is also used for the agent's own list.
func twinColumns() output.Columns[edgeapi.Twin] {
	return output.Columns[edgeapi.Twin]{
		Heads: []string{"DEVICE", "SITE", "DESIRED", "REPORTED", "UPDATED", "DESIRED STATE"},
		Row: func(v edgeapi.Twin) []any {
			return []any{v.DeviceId, siteRef(v.SiteId), v.DesiredVersion, v.ReportedVersion, v.UpdatedAt, v.Desired}
		},
	}
}

func (s *session) twinList() *cobra.Command {
	var site string
	cmd := verb.List(
		s.Session,
		verb.Verb{Use: "list", Short: "List twins", Example: "  mainstay edge twin list --site plant-7"},
		twinColumns(),
		func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListTwins(
				ctx, &edgeapi.ListTwinsParams{Limit: p.Limit, Cursor: p.Cursor, SiteId: verb.Given(c, "site", site)},
			)
		},
	)
	cmd.Flags().StringVar(&site, "site", "", "only twins of this site's devices")
	return cmd
}

func (s *session) twinSet() *cobra.Command {
	var data, ifMatch string
	var expected int64
	cmd := s.Object(verb.Verb{
		Use: "update DEVICE", Aliases: []string{"set"}, Short: "Replace a device's desired state, except its update",
		Long: `Replace a device's desired state, except "ota", which 'mainstay edge ota request' sets.

--expected-version and --if-match make sure that nobody else has changed it since you read it.`,
		Example: `  mainstay edge twin update pump-1 --data '{"interval": 30}'
  mainstay edge twin update pump-1 --data @desired.json --expected-version 4`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		desired, err := c.JSON("data", data)
		if err != nil {
			return nil, err
		}
		return c.API.PutDesired(ctx, c.Args[0], &edgeapi.PutDesiredParams{IfMatch: verb.Given(c, "if-match", ifMatch)},
			edgeapi.DesiredInput{Desired: desired, ExpectedVersion: verb.Given(c, "expected-version", expected)})
	})
	f := cmd.Flags()
	f.StringVar(&data, "data", "", "desired state: a JSON object, @FILE, or - for standard input (the default)")
	f.Int64Var(&expected, "expected-version", 0, "desired_version that you read")
	f.StringVar(&ifMatch, "if-match", "", "ETag that you read")
	return cmd
}
