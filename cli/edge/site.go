package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
)

func (s *session) sites() *cobra.Command {
	cmd := group(
		"site", "Sites: enroll, list, label, revoke",
		"  mainstay edge site list\n  mainstay edge site enroll plant-7", "sites",
	)
	cmd.AddCommand(
		s.siteList(),
		s.get(
			"site", "site",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.api.GetSite(ctx, c.args[0]) },
		),
		s.siteEnroll(),
		s.siteLabel(),
		s.siteRename(),
		s.siteRevoke(),
		s.delete("site", "site", " with its devices", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.api.DeleteSite(ctx, c.args[0])
		}),
	)
	return cmd
}

func (s *session) siteList() *cobra.Command {
	var status string
	cmd := list(s, verb{
		use: "list", short: "List sites, oldest first",
		example: "  mainstay edge site list --status offline\n  mainstay edge site list --all -o json",
	}, output.Columns[edgeapi.Site]{
		Heads: []string{"ID", "NAME", "STATUS", "LAST SEEN", "VERSION", "LABELS"},
		Row: func(v edgeapi.Site) []any {
			return []any{v.Id, v.Name, v.Status, v.LastSeenAt, v.Version, v.Labels}
		},
	}, func(ctx context.Context, c *call, p page) (*http.Response, error) {
		return c.api.ListSites(ctx, &edgeapi.ListSitesParams{
			Limit:  p.limit,
			Cursor: p.cursor,
			Status: given(c, "status", edgeapi.SiteStatus(status)),
		})
	})
	cmd.Flags().StringVar(&status, "status", "", "only sites that are online, offline or revoked")
	return cmd
}

func (s *session) siteRename() *cobra.Command {
	return s.object(verb{
		use: "rename ID NAME", short: "Give a site another name",
		example: "  mainstay edge site rename ID plant-8",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.PatchSite(ctx, c.args[0], edgeapi.SitePatch{Name: &c.args[1]})
	})
}

func (s *session) siteRevoke() *cobra.Command {
	return s.remove(verb{
		use: "revoke ID", short: "Shut a site out for good",
		long:    "Shut a site out for good: its token stops at once and its certificates enter the revocation list.",
		example: "  mainstay edge site revoke ID\n  mainstay edge site revoke ID --yes",
	}, "Revoke site %s for good?", "Revoked site", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.RevokeSite(ctx, c.args[0])
	})
}
