package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) orgs() *cobra.Command {
	cmd := verb.Group("org", "Orgs: tenants and their tokens", "  mainstay edge org list", "orgs")
	cmd.AddCommand(
		verb.List(s.Session, verb.Verb{Use: "list", Short: "List orgs", Example: "  mainstay edge org list"},
			output.Columns[edgeapi.Org]{
				Heads: []string{"ID", "NAME", "CREATED"},
				Row:   func(v edgeapi.Org) []any { return []any{v.Id, v.Name, v.CreatedAt} },
			}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
				return c.API.ListOrgs(ctx, &edgeapi.ListOrgsParams{Limit: p.Limit, Cursor: p.Cursor})
			}),
		s.show(
			"org", "ORG", "org",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetOrg(ctx, c.Args[0]) },
		),
		s.Object(verb.Verb{
			Use: "create NAME", Short: "Make an org and print its three tokens (shown this once)",
			Example: "  mainstay edge org create acme -o json > acme-tokens.json",
		}, func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.CreateOrg(ctx, edgeapi.OrgInput{Name: c.Args[0]})
		}),
		s.delete(
			"org",
			"ORG",
			"org",
			" and its tokens (its sites stay)",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.API.DeleteOrg(ctx, c.Args[0])
			},
		),
	)
	return cmd
}
