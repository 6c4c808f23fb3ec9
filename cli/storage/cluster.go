package storage

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) clusters() *cobra.Command {
	cmd := verb.Group("cluster", "What the backends are: capacity, health, capabilities",
		"  mainstay storage cluster list\n  mainstay storage cluster health local", "clusters")
	cmd.AddCommand(s.clusterList(), s.clusterHealth(), s.clusterCapabilities())
	return cmd
}

// share returns how much of a capacity is used.
func share(used, capacity int64) string {
	text := fmt.Sprintf("%s of %s", verb.Bytes(used), verb.Bytes(capacity))
	if capacity > 0 {
		text += fmt.Sprintf(" (%.0f%%)", float64(used)/float64(capacity)*100)
	}
	return text
}

func (s commands) clusterList() *cobra.Command {
	var backend string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List clusters, as they were last seen",
		Example: "  mainstay storage cluster list\n  mainstay storage cluster list --backend local",
	}, output.Columns[storageapi.Cluster]{
		Heads: []string{"NAME", "BACKEND", "HEALTH", "USED", "SEEN", "ID"},
		Row: func(k storageapi.Cluster) []any {
			return []any{
				k.Name, output.Ref{Kind: "BACKEND", ID: k.BackendId}, k.Health,
				share(k.UsedCapacityBytes, k.RawCapacityBytes), k.SeenAt, k.Id,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListClusters(ctx, &storageapi.ListClustersParams{
			Limit: p.Limit, Cursor: p.Cursor, Backend: verb.Given(c, "backend", backend),
		})
	})
	cmd.Flags().StringVar(&backend, "backend", "", "only those of this backend")
	return cmd
}

// clusterID returns the id of the cluster that the first argument names: by its id, its name or its backend, which is
// what people know.
func clusterID(ctx context.Context, c *call) (string, error) {
	arg := c.Args[0]
	of, err := decode[[]storageapi.Cluster](c.Send(c.API.ListClusters(ctx, &storageapi.ListClustersParams{Backend: &arg})))
	if err != nil {
		return "", err
	}
	if len(of) == 1 {
		return of[0].Id, nil
	}
	return c.ID(ctx, "CLUSTER", arg, false)
}

// ofCluster returns a command that shows something of a cluster.
func (s commands) ofCluster(
	v verb.Verb, r func(ctx context.Context, c *call, id string) (*http.Response, error),
) *cobra.Command {
	v.Long = v.Short + ". Its backend's name will do."
	return s.Object(v, func(ctx context.Context, c *call) (*http.Response, error) {
		id, err := clusterID(ctx, c)
		if err != nil {
			return nil, err
		}
		return r(ctx, c, id)
	})
}

func (s commands) clusterHealth() *cobra.Command {
	return s.ofCluster(verb.Verb{
		Use: "health CLUSTER", Short: "Show how a cluster is", Example: "  mainstay storage cluster health local",
	}, func(ctx context.Context, c *call, id string) (*http.Response, error) {
		return c.API.GetClusterHealth(ctx, id)
	})
}

func (s commands) clusterCapabilities() *cobra.Command {
	return s.ofCluster(verb.Verb{
		Use: "capabilities CLUSTER", Short: "Show what a cluster can do",
		Example: "  mainstay storage cluster capabilities local",
	}, func(ctx context.Context, c *call, id string) (*http.Response, error) {
		return c.API.GetClusterCapabilities(ctx, id)
	})
}

const clusterUsage = "only those of the cluster with this id, or of this backend"

func (s commands) nodes() *cobra.Command {
	var cluster string
	list := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List hosts by name",
		Example: "  mainstay storage node list\n  mainstay storage node list --cluster ceph",
	}, output.Columns[storageapi.Node]{
		Heads: []string{"NAME", "OSDS", "UP", "IN", "USED", "CLUSTER"},
		Row: func(n storageapi.Node) []any {
			return []any{
				n.Name, n.Osds, n.OsdsUp, n.OsdsIn, share(n.UsedBytes, n.CapacityBytes),
				output.Ref{Kind: "CLUSTER", ID: n.ClusterId},
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListNodes(ctx, &storageapi.ListNodesParams{
			Limit: p.Limit, Cursor: p.Cursor, Cluster: verb.Given(c, "cluster", cluster),
		})
	})
	list.Flags().StringVar(&cluster, "cluster", "", clusterUsage)
	cmd := verb.Group("node", "The hosts of the clusters", "  mainstay storage node list", "nodes")
	cmd.AddCommand(list)
	return cmd
}

func (s commands) osds() *cobra.Command {
	var cluster, host string
	list := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List the daemons that store data, by cluster and number",
		Example: "  mainstay storage osd list\n  mainstay storage osd list --cluster ceph --host node-1",
	}, output.Columns[storageapi.OSD]{
		Heads: []string{"ID", "HOST", "UP", "IN", "CLASS", "USED", "CLUSTER"},
		Row: func(o storageapi.OSD) []any {
			return []any{
				o.Id, o.Host, o.Up, o.InCluster, o.DeviceClass, share(o.UsedBytes, o.CapacityBytes),
				output.Ref{Kind: "CLUSTER", ID: o.ClusterId},
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListOSDs(ctx, &storageapi.ListOSDsParams{
			Limit: p.Limit, Cursor: p.Cursor, Cluster: verb.Given(c, "cluster", cluster), Host: verb.Given(c, "host", host),
		})
	})
	list.Flags().StringVar(&cluster, "cluster", "", clusterUsage)
	list.Flags().StringVar(&host, "host", "", "only those on this host")
	cmd := verb.Group("osd", "The daemons that store data, in clusters that have some", "  mainstay storage osd list", "osds")
	cmd.AddCommand(list)
	return cmd
}

func (s commands) pools() *cobra.Command {
	var cluster, backend, kind string
	list := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List pools",
		Example: "  mainstay storage pool list\n  mainstay storage pool list --backend local --kind nfs_export",
	}, output.Columns[storageapi.Pool]{
		Heads: []string{"NAME", "KIND", "HEALTH", "USED", "COPIES", "CLASS", "MISSING", "CLUSTER"},
		Row: func(p storageapi.Pool) []any {
			return []any{
				p.Name, p.Kind, p.Health, share(p.UsedBytes, p.MaxBytes), p.ReplicaSize, p.DeviceClass, p.Missing,
				output.Ref{Kind: "CLUSTER", ID: p.ClusterId},
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListPools(ctx, &storageapi.ListPoolsParams{
			Limit: p.Limit, Cursor: p.Cursor, Cluster: verb.Given(c, "cluster", cluster),
			Backend: verb.Given(c, "backend", backend), Kind: verb.Given(c, "kind", storageapi.PoolKind(kind)),
		})
	})
	f := list.Flags()
	f.StringVar(&cluster, "cluster", "", clusterUsage)
	f.StringVar(&backend, "backend", "", "only those of this backend")
	f.StringVar(&kind, "kind", "", "only those of this kind, such as rbd or nfs_export")
	cmd := verb.Group("pool", "The parts of the clusters that volumes are in", "  mainstay storage pool list", "pools")
	cmd.AddCommand(list)
	return cmd
}
