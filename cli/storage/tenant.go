package storage

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) tenants() *cobra.Command {
	cmd := verb.Group("tenant", "Tenants, their quotas, and what they use of them",
		"  mainstay storage tenant list\n  mainstay storage tenant set acme --volumes 100 --capacity 10TiB", "tenants")
	cmd.AddCommand(s.tenantList(), s.tenantShow(), s.tenantSet(), s.tenantDelete())
	return cmd
}

func (s commands) tenantList() *cobra.Command {
	count := func(n int64) string { return fmt.Sprint(n) }
	return verb.List(s.session, verb.Verb{
		Use: "list", Short: "List tenants by name", Example: "  mainstay storage tenant list",
	}, output.Columns[storageapi.Tenant]{
		Heads: []string{"NAME", "VOLUMES", "CAPACITY", "SNAPSHOTS", "CREATED", "DESCRIPTION"},
		Row: func(t storageapi.Tenant) []any {
			u, q := t.Used, t.Quota
			return []any{
				t.Name, of(u.Volumes, q.Volumes, count), of(u.Bytes, q.Bytes, verb.Bytes), of(u.Snapshots, q.Snapshots, count),
				t.CreatedAt, t.Description,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListTenants(ctx, &storageapi.ListTenantsParams{Limit: p.Limit, Cursor: p.Cursor})
	})
}

// of returns what is used of a limit.
func of(used int64, limit *int64, text func(int64) string) string {
	if limit == nil {
		return text(used)
	}
	return text(used) + " of " + text(*limit)
}

func (s commands) tenantShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show TENANT", Short: "Show one tenant", Example: "  mainstay storage tenant show acme",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetTenant(ctx, c.Args[0]) })
}

func (s commands) tenantSet() *cobra.Command {
	var description string
	var volumes, snapshots int64
	capacity := input.Bytes()
	cmd := s.Change(verb.Verb{
		Use: "set TENANT", Short: "Add a tenant, or replace its description and quota",
		Long: `Add a tenant, or replace its description and its whole quota: without a flag there is no limit. A quota below what is used
removes nothing; it only refuses more.`,
		Example: "  mainstay storage tenant set acme --description 'Acme Inc.'\n" +
			"  mainstay storage tenant set acme --volumes 100 --capacity 10TiB --snapshots 500",
	}, "The tenant %s is set.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.PutTenant(ctx, c.Args[0], storageapi.TenantSpec{
			Description: verb.Given(c, "description", description),
			Quota: &storageapi.Quota{
				Volumes: verb.Given(c, "volumes", volumes), Bytes: verb.Given(c, "capacity", int64(capacity.Count)),
				Snapshots: verb.Given(c, "snapshots", snapshots),
			},
		})
	})
	f := cmd.Flags()
	f.StringVar(&description, "description", "", "what it is")
	f.Int64Var(&volumes, "volumes", 0, "most volumes")
	f.Var(&capacity, "capacity", "most bytes of all volumes, by their sizes: 500G, 10TiB")
	f.Int64Var(&snapshots, "snapshots", 0, "most snapshots")
	return cmd
}

func (s commands) tenantDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete TENANT", Short: "Remove a tenant that has nothing", Example: "  mainstay storage tenant delete acme --yes",
	}, "Delete the tenant %s?", "Deleted the tenant %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.DeleteTenant(ctx, c.Args[0])
	})
}
