package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) enrollmentTokens() *cobra.Command {
	cmd := verb.Group(
		"enrollment-token", "Tokens that enroll a few sites for a short time",
		"  mainstay edge enrollment-token create 'plants in the north' --uses 20", "enrollment-tokens",
	)
	cmd.AddCommand(
		s.enrollmentTokenList(),
		s.enrollmentTokenCreate(),
		s.delete(
			"enrollment-token",
			"TOKEN",
			"enrollment token",
			"",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.API.DeleteEnrollmentToken(ctx, c.Args[0])
			},
		),
	)
	return cmd
}

func (s *session) enrollmentTokenList() *cobra.Command {
	return verb.List(
		s.Session,
		verb.Verb{
			Use:     "list",
			Short:   "List enrollment tokens that have not expired",
			Example: "  mainstay edge enrollment-token list",
		},
		output.Columns[edgeapi.EnrollmentToken]{
			Heads: []string{"ID", "NAME", "ORG", "USES", "MAX USES", "EXPIRES"},
			Row: func(v edgeapi.EnrollmentToken) []any {
				return []any{v.Id, v.Name, orgRef(v.OrgId), v.Uses, v.MaxUses, v.ExpiresAt}
			},
		},
		func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListEnrollmentTokens(
				ctx, &edgeapi.ListEnrollmentTokensParams{Limit: p.Limit, Cursor: p.Cursor},
			)
		},
	)
}

func (s *session) enrollmentTokenCreate() *cobra.Command {
	var org string
	var uses, ttl int64
	cmd := s.Object(verb.Verb{
		Use:     "create NAME",
		Short:   "Make a token; it is shown this once",
		Example: "  mainstay edge enrollment-token create plant-7\n  mainstay edge enrollment-token create 'plants in the north' --uses 20 --ttl-seconds 86400",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.CreateEnrollmentToken(ctx, edgeapi.EnrollmentTokenInput{
			Name:       c.Args[0],
			OrgId:      verb.Given(c, "org", org),
			MaxUses:    verb.Given(c, "uses", uses),
			TtlSeconds: verb.Given(c, "ttl-seconds", ttl),
		})
	})
	f := cmd.Flags()
	f.StringVar(&org, "org", "", "org that the sites will belong to")
	f.Int64Var(&uses, "uses", 1, "how many sites it may enroll")
	f.Int64Var(&ttl, "ttl-seconds", 3600, "seconds until it expires")
	return cmd
}
