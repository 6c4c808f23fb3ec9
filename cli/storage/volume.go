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

func (s commands) volumes() *cobra.Command {
	cmd := verb.Group("volume", "Volumes: create, list, expand, delete",
		"  mainstay storage volume create data --size 10GiB\n  mainstay storage volume list", "volumes")
	cmd.AddCommand(
		s.volumeList(), s.volumeShow(), s.volumeCreate(), s.volumeExpand(), s.volumeDelete(), s.volumeSnapshots(),
		s.volumeEvents(),
	)
	return cmd
}

func (s commands) volumeList() *cobra.Command {
	var state, tenant, backend, cluster, kind, product, resource, search string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List volumes, newest first",
		Example: "  mainstay storage volume list --state available\n  mainstay storage volume list --tenant acme --search data\n" +
			"  mainstay storage volume list --backend local --all -o json",
	}, output.Columns[storageapi.Volume]{
		Heads: []string{"NAME", "STATE", "KIND", "SIZE", "USED", "POLICY", "CLUSTER", "TENANT", "CREATED", "LAST ERROR"},
		Row: func(v storageapi.Volume) []any {
			return []any{
				v.Name, v.State, v.Kind, verb.Bytes(v.SizeBytes), size(v.UsedBytes), v.Policy,
				output.Ref{Kind: "CLUSTER", ID: v.ClusterId}, v.TenantId, v.CreatedAt, v.LastError,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListVolumes(ctx, &storageapi.ListVolumesParams{
			Limit: p.Limit, Cursor: p.Cursor, State: verb.Given(c, "state", storageapi.VolumeState(state)),
			Tenant: verb.Given(c, "tenant", tenant), Backend: verb.Given(c, "backend", backend),
			Cluster: verb.Given(c, "cluster", cluster), Kind: verb.Given(c, "kind", storageapi.VolumeKind(kind)),
			OwnerProduct: verb.Given(c, "owner-product", product), OwnerResourceId: verb.Given(c, "owner-resource", resource),
			Q: verb.Given(c, "search", search),
		})
	})
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "only those in this state, such as available, in-use, error or missing")
	f.StringVar(&tenant, "tenant", "", "only those of this tenant")
	f.StringVar(&backend, "backend", "", "only those in this backend")
	f.StringVar(&cluster, "cluster", "", "only those in the cluster with this id, or of this backend")
	f.StringVar(&kind, "kind", "", "only those of this kind: block, filesystem or object")
	f.StringVar(&product, "owner-product", "", "only those that this product uses, such as vm")
	f.StringVar(&resource, "owner-resource", "", "only those that the resource with this id uses")
	f.StringVar(&search, "search", "", "only those with this text in their name or id")
	return cmd
}

func (s commands) volumeShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show VOLUME", Short: "Show one volume", Example: "  mainstay storage volume show data",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetVolume(ctx, c.Args[0]) })
}

func (s commands) volumeCreate() *cobra.Command {
	var key func() *string
	var policy, kind, tenant string
	capacity := input.Bytes()
	cmd := s.Command(verb.Verb{
		Use: "create NAME", Short: "Make a volume",
		Long: `Make a volume. The policy decides the backend, the pool and the kind. The command can be repeated: a volume with the
same tenant, name and size is not made twice.`,
		Example: "  mainstay storage volume create data --size 10GiB\n" +
			"  mainstay storage volume create home --size 1TiB --policy shared --tenant acme\n" +
			"  mainstay storage volume create scratch --size 500M --no-wait -q",
		Required: []string{"size"},
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.CreateVolume(ctx, &storageapi.CreateVolumeParams{IdempotencyKey: key()}, storageapi.VolumeSpec{
			Name: c.Args[0], SizeBytes: int64(capacity.Count), Policy: verb.Given(c, "policy", policy),
			Kind: verb.Given(c, "kind", storageapi.VolumeKind(kind)), TenantId: verb.Given(c, "tenant", tenant),
		})
		return await(ctx, c, "Making the volume "+c.Args[0], r, err, func(b begun) error {
			return volumeDone(ctx, c, b.Resource.VolumeID, "Made the volume %s of %s.")
		})
	})
	f := cmd.Flags()
	f.Var(&capacity, "size", "size, in bytes or with a unit: 500M, 10GiB")
	f.StringVar(&policy, "policy", "", "how to make it (see: mainstay storage policy list); default: default")
	f.StringVar(&kind, "kind", "", "block, filesystem or object; default: that of the policy")
	f.StringVar(&tenant, "tenant", "", "tenant that it is for; default: that of the token")
	key = jobFlags(cmd)
	return cmd
}

// volumeDone reports what a job has done with a volume. In sentence, the first %s stands for its name, the second one
// for its size.
func volumeDone(ctx context.Context, c *call, id, sentence string) error {
	a, err := c.Send(c.API.GetVolume(ctx, id))
	v, err := decode[storageapi.Volume](a, err)
	if err != nil {
		return err
	}
	return c.Done(a, sentence, v.Name, verb.Bytes(v.SizeBytes))
}

func (s commands) volumeExpand() *cobra.Command {
	var key func() *string
	capacity := input.Bytes()
	cmd := s.Command(verb.Verb{
		Use: "expand VOLUME", Short: "Make a volume larger", Example: "  mainstay storage volume expand data --size 20GiB",
		Required: []string{"size"},
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.ExpandVolume(ctx, c.Args[0], &storageapi.ExpandVolumeParams{IdempotencyKey: key()},
			storageapi.Expansion{NewSizeBytes: int64(capacity.Count)})
		return await(ctx, c, "Expanding the volume "+c.Typed[0], r, err, func(b begun) error {
			return volumeDone(ctx, c, b.Resource.VolumeID, "The volume %s has %s.")
		})
	})
	cmd.Flags().Var(&capacity, "size", "new size, in bytes or with a unit: 500M, 20GiB")
	key = jobFlags(cmd)
	return cmd
}

func (s commands) volumeDelete() *cobra.Command {
	var key func() *string
	var trash func(c *call) *int
	cmd := s.Confirmed(verb.Verb{
		Use: "delete VOLUME", Short: "Remove a volume with its data",
		Long: `Remove a volume with its data. A volume that has snapshots stays. With --trash it can be brought back for that time
(see: mainstay storage trash).`,
		Example: "  mainstay storage volume delete data\n  mainstay storage volume delete data --trash 72h\n" +
			"  mainstay storage volume delete data --yes --no-wait",
	}, "Delete the volume %s with its data?", func(ctx context.Context, c *call) error {
		r, err := c.API.DeleteVolume(ctx, c.Args[0], &storageapi.DeleteVolumeParams{
			IdempotencyKey: key(), TrashSecs: trash(c),
		})
		return await(ctx, c, "Deleting the volume "+c.Typed[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "Deleted the volume %s.")
		})
	})
	trash, key = trashFlag(cmd), jobFlags(cmd)
	return cmd
}

// removed reports that a job has removed what the command names: the job is all that is left of it.
func removed(ctx context.Context, c *call, job, sentence string) error {
	a, err := jobOf(ctx, c, job)
	if err != nil {
		return err
	}
	return c.Done(a, sentence, c.Typed[0])
}

func (s commands) volumeSnapshots() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "snapshots VOLUME", Short: "List the snapshots of a volume, newest first",
		Example: "  mainstay storage volume snapshots data",
	}, snapshotColumns, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		params := storageapi.ListVolumeSnapshotsParams{Limit: p.Limit, Cursor: p.Cursor}
		return c.API.ListVolumeSnapshots(ctx, c.Args[0], &params)
	})
}
