package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
)

func (s *session) policies() *cobra.Command {
	cmd := group(
		"policy", "Policy packs: which images sites may run", "  mainstay edge policy list", "policies", "policy-pack",
	)
	cmd.AddCommand(
		s.policyList(),
		s.get(
			"policy", "policy pack",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.api.GetPolicyPack(ctx, c.args[0]) },
		),
		s.policyCreate(),
		s.policyUpdate(),
		s.policyCheck(),
		s.delete("policy", "policy pack", "", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.api.DeletePolicyPack(ctx, c.args[0])
		}),
	)
	return cmd
}

func policyColumns() output.Columns[edgeapi.PolicyPack] {
	return output.Columns[edgeapi.PolicyPack]{
		Heads: []string{"ID", "NAME", "SITE", "ENABLED", "VERSION", "ALLOWED IMAGES"},
		Row: func(v edgeapi.PolicyPack) []any {
			return []any{v.Id, v.Name, v.SiteId, v.Enabled, v.Version, v.AllowedImages}
		},
	}
}

func (s *session) policyList() *cobra.Command {
	return list(s, verb{use: "list", short: "List policy packs", example: "  mainstay edge policy list"},
		policyColumns(), func(ctx context.Context, c *call, p page) (*http.Response, error) {
			return c.api.ListPolicyPacks(ctx, &edgeapi.ListPolicyPacksParams{Limit: p.limit, Cursor: p.cursor})
		})
}

func (s *session) policyCreate() *cobra.Command {
	var site string
	var images []string
	var enabled bool
	cmd := s.object(verb{
		use:   "create NAME",
		short: "Allow images, for one site or for the whole fleet",
		example: "  mainstay edge policy create base --image 'registry.example.com/*' --image 'docker.io/library/nginx:*'\n" +
			"  mainstay edge policy create trial --site ID --image '*' --enabled=false",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.CreatePolicyPack(ctx, edgeapi.PolicyPackInput{Name: c.args[0], SiteId: given(c, "site", site),
			AllowedImages: given(c, "image", images), Enabled: given(c, "enabled", enabled)})
	})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "site that it binds; the whole fleet when absent")
	f.StringArrayVar(&images, "image", nil, "image pattern, in which * is any run of characters; may be repeated")
	f.BoolVar(&enabled, "enabled", true, "whether it counts")
	return cmd
}

func (s *session) policyCheck() *cobra.Command {
	var site string
	cmd := s.object(verb{
		use: "check IMAGE", short: "Try an image against the policy packs",
		example: "  mainstay edge policy check ghcr.io/acme/app:1.2 --site ID",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.CheckImage(ctx, edgeapi.ImageCheck{Image: c.args[0], SiteId: given(c, "site", site)})
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
	cmd := s.object(verb{
		use:     "update ID",
		short:   "Change a policy pack; what no flag names stays",
		example: "  mainstay edge policy update ID --image 'registry.example.com/*'\n  mainstay edge policy update ID --enabled=false",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.PatchPolicyPack(ctx, c.args[0], edgeapi.PolicyPackPatch{Name: given(c, "name", name),
			AllowedImages: given(c, "image", images), Enabled: given(c, "enabled", enabled)})
	})
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "another name")
	f.StringArrayVar(&images, "image", nil, "image pattern; may be repeated, replaces all of them")
	f.BoolVar(&enabled, "enabled", true, "whether it counts")
	return cmd
}
