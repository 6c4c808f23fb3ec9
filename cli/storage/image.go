package storage

import (
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) images() *cobra.Command {
	cmd := verb.Group("image", "Images in the pools of Ceph clusters, by the names that the command rbd shows",
		"  mainstay storage image create vms/disk --size 10GiB\n  mainstay storage image list --pool vms", "images")
	cmd.Long = `Work with images in the pools of Ceph clusters, under names of your own. An image is named POOL/IMAGE, and a snapshot of
it POOL/IMAGE@SNAP, as the command rbd names them. Every image is also a volume: 'mainstay storage volume' shows it.

If several clusters have a pool of the same name, name one with --cluster.`
	cmd.AddCommand(
		s.imageList(), s.imageCreate(), s.imageClone(), s.imageFlatten(), s.imageLimit(), s.imageResize(), s.imageMigrate(),
		s.imageDelete(), s.imageUsage(), s.imageSnapshots(), s.imageSnapshot(), s.imageRollback(), s.imageUnsnapshot(),
	)
	return cmd
}

// clusterFlag adds the flag that names the cluster of an image.
func clusterFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("cluster", "", "the cluster with this id, or of this backend")
}

// imageName splits POOL/IMAGE.
func imageName(given string) (pool, image string, err error) {
	pool, image, ok := strings.Cut(given, "/")
	if !ok || pool == "" || image == "" || strings.ContainsAny(image, "/@") {
		return "", "", exit.Usagef("%q is not the name of an image: write POOL/IMAGE", given)
	}
	return pool, image, nil
}

// snapshotName splits POOL/IMAGE@SNAP.
func snapshotName(given string) (pool, image, snap string, err error) {
	name, snap, ok := strings.Cut(given, "@")
	pool, image, err = imageName(name)
	if err != nil || !ok || snap == "" || strings.ContainsAny(snap, "/@") {
		return "", "", "", exit.Usagef("%q is not the name of a snapshot: write POOL/IMAGE@SNAP", given)
	}
	return pool, image, snap, nil
}

func (s commands) imageList() *cobra.Command {
	var pool, tenant, cluster string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List images by pool and name",
		Long:    "List images by pool and name, also those that other programs made (under MANAGED: no), which are only read.",
		Example: "  mainstay storage image list --pool vms\n  mainstay storage image list --cluster prod --all -o json",
	}, output.Columns[storageapi.RBDImage]{
		Heads: []string{"POOL", "NAME", "STATE", "SIZE", "USED", "PARENT", "IOPS", "BYTES/S", "MANAGED", "TENANT"},
		Row: func(i storageapi.RBDImage) []any {
			return []any{
				i.Pool, i.Name, i.State, verb.Bytes(i.SizeBytes), size(i.UsedBytes), i.Parent, limit(i.Iops), limit(i.Bps),
				yes(i.Managed), i.TenantId,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListRBDImages(ctx, &storageapi.ListRBDImagesParams{
			Limit: p.Limit, Cursor: p.Cursor, Pool: verb.Given(c, "pool", pool), Tenant: verb.Given(c, "tenant", tenant),
			Cluster: verb.Given(c, "cluster", cluster),
		})
	})
	f := cmd.Flags()
	f.StringVar(&pool, "pool", "", "only those in this pool")
	f.StringVar(&tenant, "tenant", "", "only those of this tenant")
	f.StringVar(&cluster, "cluster", "", "only those in the cluster with this id, or of this backend")
	return cmd
}

// limit formats a limit of an image.
func limit(n int64) any {
	if n == 0 {
		return ""
	}
	return n
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (s commands) imageCreate() *cobra.Command {
	var key func() *string
	var tenant string
	var cluster *string
	capacity := input.Bytes()
	cmd := s.Command(verb.Verb{
		Use: "create IMAGE", Short: "Make an image",
		Example: "  mainstay storage image create vms/disk --size 10GiB\n" +
			"  mainstay storage image create vms/disk --size 10GiB --cluster prod --tenant acme",
		Required: []string{"size"},
	}, func(ctx context.Context, c *call) error {
		pool, name, err := imageName(c.Args[0])
		if err != nil {
			return err
		}
		r, err := c.API.CreateRBDImage(ctx, &storageapi.CreateRBDImageParams{
			IdempotencyKey: key(), Cluster: verb.Given(c, "cluster", *cluster),
		}, storageapi.RBDImageSpec{
			Pool: pool, Name: name, SizeBytes: int64(capacity.Count), TenantId: verb.Given(c, "tenant", tenant),
		})
		return await(ctx, c, "Making the image "+c.Args[0], r, err, func(b begun) error {
			return imageDone(ctx, c, b, "Made the image "+c.Args[0]+".")
		})
	})
	cmd.Flags().Var(&capacity, "size", "size, in bytes or with a unit: 500M, 10GiB")
	cmd.Flags().StringVar(&tenant, "tenant", "", "tenant that it is for; default: that of the token")
	cluster, key = clusterFlag(cmd), jobFlags(cmd)
	return cmd
}

// imageDone reports what a job has done with an image. A plain script gets its id.
func imageDone(ctx context.Context, c *call, b begun, sentence string) error {
	a, err := c.Send(c.API.GetVolume(ctx, b.Resource.VolumeID))
	if _, err := decode[storageapi.Volume](a, err); err != nil {
		return err
	}
	return c.Done(a, "%s", sentence)
}

// onImage is a command that has a job change an image.
func (s commands) onImage(
	v verb.Verb, doing, done string, add func(cmd *cobra.Command),
	begin func(ctx context.Context, c *call, pool, image string, cluster, key *string) (*http.Response, error),
) *cobra.Command {
	var key func() *string
	var cluster *string
	cmd := s.Command(v, func(ctx context.Context, c *call) error {
		pool, image, err := imageName(c.Args[0])
		if err != nil {
			return err
		}
		r, err := begin(ctx, c, pool, image, verb.Given(c, "cluster", *cluster), key())
		return await(ctx, c, doing+" the image "+c.Args[0], r, err, func(b begun) error {
			return imageDone(ctx, c, b, done+" the image "+c.Args[0]+".")
		})
	})
	add(cmd)
	cluster, key = clusterFlag(cmd), jobFlags(cmd)
	return cmd
}

func (s commands) imageClone() *cobra.Command {
	var key func() *string
	var cluster *string
	cmd := s.Command(verb.Verb{
		Use: "clone SNAPSHOT-OF-IMAGE NAME", Short: "Make an image of a snapshot",
		Long: `Make an image of a snapshot, in the same pool. It shares the snapshot's data until it is flattened.`,
		Example: "  mainstay storage image clone vms/disk@before disk-2\n" +
			"  mainstay storage image flatten vms/disk-2",
	}, func(ctx context.Context, c *call) error {
		pool, image, snap, err := snapshotName(c.Args[0])
		if err != nil {
			return err
		}
		r, err := c.API.CloneRBDImage(ctx, pool, image, &storageapi.CloneRBDImageParams{
			IdempotencyKey: key(), Cluster: verb.Given(c, "cluster", *cluster),
		}, storageapi.RBDCloneSpec{Name: c.Args[1], Snap: snap})
		return await(ctx, c, "Cloning "+c.Args[0], r, err, func(b begun) error {
			return imageDone(ctx, c, b, "Made the image "+pool+"/"+c.Args[1]+".")
		})
	})
	cluster, key = clusterFlag(cmd), jobFlags(cmd)
	return cmd
}

func (s commands) imageFlatten() *cobra.Command {
	return s.onImage(verb.Verb{
		Use: "flatten IMAGE", Short: "Copy into a clone what it shares with its snapshot, so that it stands alone",
		Example: "  mainstay storage image flatten vms/disk-2",
	}, "Flattening", "Flattened", func(*cobra.Command) {},
		func(ctx context.Context, c *call, pool, image string, cluster, key *string) (*http.Response, error) {
			return c.API.FlattenRBDImage(ctx, pool, image,
				&storageapi.FlattenRBDImageParams{Cluster: cluster, IdempotencyKey: key}, storageapi.Nothing{})
		})
}

func (s commands) imageLimit() *cobra.Command {
	var iops int64
	bps := input.Bytes()
	return s.onImage(verb.Verb{
		Use: "qos IMAGE", Short: "Limit what clients may read and write",
		Long: `Limit what the clients of an image may read and write together. Clients of librbd, such as QEMU, obey at once. The kernel's
client does not know of the limits. 0 removes a limit, and one that is not named stays.`,
		Example: "  mainstay storage image qos vms/disk --iops 500 --bps 100MiB\n" +
			"  mainstay storage image qos vms/disk --iops 0",
	}, "Limiting", "Limited", func(cmd *cobra.Command) {
		cmd.Flags().Int64Var(&iops, "iops", 0, "requests per second; 0: no limit")
		cmd.Flags().Var(&bps, "bps", "bytes per second, such as 100MiB; 0: no limit")
		cmd.MarkFlagsOneRequired("iops", "bps")
	}, func(ctx context.Context, c *call, pool, image string, cluster, key *string) (*http.Response, error) {
		return c.API.SetRBDQoS(ctx, pool, image, &storageapi.SetRBDQoSParams{
			Cluster: cluster, IdempotencyKey: key, Iops: verb.Given(c, "iops", iops),
			Bps: verb.Given(c, "bps", int64(bps.Count)),
		}, storageapi.Nothing{})
	})
}

func (s commands) imageResize() *cobra.Command {
	var shrink bool
	capacity := input.Bytes()
	return s.onImage(verb.Verb{
		Use: "resize IMAGE", Short: "Change the size of an image",
		Long: `Change the size of an image. To make it smaller takes --allow-shrink, an admin, and that no client has it open: what lies
beyond the new size is lost.`,
		Example: "  mainstay storage image resize vms/disk --size 20GiB\n" +
			"  mainstay storage image resize vms/disk --size 5GiB --allow-shrink",
		Required: []string{"size"},
	}, "Resizing", "Resized", func(cmd *cobra.Command) {
		cmd.Flags().Var(&capacity, "size", "new size, in bytes or with a unit: 500M, 20GiB")
		cmd.Flags().BoolVar(&shrink, "allow-shrink", false, "cut off what lies beyond a smaller size")
	}, func(ctx context.Context, c *call, pool, image string, cluster, key *string) (*http.Response, error) {
		return c.API.ResizeRBDImage(ctx, pool, image,
			&storageapi.ResizeRBDImageParams{Cluster: cluster, IdempotencyKey: key},
			storageapi.RBDResize{SizeBytes: int64(capacity.Count), AllowShrink: verb.Given(c, "allow-shrink", shrink)})
	})
}

func (s commands) imageMigrate() *cobra.Command {
	return s.onImage(verb.Verb{
		Use: "migrate IMAGE TO-POOL", Short: "Move an image with its snapshots to another pool of its cluster",
		Long:    `Move an image with its snapshots to another pool of its cluster. Its clients must have closed it when the job begins.`,
		Example: "  mainstay storage image migrate vms/disk fast",
	}, "Moving", "Moved", func(*cobra.Command) {},
		func(ctx context.Context, c *call, pool, image string, cluster, key *string) (*http.Response, error) {
			return c.API.MigrateRBDImage(ctx, pool, image, &storageapi.MigrateRBDImageParams{
				Cluster: cluster, IdempotencyKey: key, DestPool: c.Args[1],
			}, storageapi.Nothing{})
		})
}

func (s commands) imageDelete() *cobra.Command {
	var key func() *string
	var cluster *string
	var trash func(c *call) *int
	cmd := s.Confirmed(verb.Verb{
		Use: "delete IMAGE", Short: "Remove an image with its data",
		Long: `Remove an image with its data. One that has snapshots, or that clients have open, stays. With --trash it can be
brought back for that time (see: mainstay storage trash).`,
		Example: "  mainstay storage image delete vms/disk --yes\n  mainstay storage image delete vms/disk --trash 72h",
	}, "Delete the image %s with its data?", func(ctx context.Context, c *call) error {
		pool, image, err := imageName(c.Args[0])
		if err != nil {
			return err
		}
		r, err := c.API.DeleteRBDImage(ctx, pool, image, &storageapi.DeleteRBDImageParams{
			IdempotencyKey: key(), Cluster: verb.Given(c, "cluster", *cluster), TrashSecs: trash(c),
		})
		return await(ctx, c, "Deleting the image "+c.Args[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "Deleted the image %s.")
		})
	})
	cluster, trash, key = clusterFlag(cmd), trashFlag(cmd), jobFlags(cmd)
	return cmd
}

func (s commands) imageUsage() *cobra.Command {
	var key func() *string
	var cluster *string
	cmd := s.Command(verb.Verb{
		Use: "usage", Short: "Count what images use, for 'mainstay storage image list'",
		Example: "  mainstay storage image usage\n  mainstay storage image usage --cluster prod --no-wait",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.RefreshRBDUsage(ctx, &storageapi.RefreshRBDUsageParams{
			IdempotencyKey: key(), Cluster: verb.Given(c, "cluster", *cluster),
		}, storageapi.Nothing{})
		return await(ctx, c, "Counting what images use", r, err, func(b begun) error {
			a, err := jobOf(ctx, c, b.JobID)
			if err != nil {
				return err
			}
			return c.Done(a, "Counted what images use.")
		})
	})
	cluster, key = clusterFlag(cmd), jobFlags(cmd)
	return cmd
}

func (s commands) imageSnapshots() *cobra.Command {
	var cluster *string
	cmd := verb.List(s.session, verb.Verb{
		Use: "snapshots IMAGE", Short: "List the snapshots of an image, oldest first",
		Long:    "List the snapshots of an image as the cluster has them, oldest first, also those that the gateway did not make.",
		Example: "  mainstay storage image snapshots vms/disk",
	}, output.Columns[storageapi.RBDSnapshot]{
		Heads: []string{"NAME", "SIZE", "PROTECTED", "MANAGED", "CREATED"},
		Row: func(s storageapi.RBDSnapshot) []any {
			return []any{s.Name, verb.Bytes(s.SizeBytes), yes(s.Protected), yes(s.Id != ""), s.CreatedAt}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		pool, image, err := imageName(c.Args[0])
		if err != nil {
			return nil, err
		}
		return c.API.ListRBDSnapshots(ctx, pool, image, &storageapi.ListRBDSnapshotsParams{
			Limit: p.Limit, Cursor: p.Cursor, Cluster: verb.Given(c, "cluster", *cluster),
		})
	})
	cluster = clusterFlag(cmd)
	return cmd
}

// onSnapshot is a command that has a job do something with POOL/IMAGE@SNAP. It asks the question first, unless that is
// empty.
func (s commands) onSnapshot(
	v verb.Verb, question, doing, done string,
	begin func(ctx context.Context, c *call, of [3]string, cluster, key *string) (*http.Response, error),
) *cobra.Command {
	var key func() *string
	var cluster *string
	run := func(ctx context.Context, c *call) error {
		pool, image, snap, err := snapshotName(c.Args[0])
		if err != nil {
			return err
		}
		r, err := begin(ctx, c, [3]string{pool, image, snap}, verb.Given(c, "cluster", *cluster), key())
		return await(ctx, c, doing+" "+c.Args[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, done+" %s.")
		})
	}
	var cmd *cobra.Command
	if question == "" {
		cmd = s.Command(v, run)
	} else {
		cmd = s.Confirmed(v, question, run)
	}
	cluster, key = clusterFlag(cmd), jobFlags(cmd)
	return cmd
}

func (s commands) imageSnapshot() *cobra.Command {
	return s.onSnapshot(verb.Verb{
		Use: "snapshot SNAPSHOT-OF-IMAGE", Short: "Take a snapshot of an image",
		Example: "  mainstay storage image snapshot vms/disk@before",
	}, "", "Taking the snapshot", "Took the snapshot",
		func(ctx context.Context, c *call, of [3]string, cluster, key *string) (*http.Response, error) {
			return c.API.CreateRBDSnapshot(ctx, of[0], of[1],
				&storageapi.CreateRBDSnapshotParams{Cluster: cluster, IdempotencyKey: key},
				storageapi.RBDSnapshotSpec{Name: of[2]})
		})
}

func (s commands) imageRollback() *cobra.Command {
	return s.onSnapshot(verb.Verb{
		Use: "rollback SNAPSHOT-OF-IMAGE", Short: "Put an image back to one of its snapshots",
		Long:    `Put an image back to one of its snapshots. What was written since is lost. No client may have the image open.`,
		Example: "  mainstay storage image rollback vms/disk@before --yes",
	}, "Put the image back to %s, and lose what was written since?", "Putting the image back to", "Put the image back to",
		func(ctx context.Context, c *call, of [3]string, cluster, key *string) (*http.Response, error) {
			return c.API.RollbackRBDImage(ctx, of[0], of[1],
				&storageapi.RollbackRBDImageParams{Cluster: cluster, IdempotencyKey: key},
				storageapi.RBDRollback{Snap: of[2]})
		})
}

func (s commands) imageUnsnapshot() *cobra.Command {
	return s.onSnapshot(verb.Verb{
		Use: "delete-snapshot SNAPSHOT-OF-IMAGE", Short: "Remove a snapshot of an image",
		Example: "  mainstay storage image delete-snapshot vms/disk@before --yes",
	}, "Delete the snapshot %s?", "Deleting the snapshot", "Deleted the snapshot",
		func(ctx context.Context, c *call, of [3]string, cluster, key *string) (*http.Response, error) {
			return c.API.DeleteRBDSnapshot(ctx, of[0], of[1], of[2],
				&storageapi.DeleteRBDSnapshotParams{Cluster: cluster, IdempotencyKey: key})
		})
}
