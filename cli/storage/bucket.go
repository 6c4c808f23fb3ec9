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

// buckets builds the commands of buckets. Package app adds one for the gateway's host.
func (s commands) buckets() *cobra.Command {
	cmd := verb.Group("bucket", "Buckets of object gateways: create, list, look into, delete",
		"  mainstay storage bucket create logs --max-size 10GiB\n  mainstay storage bucket list", "buckets")
	cmd.AddCommand(
		s.bucketList(), s.bucketShow(), s.bucketCreate(), s.bucketStats(), s.bucketObjects(), s.bucketDelete(),
	)
	return cmd
}

func (s commands) bucketList() *cobra.Command {
	var state, tenant, backend string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List buckets, newest first",
		Example: "  mainstay storage bucket list --state bound\n  mainstay storage bucket list --tenant acme --backend prod -o json",
	}, output.Columns[storageapi.Bucket]{
		Heads: []string{"NAME", "STATE", "BUCKET", "ENDPOINT", "ADOPTED", "TENANT", "CREATED", "LAST ERROR"},
		Row: func(b storageapi.Bucket) []any {
			return []any{b.Name, b.State, b.BucketName, b.Endpoint, yes(b.Adopted), b.TenantId, b.CreatedAt, b.LastError}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListBuckets(ctx, &storageapi.ListBucketsParams{
			Limit: p.Limit, Cursor: p.Cursor, State: verb.Given(c, "state", storageapi.BucketState(state)),
			Tenant: verb.Given(c, "tenant", tenant), Backend: verb.Given(c, "backend", backend),
		})
	})
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "only those in this state: pending, bound, deleting or error")
	f.StringVar(&tenant, "tenant", "", "only those of this tenant")
	f.StringVar(&backend, "backend", "", "only those in this backend")
	return cmd
}

func (s commands) bucketShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show BUCKET", Short: "Show one bucket", Example: "  mainstay storage bucket show logs",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetBucket(ctx, c.Args[0]) })
}

func (s commands) bucketCreate() *cobra.Command {
	var key func() *string
	var objects int64
	var versioning bool
	var backend, tenant, connection string
	size := input.Bytes()
	cmd := s.Command(verb.Verb{
		Use: "create NAME", Short: "Make a bucket, or take in one that exists",
		Long: `Make a bucket, with a user of its own in the object gateway; or with --connection take in a bucket that exists, which is
only read. The command can be repeated: a bucket with the same tenant and name is not made twice.

'mainstay storage bucket keys' on the gateway's host prints the keys of a bucket that was made.`,
		Example: "  mainstay storage bucket create logs --max-size 10GiB --max-objects 100000\n" +
			"  mainstay storage bucket create archive --backend prod --versioning --tenant acme\n" +
			"  mainstay storage bucket create offsite --connection offsite --no-wait -q",
	}, func(ctx context.Context, c *call) error {
		r, err := c.API.CreateBucket(ctx, &storageapi.CreateBucketParams{IdempotencyKey: key()}, storageapi.BucketSpec{
			Name: c.Args[0], BackendId: verb.Given(c, "backend", backend), TenantId: verb.Given(c, "tenant", tenant),
			MaxObjects: verb.Given(c, "max-objects", objects), MaxSize: verb.Given(c, "max-size", int64(size.Count)),
			Versioning: verb.Given(c, "versioning", versioning), ConnectionRef: verb.Given(c, "connection", connection),
		})
		return await(ctx, c, "Making the bucket "+c.Args[0], r, err, func(b begun) error {
			return bucketDone(ctx, c, b.Resource.BucketID)
		})
	})
	f := cmd.Flags()
	f.StringVar(&backend, "backend", "", "where to make it; default: the only backend with buckets")
	f.StringVar(&tenant, "tenant", "", "tenant that it is for; default: that of the token")
	f.Int64Var(&objects, "max-objects", 0, "most objects that it may hold; 0: no limit")
	f.Var(&size, "max-size", "most bytes that it may hold, or with a unit: 500M, 10GiB; default: no limit")
	f.BoolVar(&versioning, "versioning", false, "keep what is overwritten or deleted")
	f.StringVar(&connection, "connection", "",
		"take in the bucket that this entry of the gateway's setting s3-buckets tells of")
	key = jobFlags(cmd)
	return cmd
}

// bucketDone reports that a bucket can be used.
func bucketDone(ctx context.Context, c *call, id string) error {
	a, err := c.Send(c.API.GetBucket(ctx, id))
	b, err := decode[storageapi.Bucket](a, err)
	if err != nil {
		return err
	}
	return c.Done(a, "The bucket %s is %s at %s.", b.Name, b.BucketName, b.Endpoint)
}

func (s commands) bucketStats() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "stats BUCKET", Short: "Show what a bucket holds, and its limits and rules",
		Example: "  mainstay storage bucket stats logs",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetBucketStats(ctx, c.Args[0])
	})
}

func (s commands) bucketObjects() *cobra.Command {
	var prefix string
	cmd := verb.List(s.session, verb.Verb{
		Use: "objects BUCKET", Short: "List a folder of a bucket, by name",
		Example: "  mainstay storage bucket objects logs\n  mainstay storage bucket objects logs --prefix 2026/ --all",
	}, output.Columns[storageapi.BucketEntry]{
		Heads: []string{"KEY", "SIZE", "MODIFIED"},
		Row: func(e storageapi.BucketEntry) []any {
			if e.Folder {
				return []any{e.Key, "", e.ModifiedAt}
			}
			return []any{e.Key, verb.Bytes(e.SizeBytes), e.ModifiedAt}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListBucketObjects(ctx, c.Args[0], &storageapi.ListBucketObjectsParams{
			Limit: p.Limit, Cursor: p.Cursor, Prefix: verb.Given(c, "prefix", prefix),
		})
	})
	cmd.Flags().StringVar(&prefix, "prefix", "", "what the keys begin with; a folder ends with a slash")
	return cmd
}

func (s commands) bucketDelete() *cobra.Command {
	var key func() *string
	var force bool
	cmd := s.Confirmed(verb.Verb{
		Use: "delete BUCKET", Short: "Remove a bucket with its objects, or forget one that was taken in",
		Example: "  mainstay storage bucket delete logs\n  mainstay storage bucket delete logs --yes --no-wait",
	}, "Delete the bucket %s with its objects?", func(ctx context.Context, c *call) error {
		params := storageapi.DeleteBucketParams{IdempotencyKey: key(), Force: verb.Given(c, "force", force)}
		r, err := c.API.DeleteBucket(ctx, c.Args[0], &params)
		return await(ctx, c, "Deleting the bucket "+c.Typed[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, "Deleted the bucket %s.")
		})
	})
	cmd.Flags().BoolVar(&force, "force", false, "also one that has backups, which are lost with it")
	key = jobFlags(cmd)
	return cmd
}
