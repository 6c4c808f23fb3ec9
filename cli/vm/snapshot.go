package vm

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) snapshots() *cobra.Command {
	cmd := verb.Group(
		"snapshot", "Snapshots of a VM's disk, or of the disk and memory: create, list, revert, delete",
		"  mainstay vm snapshot create web before-upgrade\n  mainstay vm snapshot revert web before-upgrade",
		"snapshots",
	)
	cmd.AddCommand(s.snapshotCreate(), s.snapshotList(), s.snapshotRevert(), s.snapshotDelete())
	return cmd
}

func (s commands) snapshotCreate() *cobra.Command {
	var full bool
	var description string
	cmd := s.Change(verb.Verb{
		Use:     "create VM NAME",
		Short:   "Keep a VM's disk as it is now, and with --full its memory and devices too",
		Example: "  mainstay vm snapshot create web before-upgrade\n  mainstay vm snapshot create web warm --full --description 'caches filled'",
	}, "Made the snapshot %s.", daemon.OfVM(func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
		spec := hypervisorapi.SnapshotSpec{Name: c.Args[1], Description: verb.Given(c, "description", description)}
		if full {
			spec.Kind = new(hypervisorapi.SnapshotKindFull)
		}
		return c.Slow.CreateSnapshot(ctx, id, spec)
	}))
	cmd.Flags().BoolVar(&full, "full", false, "keep the memory and the devices too; takes a VM that runs")
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	return cmd
}

func (s commands) snapshotList() *cobra.Command {
	return verb.List(
		s.Session,
		verb.Verb{
			Use:     "list VM",
			Short:   "List a VM's snapshots, oldest first",
			Example: "  mainstay vm snapshot list web",
		},
		output.Columns[hypervisorapi.Snapshot]{
			Heads: []string{"NAME", "KIND", "MEMORY", "CREATED", "DESCRIPTION"},
			Row: func(v hypervisorapi.Snapshot) []any {
				return []any{v.Name, v.Kind, verb.Bytes(v.MemoryBytes), v.CreatedAt, v.Description}
			},
		},
		func(ctx context.Context, c *daemon.Call, _ verb.Page) (*http.Response, error) {
			id, err := daemon.VMID(ctx, c, c.Args[0])
			if err != nil {
				return nil, err
			}
			return c.API.ListSnapshots(ctx, id)
		},
	)
}

func (s commands) snapshotRevert() *cobra.Command {
	var yes bool
	cmd := s.Command(verb.Verb{
		Use:     "revert VM NAME",
		Short:   "Put a VM back to a snapshot",
		Long:    "Put a VM back to a snapshot: what it did since is lost. A disk snapshot takes a VM that is stopped; a full one leaves it running.",
		Example: "  mainstay vm snapshot revert web before-upgrade\n  mainstay vm snapshot revert web warm --yes",
	}, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		if err := c.Confirm(
			"Put "+c.Args[0]+" back to the snapshot "+c.Args[1]+"? What it did since is lost.", yes,
		); err != nil {
			return err
		}
		a, err := c.Send(c.Slow.RevertSnapshot(ctx, id, c.Args[1], hypervisorapi.Nothing{}))
		vm, err := daemon.Decode[hypervisorapi.VM](a, err)
		if err != nil {
			return err
		}
		return c.Done(a, "%s is as in the snapshot %s; it is %s.", c.Args[0], c.Args[1], vm.State)
	})
	verb.YesFlag(cmd, &yes)
	return cmd
}

func (s commands) snapshotDelete() *cobra.Command {
	return s.Remove(
		verb.Verb{
			Use:     "delete VM NAME",
			Short:   "Remove a snapshot",
			Example: "  mainstay vm snapshot delete web before-upgrade --yes",
		},
		"Delete the snapshot %s?",
		"Deleted the snapshot %s.",
		daemon.OfVM(func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
			return c.Slow.DeleteSnapshot(ctx, id, c.Args[1])
		}),
	)
}
