package vms

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) tenants() *cobra.Command {
	cmd := verb.Group("tenant", "Tenants, their quotas, and what they use of them",
		"  mainstay vms tenant list\n  mainstay vms tenant set acme --cpus 32 --memory 65536", "tenants")
	cmd.AddCommand(s.tenantList(), s.tenantShow(), s.tenantSet(), s.tenantDelete())
	return cmd
}

func (s commands) tenantList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list", Short: "List tenants by name", Example: "  mainstay vms tenant list",
	}, output.Columns[vmapi.Tenant]{
		Heads: []string{"NAME", "VMS", "CPUS", "MEMORY (MiB)", "DISK (GiB)", "SNAPSHOTS", "USERS", "DESCRIPTION"},
		Row: func(t vmapi.Tenant) []any {
			u, q := t.Used, t.Quota
			return []any{
				t.Name, of(u.Vms, q.Vms), of(u.Cpus, q.Cpus), of(u.Memory, q.Memory), of(u.Disk, q.Disk),
				of(u.Snapshots, q.Snapshots), u.Users, t.Description,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListTenants(ctx, &vmapi.ListTenantsParams{Limit: p.Limit, Cursor: p.Cursor})
	})
}

// of returns what is used of a limit.
func of(used int, limit *int) string {
	if limit == nil {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%d of %d", used, *limit)
}

func (s commands) tenantShow() *cobra.Command {
	return s.Object(verb.Verb{Use: "show NAME", Short: "Show one tenant", Example: "  mainstay vms tenant show acme"},
		func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetTenant(ctx, c.Args[0]) })
}

func (s commands) tenantSet() *cobra.Command {
	var description string
	var vms, cpus, memory, disk, snapshots int
	var backups int64
	var revive bool
	cmd := s.Change(verb.Verb{
		Use: "set NAME", Short: "Add a tenant, or replace its description and quota",
		Long:    "Add a tenant, or replace its description and its whole quota: without a flag there is no limit.",
		Example: "  mainstay vms tenant set acme --description 'Acme Inc.'\n  mainstay vms tenant set acme --vms 20 --cpus 32 --memory 65536 --disk 1000 --snapshots 50",
	}, "The tenant %s is set.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.PutTenant(ctx, c.Args[0], vmapi.TenantSpec{
			Description: verb.Given(c, "description", description), Revive: verb.Given(c, "revive", revive),
			Quota: &vmapi.Quota{
				Vms: verb.Given(c, "vms", vms), Cpus: verb.Given(c, "cpus", cpus), Memory: verb.Given(c, "memory", memory),
				Disk: verb.Given(c, "disk", disk), Snapshots: verb.Given(c, "snapshots", snapshots),
				BackupBytes: verb.Given(c, "backup-bytes", backups),
			},
		})
	})
	f := cmd.Flags()
	f.StringVar(&description, "description", "", "what it is")
	f.BoolVar(&revive, "revive", false, "bring back a tenant that was deleted, with what is kept of it")
	f.IntVar(&vms, "vms", 0, "most VMs")
	f.IntVar(&cpus, "cpus", 0, "most processors of all VMs")
	f.IntVar(&memory, "memory", 0, "most memory of all VMs, in MiB")
	f.IntVar(&disk, "disk", 0, "most disk of all VMs, in GiB")
	f.IntVar(&snapshots, "snapshots", 0, "most snapshots")
	f.Int64Var(&backups, "backup-bytes", 0, "most bytes of backups in the repository")
	return cmd
}

func (s commands) tenantDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete NAME", Short: "Remove a tenant that has no VMs and no users", Example: "  mainstay vms tenant delete acme --yes",
	}, "Delete the tenant %s?", "Deleted the tenant %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.DeleteTenant(ctx, c.Args[0])
	})
}
