package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) policies() *cobra.Command {
	cmd := verb.Group(
		"policy", "Policy packs: which images sites may run", "  mainstay edge policy list", "policies", "policy-pack",
	)
	cmd.AddCommand(
		s.policyList(),
		s.show(
			"policy", "POLICY", "policy pack",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetPolicyPack(ctx, c.Args[0]) },
		),
		s.policyCreate(),
		s.policyUpdate(),
		s.policyCheck(),
		s.delete("policy", "POLICY", "policy pack", "", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.DeletePolicyPack(ctx, c.Args[0])
		}),
	)
	return cmd
}

func policyColumns() output.Columns[edgeapi.PolicyPack] {
	return output.Columns[edgeapi.PolicyPack]{
		Heads: []string{"ID", "NAME", "SITE", "ENABLED", "VERSION", "ALLOWED IMAGES"},
		Row: func(v edgeapi.PolicyPack) []any {
			return []any{v.Id, v.Name, siteRef(v.SiteId), v.Enabled, v.Version, v.AllowedImages}
		},
	}
}

func (s *session) policyList() *cobra.Command {
	return verb.List(s.Session, verb.Verb{Use: "list", Short: "List policy packs", Example: "  mainstay edge policy list"},
		policyColumns(), func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListPolicyPacks(ctx, &edgeapi.ListPolicyPacksParams{Limit: p.Limit, Cursor: p.Cursor})
		})
}

func (s *session) policyCreate() *cobra.Command {
	var site string
	var images []string
	var enabled bool
	cmd := s.Object(verb.Verb{
		Use:   "create NAME",
		Short: "Allow images, for one site or for the whole fleet",
		Example: "  mainstay edge policy create base --image 'registry.example.com/*' --image 'docker.io/library/nginx:*'\n" +
			"  mainstay edge policy create trial --site plant-7 --image '*' --enabled=false",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.CreatePolicyPack(ctx, edgeapi.PolicyPackInput{Name: c.Args[0], SiteId: verb.Given(c, "site", site),
			AllowedImages: verb.Given(c, "image", images), Enabled: verb.Given(c, "enabled", enabled)})
	})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "site that it binds; the whole fleet when absent")
	f.StringArrayVar(&images, "image", nil, "image pattern, in which * is any run of characters; may be repeated")
	f.BoolVar(&enabled, "enabled", true, "whether it counts")
	return cmd
}

func (s *session) policyCheck() *cobra.Command {
	var site string
	cmd := s.Object(verb.Verb{
		Use: "check IMAGE", Short: "Try an image against the policy packs",
		Example: "  mainstay edge policy check ghcr.io/acme/app:1.2 --site plant-7",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.CheckImage(ctx, edgeapi.ImageCheck{Image: c.Args[0], SiteId: verb.Given(c, "site", site)})
	})
	cmd.Flags().StringVar(
		&site, "site", "", "site that would run it; without one, only packs for the whole fleet apply",
	)
	return cmd
}

func (s *session) policyUpdate() *cobra.Command {
	var name string
	var images []string
	var enabled bool
	cmd := s.Object(verb.Verb{
		Use:     "update POLICY",
		Short:   "Change a policy pack; what no flag names stays",
		Example: "  mainstay edge policy update base --image 'registry.example.com/*'\n  mainstay edge policy update base --enabled=false",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.PatchPolicyPack(ctx, c.Args[0], edgeapi.PolicyPackPatch{Name: verb.Given(c, "name", name),
			AllowedImages: verb.Given(c, "image", images), Enabled: verb.Given(c, "enabled", enabled)})
	})
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "another name")
	f.StringArrayVar(&images, "image", nil, "image pattern; may be repeated, replaces all of them")
	f.BoolVar(&enabled, "enabled", true, "whether it counts")
	return cmd
}
