package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) sites() *cobra.Command {
	cmd := verb.Group(
		"site", "Sites: enroll, list, label, update, revoke",
		"  mainstay edge site list\n  mainstay edge site enroll plant-7", "sites",
	)
	cmd.AddCommand(
		s.siteList(),
		s.show(
			"site", "SITE", "site",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetSite(ctx, c.Args[0]) },
		),
		s.siteEnroll(),
		s.siteLabel(),
		s.siteUpdate(),
		verb.Old("rename SITE NAME", s.siteRename()),
		s.siteRevoke(),
		s.delete("site", "SITE", "site", " with its devices", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.DeleteSite(ctx, c.Args[0])
		}),
	)
	return cmd
}

func (s *session) siteList() *cobra.Command {
	var status, search, sort string
	cmd := verb.List(s.Session, verb.Verb{
		Use: "list", Short: "List sites, oldest first",
		Example: "  mainstay edge site list --status offline --sort -last_seen_at\n  mainstay edge site list --search zone=north\n  mainstay edge site list --all -o json",
	}, output.Columns[edgeapi.Site]{
		Heads: []string{"ID", "NAME", "STATUS", "LAST SEEN", "VERSION", "LABELS"},
		Row: func(v edgeapi.Site) []any {
			return []any{v.Id, v.Name, v.Status, v.LastSeenAt, v.Version, v.Labels}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListSites(ctx, &edgeapi.ListSitesParams{
			Limit:  p.Limit,
			Cursor: p.Cursor,
			Status: verb.Given(c, "status", edgeapi.SiteStatus(status)),
			Q:      verb.Given(c, "search", search),
			Sort:   verb.Given(c, "sort", edgeapi.ListSitesParamsSort(sort)),
		})
	})
	f := cmd.Flags()
	f.StringVar(&status, "status", "", "only sites that are online, offline or revoked")
	f.StringVar(&search, "search", "", "only sites with this text in the name, the ID or a label (key=value)")
	f.StringVar(&sort, "sort", "", "id, name, status or last_seen_at; a dash before it means descending")
	return cmd
}

func (s *session) siteUpdate() *cobra.Command {
	var name string
	cmd := s.Object(verb.Verb{
		Use: "update SITE", Short: "Change a site's name", Required: []string{"name"},
		Example: "  mainstay edge site update plant-7 --name plant-8",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.PatchSite(ctx, c.Args[0], edgeapi.SitePatch{Name: &name})
	})
	cmd.Flags().StringVar(&name, "name", "", "another name (required)")
	return cmd
}

// siteRename is what update was before.
func (s *session) siteRename() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "rename SITE NAME", Short: "Give a site another name",
		Example: "  mainstay edge site update plant-7 --name plant-8",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.PatchSite(ctx, c.Args[0], edgeapi.SitePatch{Name: &c.Args[1]})
	})
}

func (s *session) siteRevoke() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "revoke SITE", Short: "Shut a site out for good",
		Long:    "Shut a site out for good: its token stops at once and its certificates enter the revocation list.",
		Example: "  mainstay edge site revoke plant-7\n  mainstay edge site revoke plant-7 --yes",
	}, "Revoke site %s for good?", "Revoked site %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.RevokeSite(ctx, c.Args[0])
	})
}
