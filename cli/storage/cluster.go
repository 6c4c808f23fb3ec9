package storage

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) clusters() *cobra.Command {
	cmd := verb.Group("cluster", "What the backends are: capacity, health, capabilities",
		"  mainstay storage cluster list\n  mainstay storage cluster health local", "clusters")
	cmd.AddCommand(s.clusterList(), s.clusterHealth(), s.clusterCapabilities(), s.clusterMetrics())
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
		Heads: []string{"ID", "HOST", "UP", "IN", "WEIGHT", "CLASS", "USED", "CLUSTER"},
		Row: func(o storageapi.OSD) []any {
			return []any{
				o.Id, o.Host, o.Up, o.InCluster, weightOf(o), o.DeviceClass, share(o.UsedBytes, o.CapacityBytes),
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
	cmd.AddCommand(list, s.osdOut(), s.osdIn(), s.osdReweight())
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

// weightOf returns the weight of an OSD, which may not be known.
func weightOf(o storageapi.OSD) string {
	if o.Weight == nil {
		return ""
	}
	return strconv.FormatFloat(*o.Weight, 'g', 3, 64)
}

// osdChange builds a command that begins a job about an OSD. send is given the number of the OSD and its cluster.
func (s commands) osdChange(
	v verb.Verb, sentence string,
	send func(ctx context.Context, c *call, osd int, cluster, key *string) (*http.Response, error),
) *cobra.Command {
	var key func() *string
	var cluster string
	cmd := s.Command(v, func(ctx context.Context, c *call) error {
		osd, err := strconv.Atoi(c.Args[0])
		if err != nil || osd < 0 {
			return exit.Usagef("OSD: %q is not the number of an OSD", c.Args[0])
		}
		r, err := send(ctx, c, osd, verb.Given(c, "cluster", cluster), key())
		return await(ctx, c, "Changing osd."+c.Args[0], r, err, func(b begun) error {
			return removed(ctx, c, b.JobID, sentence)
		})
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", "id of its cluster, or name of the backend; needed if several have that OSD")
	key = jobFlags(cmd)
	return cmd
}

func (s commands) osdOut() *cobra.Command {
	return s.osdChange(verb.Verb{
		Use: "out OSD", Short: "Move the data of an OSD to the others",
		Example: "  mainstay storage osd out 3\n  mainstay storage osd out 3 --cluster prod",
	}, "osd.%s is out: its data moves to the others.",
		func(ctx context.Context, c *call, osd int, cluster, key *string) (*http.Response, error) {
			p := storageapi.MarkOSDOutParams{Cluster: cluster, IdempotencyKey: key}
			return c.API.MarkOSDOut(ctx, osd, &p, storageapi.Nothing{})
		})
}

func (s commands) osdIn() *cobra.Command {
	return s.osdChange(verb.Verb{
		Use: "in OSD", Short: "Let an OSD hold data again", Example: "  mainstay storage osd in 3",
	}, "osd.%s holds data again.",
		func(ctx context.Context, c *call, osd int, cluster, key *string) (*http.Response, error) {
			p := storageapi.MarkOSDInParams{Cluster: cluster, IdempotencyKey: key}
			return c.API.MarkOSDIn(ctx, osd, &p, storageapi.Nothing{})
		})
}

func (s commands) osdReweight() *cobra.Command {
	var weight float64
	cmd := s.osdChange(verb.Verb{
		Use: "reweight OSD", Short: "Change how much of its share of the data an OSD holds", Required: []string{"weight"},
		Example: "  mainstay storage osd reweight 3 --weight 0.8",
	}, "osd.%s has the new weight.",
		func(ctx context.Context, c *call, osd int, cluster, key *string) (*http.Response, error) {
			p := storageapi.ReweightOSDParams{Weight: weight, Cluster: cluster, IdempotencyKey: key}
			return c.API.ReweightOSD(ctx, osd, &p, storageapi.Nothing{})
		})
	cmd.Flags().Float64Var(&weight, "weight", 1, "part of its share, from 0 to 1")
	return cmd
}
