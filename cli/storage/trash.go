package storage

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// trashFlag adds the flag that keeps what is deleted for a time.
func trashFlag(cmd *cobra.Command) func(c *call) *int {
	var keep time.Duration
	cmd.Flags().DurationVar(&keep, "trash", 0, "keep it in the trash for this time, at most 720h; default: it is gone at once")
	return func(c *call) *int { return verb.Given(c, "trash", int(keep/time.Second)) }
}

func (s commands) trash() *cobra.Command {
	cmd := verb.Group("trash", "Volumes that were deleted and can be brought back",
		"  mainstay storage volume delete data --trash 72h\n  mainstay storage trash list\n"+
			"  mainstay storage trash restore data")
	cmd.Long = `Volumes and images that were deleted with --trash. Until their time is over they can be brought back with their data.
They take room, and count for the quota of their tenant.`
	cmd.AddCommand(s.trashList(), s.trashRestore(), s.trashPurge())
	return cmd
}

func (s commands) trashList() *cobra.Command {
	var tenant, cluster string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List what is in the trash, what was deleted last first",
		Example: "  mainstay storage trash list --tenant acme",
	}, output.Columns[storageapi.TrashItem]{
		Heads: []string{"ID", "NAME", "POOL", "SIZE", "TENANT", "DELETED", "BY", "REMOVED AT", "STATE", "LAST ERROR"},
		Row: func(i storageapi.TrashItem) []any {
			return []any{
				i.Id, i.Name, i.Pool, verb.Bytes(i.SizeBytes), i.TenantId, i.DeletedAt, i.DeletedBy, i.PurgeAt, i.State,
				i.LastError,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListTrash(ctx, &storageapi.ListTrashParams{
			Limit: p.Limit, Cursor: p.Cursor, Tenant: verb.Given(c, "tenant", tenant),
			Cluster: verb.Given(c, "cluster", cluster),
		})
	})
	cmd.Flags().StringVar(&tenant, "tenant", "", "only what is this tenant's")
	cmd.Flags().StringVar(&cluster, "cluster", "", "only what is in the cluster with this id, or of this backend")
	return cmd
}

func (s commands) trashRestore() *cobra.Command {
	var key func() *string
	var name string
	cmd := s.Command(verb.Verb{
		Use: "restore TRASH", Short: "Bring a volume or image back, with the id that it had",
		Long:    "Bring a volume or image back, with the id that it had. Its name may have been taken meanwhile: --name gives it another.",
		Example: "  mainstay storage trash restore data\n  mainstay storage trash restore data --name data-2",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.RestoreTrash(ctx, c.Args[0], &storageapi.RestoreTrashParams{IdempotencyKey: key()},
			storageapi.Undelete{Name: verb.Given(c, "name", name)})
		return await(ctx, c, "Bringing back "+c.Typed[0], r, err, func(b begun) error {
			return volumeDone(ctx, c, b.Resource.VolumeID, "The volume %s of %s is back.")
		})
	})
	cmd.Flags().StringVar(&name, "name", "", "what it is called then; default: what it was called before")
	key = jobFlags(cmd)
	return cmd
}

func (s commands) trashPurge() *cobra.Command {
	var key func() *string
	cmd := s.Confirmed(verb.Verb{
		Use: "purge TRASH", Short: "Remove what is in the trash for ever, before its time is over",
		Example: "  mainstay storage trash purge data --yes",
	}, "Remove %s with its data for ever?", func(ctx context.Context, c *call) error {
		r, err := c.API.PurgeTrash(ctx, c.Args[0], &storageapi.PurgeTrashParams{IdempotencyKey: key()})
		return await(ctx, c, "Removing "+c.Typed[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "Removed %s for ever.")
		})
	})
	key = jobFlags(cmd)
	return cmd
}
