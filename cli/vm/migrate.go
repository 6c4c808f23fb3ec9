package vm

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) migrate() *cobra.Command {
	var to string
	var restart bool
	var p patience
	cmd := daemon.Operation(s.Session, verb.Verb{
		Use: "migrate VM", Short: "Move a VM that is stopped to another host of the fleet",
		Long: `Move a VM that is stopped to another host of the fleet, with its disk, its snapshots and its identity; without --to, to
the host with most room. With --restart, a VM that runs is shut down, moved, and started. Backups stay at this host.`,
		Example: "  mainstay vm migrate web\n  mainstay vm migrate web --to host-2 --restart\n" +
			"  mainstay vm migrate web --node host-1 --to host-2",
	}, daemon.OfVM(func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		stop, err := p.body(c)
		if err != nil {
			return nil, err
		}
		return c.API.MigrateVM(ctx, id, nil, hypervisorapi.MigrateSpec{
			Node: verb.Given(c, "to", to), Restart: verb.Given(c, "restart", restart), GraceSeconds: stop.GraceSeconds,
		})
	}), func(c *daemon.Call, _ hypervisorapi.Operation) string {
		if to == "" {
			return fmt.Sprintf("%s has moved; 'mainstay fleet vm list' shows where it is.", c.Args[0])
		}
		return fmt.Sprintf("%s is at %s.", c.Args[0], to)
	})
	cmd.Flags().StringVar(&to, "to", "", "the host that it moves to")
	cmd.Flags().BoolVar(&restart, "restart", false, "shut down a VM that runs, and start it there")
	cmd.Flags().DurationVar(&p.grace, "grace", 30*time.Second, "how long the guest may take to shut down")
	return cmd
}

func (s commands) takeBack() *cobra.Command {
	var lost bool
	cmd := s.verb(verb.Verb{
		Use: "take-back VM", Short: "Keep a VM that was handed over to a host that does not answer",
		Long: `Keep a VM that was handed over to a host that does not confirm that it has it. The host is asked first; if it has
the VM, the VM is removed here. With --host-is-lost it is not asked: use that only if it never comes back, since the VM
would be at both.`,
		Example: "  mainstay vm take-back web\n  mainstay vm take-back web --host-is-lost",
	}, "Taking back %s", "%s stays at this host.", func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		return c.Slow.TakeBackVM(ctx, id, hypervisorapi.TakeBack{Lost: verb.Given(c, "host-is-lost", lost)})
	})
	cmd.Flags().BoolVar(&lost, "host-is-lost", false, "do not ask the other host, which never comes back")
	return cmd
}

func (s commands) migrations() *cobra.Command {
	cmd := verb.Group("migration", "VMs that are on their way to this host: list, abort",
		"  mainstay vm migration list\n  mainstay vm migration abort MIGRATION", "migrations")
	cmd.AddCommand(
		verb.List(s.Session, verb.Verb{
			Use: "list", Short: "List the VMs that are on their way to this host, oldest first",
			Example: "  mainstay vm migration list\n  mainstay vm migration list --node host-2",
		}, output.Columns[hypervisorapi.Migration]{
			Heads: []string{"ID", "VM", "TENANT", "FROM", "STATE", "BEGAN"},
			Row: func(v hypervisorapi.Migration) []any {
				return []any{v.Id, v.Name, v.Tenant, v.Node, v.State, v.CreatedAt}
			},
		}, func(ctx context.Context, c *daemon.Call, _ verb.Page) (*http.Response, error) {
			return c.API.ListMigrations(ctx)
		}),
		s.Remove(verb.Verb{
			Use: "abort MIGRATION", Short: "Abort a migration to this host; the VM stays where it was",
			Example: "  mainstay vm migration abort MIGRATION",
		}, "Abort the migration %s?", "Aborted the migration %s.",
			func(ctx context.Context, c *daemon.Call) (*http.Response, error) {
				return c.Slow.AbortMigration(ctx, c.Args[0])
			}),
	)
	return cmd
}
