package storage

import (
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) groups() *cobra.Command {
	cmd := verb.Group("group", "Groups of volumes, of which snapshots are taken at the same moment",
		"  mainstay storage group create db data log\n  mainstay storage group snapshot db --name before", "groups")
	cmd.AddCommand(
		s.groupList(), s.groupShow(), s.groupCreate(), s.groupDelete(), s.groupSnapshots(), s.groupSnapshot(),
		s.groupRollback(), s.groupUnsnapshot(),
	)
	return cmd
}

func (s commands) groupList() *cobra.Command {
	var tenant, cluster string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List groups, newest first",
		Example: "  mainstay storage group list\n  mainstay storage group list --tenant acme --cluster prod",
	}, output.Columns[storageapi.VolumeGroup]{
		Heads: []string{"NAME", "VOLUMES", "CLUSTER", "TENANT", "CREATED", "ID"},
		Row: func(g storageapi.VolumeGroup) []any {
			return []any{
				g.Name, len(g.VolumeIds), output.Ref{Kind: "CLUSTER", ID: g.ClusterId}, g.TenantId, g.CreatedAt, g.Id,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListVolumeGroups(ctx, &storageapi.ListVolumeGroupsParams{
			Limit: p.Limit, Cursor: p.Cursor, Tenant: verb.Given(c, "tenant", tenant),
			Cluster: verb.Given(c, "cluster", cluster),
		})
	})
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of this tenant")
	cmd.Flags().StringVar(&cluster, "cluster", "", clusterUsage)
	return cmd
}

func (s commands) groupShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show GROUP", Short: "Show one group", Example: "  mainstay storage group show db",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetVolumeGroup(ctx, c.Args[0])
	})
}

func (s commands) groupCreate() *cobra.Command {
	cmd := s.Command(verb.Verb{
		Use: "create NAME VOLUME...", Short: "Group volumes",
		Long: `Group volumes. They are in one Ceph cluster, belong to one tenant, and are in no other group. A volume in a group is not
deleted.`,
		Example: "  mainstay storage group create db data log",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.CreateVolumeGroup(ctx, storageapi.VolumeGroupSpec{Name: c.Args[0], VolumeIds: c.Args[1:]}))
		if err != nil {
			return err
		}
		return c.Done(a, "Grouped %s as %s.", strings.Join(c.Typed[1:], ", "), c.Args[0])
	})
	return cmd
}

func (s commands) groupDelete() *cobra.Command {
	return s.Confirmed(verb.Verb{
		Use: "delete GROUP", Short: "Dissolve a group that has no snapshots; its volumes stay",
		Example: "  mainstay storage group delete db --yes",
	}, "Dissolve the group %s?", func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.DeleteVolumeGroup(ctx, c.Args[0]))
		if err != nil {
			return err
		}
		return c.Done(a, "Dissolved the group %s.", c.Typed[0])
	})
}

func (s commands) groupSnapshots() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "snapshots GROUP", Short: "List the snapshots of a group, newest first",
		Example: "  mainstay storage group snapshots db",
	}, output.Columns[storageapi.GroupSnapshot]{
		Heads: []string{"NAME", "STATE", "VOLUMES", "CREATED", "ID", "LAST ERROR"},
		Row: func(s storageapi.GroupSnapshot) []any {
			return []any{s.Name, s.State, len(s.VolumeIds), s.CreatedAt, s.Id, s.LastError}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		params := storageapi.ListGroupSnapshotsParams{Limit: p.Limit, Cursor: p.Cursor}
		return c.API.ListGroupSnapshots(ctx, c.Args[0], &params)
	})
}

func (s commands) groupSnapshot() *cobra.Command {
	var key func() *string
	var name string
	cmd := s.Command(verb.Verb{
		Use: "snapshot GROUP", Short: "Take a snapshot of all volumes of a group at the same moment",
		Example: "  mainstay storage group snapshot db --name before",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.CreateGroupSnapshot(ctx, c.Args[0], &storageapi.CreateGroupSnapshotParams{IdempotencyKey: key()},
			storageapi.GroupSnapshotSpec{Name: verb.Given(c, "name", name)})
		return await(ctx, c, "Taking a snapshot of "+c.Typed[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "Took a snapshot of the group %s.")
		})
	})
	cmd.Flags().StringVar(&name, "name", "", "name, unique for the group; default: made from the time")
	key = jobFlags(cmd)
	return cmd
}

func (s commands) groupRollback() *cobra.Command {
	var key func() *string
	cmd := s.Confirmed(verb.Verb{
		Use: "rollback GROUP NAME", Short: "Put all volumes of a group back to a snapshot",
		Long: `Put all volumes of a group back to a snapshot. What was written since is lost. No client may have one of the volumes
open.`,
		Example: "  mainstay storage group rollback db before --yes",
	}, "Put all volumes of %s back, and lose what was written since?", func(ctx context.Context, c *call) error {
		r, err := c.API.RollbackGroup(ctx, c.Args[0], c.Args[1], &storageapi.RollbackGroupParams{IdempotencyKey: key()},
			storageapi.Confirmation{Confirm: true})
		return await(ctx, c, "Putting the volumes of "+c.Typed[0]+" back", r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "Put the volumes of %s back.")
		})
	})
	key = jobFlags(cmd)
	return cmd
}

func (s commands) groupUnsnapshot() *cobra.Command {
	var key func() *string
	cmd := s.Confirmed(verb.Verb{
		Use: "delete-snapshot GROUP NAME", Short: "Remove a snapshot of a group",
		Example: "  mainstay storage group delete-snapshot db before --yes",
	}, "Delete the snapshot of the group %s?", func(ctx context.Context, c *call) error {
		r, err := c.API.DeleteGroupSnapshot(ctx, c.Args[0], c.Args[1],
			&storageapi.DeleteGroupSnapshotParams{IdempotencyKey: key()})
		return await(ctx, c, "Deleting the snapshot "+c.Args[1], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "Deleted the snapshot of the group %s.")
		})
	})
	key = jobFlags(cmd)
	return cmd
}
