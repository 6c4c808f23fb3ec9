package storage

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) policies() *cobra.Command {
	cmd := verb.Group("policy", "Policies, which say in which backend and pool volumes are made, and of which kind",
		"  mainstay storage policy list\n  mainstay storage policy set exported --backend exports --kind filesystem", "policies")
	cmd.AddCommand(s.policyList(), s.policyShow(), s.policySet(), s.policyDelete())
	return cmd
}

func (s commands) policyList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list", Short: "List policies by name", Example: "  mainstay storage policy list",
	}, output.Columns[storageapi.Policy]{
		Heads: []string{"NAME", "BACKEND", "POOL", "KIND", "CREATED", "DESCRIPTION"},
		Row: func(p storageapi.Policy) []any {
			return []any{p.Name, output.Ref{Kind: "BACKEND", ID: p.BackendId}, p.Pool, p.Kind, p.CreatedAt, p.Description}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListPolicies(ctx, &storageapi.ListPoliciesParams{Limit: p.Limit, Cursor: p.Cursor})
	})
}

func (s commands) policyShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show POLICY", Short: "Show one policy", Example: "  mainstay storage policy show default",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetPolicy(ctx, c.Args[0]) })
}

func (s commands) policySet() *cobra.Command {
	var backend, pool, kind, description string
	cmd := s.Change(verb.Verb{
		Use: "set POLICY", Short: "Add a policy, or replace it",
		Long: "Add a policy, or replace it with all that it says. Volumes that were made with it stay as they are.",
		Example: "  mainstay storage policy set exported --backend exports --kind filesystem\n" +
			"  mainstay storage policy set default --backend local --kind block --description 'Block volumes'",
		Required: []string{"backend", "kind"},
	}, "The policy %s is set.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.PutPolicy(ctx, c.Args[0], storageapi.PolicySpec{
			BackendId: backend, Kind: storageapi.VolumeKind(kind), Pool: verb.Given(c, "pool", pool),
			Description: verb.Given(c, "description", description),
		})
	})
	f := cmd.Flags()
	f.StringVar(&backend, "backend", "", "where volumes are made")
	f.StringVar(&kind, "kind", "", "what they are: block, filesystem or object")
	f.StringVar(&pool, "pool", "", "pool that they are in; default: the backend chooses")
	f.StringVar(&description, "description", "", "what it is for")
	return cmd
}

func (s commands) policyDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete POLICY", Short: "Remove a policy; volumes that were made with it stay",
		Example: "  mainstay storage policy delete exported --yes",
	}, "Delete the policy %s?", "Deleted the policy %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.DeletePolicy(ctx, c.Args[0])
	})
}
