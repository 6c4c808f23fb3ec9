package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
)

func (s *session) orgs() *cobra.Command {
	cmd := group("org", "Orgs: tenants and their tokens", "  mainstay edge org list", "orgs")
	cmd.AddCommand(
		list(s, verb{use: "list", short: "List orgs", example: "  mainstay edge org list"},
			output.Columns[edgeapi.Org]{
				Heads: []string{"ID", "NAME", "CREATED"},
				Row:   func(v edgeapi.Org) []any { return []any{v.Id, v.Name, v.CreatedAt} },
			}, func(ctx context.Context, c *call, p page) (*http.Response, error) {
				return c.api.ListOrgs(ctx, &edgeapi.ListOrgsParams{Limit: p.limit, Cursor: p.cursor})
			}),
		s.get(
			"org", "org",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.api.GetOrg(ctx, c.args[0]) },
		),
		s.object(verb{
			use: "create NAME", short: "Make an org and print its three tokens (shown this once)",
			example: "  mainstay edge org create acme -o json > acme-tokens.json",
		}, func(ctx context.Context, c *call) (*http.Response, error) {
			return c.api.CreateOrg(ctx, edgeapi.OrgInput{Name: c.args[0]})
		}),
		s.delete(
			"org",
			"org",
			" and its tokens (its sites stay)",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.api.DeleteOrg(ctx, c.args[0])
			},
		),
	)
	return cmd
}
