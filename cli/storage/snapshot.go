package storage

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) snapshots() *cobra.Command {
	cmd := verb.Group("snapshot", "Snapshots of volumes: create, list, clone, restore, delete",
		"  mainstay storage snapshot create data --name before\n  mainstay storage snapshot clone before data-2", "snapshots")
	cmd.AddCommand(
		s.snapshotList(), s.snapshotShow(), s.snapshotCreate(), s.snapshotClone(), s.snapshotRestore(), s.snapshotDelete(),
	)
	return cmd
}

var snapshotColumns = output.Columns[storageapi.Snapshot]{
	Heads: []string{
		"ID", "NAME", "VOLUME", "STATE", "SIZE", "USED", "CONSISTENCY", "CLONES", "TENANT", "CREATED", "LAST ERROR",
	},
	Row: func(s storageapi.Snapshot) []any {
		return []any{
			s.Id, s.Name, output.Ref{Kind: "VOLUME", ID: s.VolumeId}, s.State, verb.Bytes(s.SizeBytes), size(s.UsedBytes),
			s.Consistency, s.Dependents, s.TenantId, s.CreatedAt, s.LastError,
		}
	},
}

func (s commands) snapshotList() *cobra.Command {
	var volume, tenant, cluster, state string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List snapshots, newest first",
		Long: "List snapshots, newest first. Those of a volume that is deleted are listed by its ID.",
		Example: "  mainstay storage snapshot list\n  mainstay storage snapshot list --volume data --state ready\n" +
			"  mainstay storage snapshot list --tenant acme --all",
	}, snapshotColumns, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListSnapshots(ctx, &storageapi.ListSnapshotsParams{
			Limit: p.Limit, Cursor: p.Cursor, VolumeId: verb.Given(c, "volume", volume), Tenant: verb.Given(c, "tenant", tenant),
			Cluster: verb.Given(c, "cluster", cluster), State: verb.Given(c, "state", storageapi.SnapshotState(state)),
		})
	})
	f := cmd.Flags()
	f.StringVar(&volume, "volume", "", "only those of this volume")
	f.StringVar(&tenant, "tenant", "", "only those of this tenant")
	f.StringVar(&cluster, "cluster", "", "only those in the cluster with this id, or of this backend")
	f.StringVar(&state, "state", "", "only those in this state: creating, ready, deleting or error")
	return cmd
}

func (s commands) snapshotShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show SNAPSHOT", Short: "Show one snapshot", Example: "  mainstay storage snapshot show before",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetSnapshot(ctx, c.Args[0]) })
}

func (s commands) snapshotCreate() *cobra.Command {
	var key func() *string
	var name string
	cmd := s.Command(verb.Verb{
		Use: "create VOLUME", Short: "Take a snapshot of a volume",
		Long: `Take a snapshot of a volume. 'mainstay storage snapshot show' says under CONSISTENCY whether it is of one moment (crash)
or may mix moments if the volume was written to meanwhile (none).`,
		Example: "  mainstay storage snapshot create data --name before\n  mainstay storage snapshot create data --no-wait",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.CreateSnapshot(ctx, c.Args[0], &storageapi.CreateSnapshotParams{IdempotencyKey: key()},
			storageapi.SnapshotSpec{Name: verb.Given(c, "name", name)})
		return await(ctx, c, "Taking a snapshot of "+c.Typed[0], r, err, func(b begun) error {
			a, err := c.Send(c.API.GetSnapshot(ctx, b.Resource.SnapshotID))
			made, err := decode[storageapi.Snapshot](a, err)
			if err != nil {
				return err
			}
			return c.Done(a, "Took the snapshot %s of %s.", made.Name, c.Typed[0])
		})
	})
	cmd.Flags().StringVar(&name, "name", "", "name, unique for the volume; default: made from the time")
	key = jobFlags(cmd)
	return cmd
}

func (s commands) snapshotClone() *cobra.Command {
	var key func() *string
	capacity := input.Bytes()
	cmd := s.Command(verb.Verb{
		Use: "clone SNAPSHOT NAME", Short: "Make a volume of a snapshot",
		Example: "  mainstay storage snapshot clone before data-2\n  mainstay storage snapshot clone before data-3 --size 20GiB",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.CloneSnapshot(ctx, c.Args[0], &storageapi.CloneSnapshotParams{IdempotencyKey: key()},
			storageapi.CloneSpec{Name: c.Args[1], SizeBytes: verb.Given(c, "size", int64(capacity.Count))})
		return await(ctx, c, "Cloning the snapshot "+c.Typed[0], r, err, func(b begun) error {
			return volumeDone(ctx, c, b.Resource.VolumeID, "Made the volume %s of %s.")
		})
	})
	cmd.Flags().Var(&capacity, "size", "size, at least that of the snapshot, which it is by default: 500M, 20GiB")
	key = jobFlags(cmd)
	return cmd
}

func (s commands) snapshotRestore() *cobra.Command {
	var key func() *string
	var name string
	var inPlace, yes bool
	capacity := input.Bytes()
	cmd := s.Command(verb.Verb{
		Use: "restore SNAPSHOT", Short: "Bring back what a snapshot holds, as a new volume or in place",
		Long: `Bring back what a snapshot holds, as a new volume. The volume that the snapshot is of stays as it is.

With --in-place, that volume is put back instead, and what was written to it since is lost. This takes a backend that
can do it, such as Ceph, an admin, and that no client has the volume open.`,
		Example: "  mainstay storage snapshot restore before\n" +
			"  mainstay storage snapshot restore before --name data-of-yesterday\n" +
			"  mainstay storage snapshot restore before --in-place --yes",
	}, func(ctx context.Context, c *call) error {
		spec := storageapi.RestoreSpec{
			Name: verb.Given(c, "name", name), SizeBytes: verb.Given(c, "size", int64(capacity.Count)),
		}
		if inPlace {
			if err := c.Confirm("Put the volume back to "+c.Typed[0]+", and lose what was written since?", yes); err != nil {
				return err
			}
			spec.InPlace, spec.Confirm = new(true), new(true)
		}
		r, err := c.API.RestoreSnapshot(ctx, c.Args[0], &storageapi.RestoreSnapshotParams{IdempotencyKey: key()}, spec)
		return await(ctx, c, "Restoring the snapshot "+c.Typed[0], r, err, func(b begun) error {
			return volumeDone(ctx, c, b.Resource.VolumeID, "Restored to the volume %s of %s.")
		})
	})
	cmd.Flags().StringVar(&name, "name", "", "name of the new volume; default: restore-, the volume's name and the time")
	cmd.Flags().Var(&capacity, "size", "size, at least that of the snapshot, which it is by default: 500M, 20GiB")
	cmd.Flags().BoolVar(&inPlace, "in-place", false, "put the snapshot's own volume back")
	cmd.MarkFlagsMutuallyExclusive("in-place", "name")
	cmd.MarkFlagsMutuallyExclusive("in-place", "size")
	verb.YesFlag(cmd, &yes)
	key = jobFlags(cmd)
	return cmd
}

func (s commands) snapshotDelete() *cobra.Command {
	var key func() *string
	var force bool
	cmd := s.Confirmed(verb.Verb{
		Use: "delete SNAPSHOT", Short: "Remove a snapshot",
		Long: `Remove a snapshot. One that volumes were made of is removed only with --force, which takes an admin; the volumes stay as
they are.`,
		Example: "  mainstay storage snapshot delete before --yes\n  mainstay storage snapshot delete before --force --yes",
	}, "Delete the snapshot %s?", func(ctx context.Context, c *call) error {
		r, err := c.API.DeleteSnapshot(ctx, c.Args[0], &storageapi.DeleteSnapshotParams{
			IdempotencyKey: key(), Force: verb.Given(c, "force", force),
		})
		return await(ctx, c, "Deleting the snapshot "+c.Typed[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "Deleted the snapshot %s.")
		})
	})
	cmd.Flags().BoolVar(&force, "force", false, "also one that volumes were made of")
	key = jobFlags(cmd)
	return cmd
}
