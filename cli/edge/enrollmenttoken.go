package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
)

func (s *session) enrollmentTokens() *cobra.Command {
	cmd := group(
		"enrollment-token", "Tokens that enroll a few sites for a short time",
		"  mainstay edge enrollment-token create 'plants in the north' --uses 20", "enrollment-tokens",
	)
	cmd.AddCommand(
		s.enrollmentTokenList(),
		s.enrollmentTokenCreate(),
		s.delete(
			"enrollment-token",
			"enrollment token",
			"",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.api.DeleteEnrollmentToken(ctx, c.args[0])
			},
		),
	)
	return cmd
}

func (s *session) enrollmentTokenList() *cobra.Command {
	return list(
		s,
		verb{
			use:     "list",
			short:   "List enrollment tokens that have not expired",
			example: "  mainstay edge enrollment-token list",
		},
		output.Columns[edgeapi.EnrollmentToken]{
			Heads: []string{"ID", "NAME", "ORG", "USES", "MAX USES", "EXPIRES"},
			Row: func(v edgeapi.EnrollmentToken) []any {
				return []any{v.Id, v.Name, v.OrgId, v.Uses, v.MaxUses, v.ExpiresAt}
			},
		},
		func(ctx context.Context, c *call, p page) (*http.Response, error) {
			return c.api.ListEnrollmentTokens(
				ctx, &edgeapi.ListEnrollmentTokensParams{Limit: p.limit, Cursor: p.cursor},
			)
		},
	)
}

func (s *session) enrollmentTokenCreate() *cobra.Command {
	var org string
	var uses, ttl int64
	cmd := s.object(verb{
		use:     "create NAME",
		short:   "Make a token; it is shown this once",
		example: "  mainstay edge enrollment-token create plant-7\n  mainstay edge enrollment-token create 'plants in the north' --uses 20 --ttl-seconds 86400",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.CreateEnrollmentToken(ctx, edgeapi.EnrollmentTokenInput{
			Name:       c.args[0],
			OrgId:      given(c, "org", org),
			MaxUses:    given(c, "uses", uses),
			TtlSeconds: given(c, "ttl-seconds", ttl),
		})
	})
	f := cmd.Flags()
	f.StringVar(&org, "org", "", "org that the sites will belong to")
	f.Int64Var(&uses, "uses", 1, "how many sites it may enroll")
	f.Int64Var(&ttl, "ttl-seconds", 3600, "seconds until it expires")
	return cmd
}
