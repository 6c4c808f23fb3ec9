// Package storage implements `mainstay storage`: working with the storage gateway from the command
// line.
//
//	storage.go   the command, how the service is reached, and what arguments name
//	account.go   logging in
//	backend.go   storage systems; cluster.go: what they consist of
//	policy.go    how volumes are made; tenant.go: who has them, and how many
//	volume.go    volumes; snapshot.go: their snapshots, and volumes made of these; group.go: groups of volumes
//	image.go     images by names of one's own
//	bucket.go    buckets of object gateways; backup.go: backups in them
//	schedule.go  what is done at regular times
//	dr.go        volumes that are mirrored to another site, and failover
//	job.go       work that takes long: wait for it, follow it, cancel it; maintenance.go: start none of it
//	alert.go     what needs attention; capacity.go: how full clusters are, and were
//	event.go     what happened, and whether an upgrade can begin
//	audit.go     the audit log; version.go: which version runs, and whether it can work
//	devceph.go   a throw-away Ceph to try the gateway with; devceph_linux.go: how it is run
//
// Volumes, snapshots, buckets and backends are named by their name or ID. Policies and tenants have only names.
package storage

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// Service describes the storage gateway to package client.
var Service = client.Service{
	Unit: "storage", Credential: "token",
	Name: "the storage gateway", Kind: "a storage gateway", Title: "Mainstay storage gateway",
	Flag: "--server", Start: "'mainstay dev' or 'mainstay serve storage'",
	Hints: map[int]string{
		http.StatusUnauthorized: "give a token with --token, --token-file or STORE_TOKEN; or log in with 'mainstay login storage'",
		http.StatusForbidden:    "use a token with this role; only tokens without a tenant change what belongs to no tenant",
	},
	CodeHints: map[string]string{
		"BACKEND_CORDONED": "name another policy, or have an admin run 'mainstay storage backend uncordon BACKEND'",
		"UNSUPPORTED":      "'mainstay storage backend list' shows what the backends can do",
	},
	LimitHint: "'mainstay storage tenant list' shows the quotas and what is used of them",
}

var api = verb.API[*storageapi.Client]{
	Service: &Service, New: storageapi.NewClient, BasePath: storageapi.BasePath, Default: "http://127.0.0.1:5110",
	ServerEnv: []string{"STORE_SERVER"}, TokenEnv: []string{"STORE_TOKEN"}, Kinds: kinds,
}

type (
	session = verb.Session[*storageapi.Client]
	call    = verb.Call[*storageapi.Client]
)

// commands builds the commands of the group.
type commands struct{ *session }

// decode decodes a response.
func decode[T any](a client.Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }

// New returns the command `storage` with all commands below it.
func New(env client.Environment) *cobra.Command {
	cmd := verb.Group(
		"storage", "Volumes, snapshots and buckets in storage systems, with tenants and quotas",
		"  mainstay storage volume create data --size 10GiB\n  mainstay storage snapshot create data --name before",
	)
	cmd.Long = `Work with the storage gateway: one API over storage systems, with tenants, quotas, volumes and their snapshots, and
buckets.

Volumes, snapshots, buckets and backends are named by their name or ID. What takes long is a job: commands wait for its
end, or with --no-wait print the job, which 'mainstay storage job wait' waits for.

The token comes from --token, --token-file or STORE_TOKEN, or from 'mainstay login storage'. If none is given and the
service runs on this machine, it is the one that "mainstay dev" leaves in .mainstay/credentials.json below the working
directory.`
	s := commands{verb.NewSession(env, &api)}
	s.AddFlags(cmd)
	cmd.AddCommand(
		s.volumes(), s.snapshots(), s.trash(), s.images(), s.groups(), s.buckets(), s.backups(), s.schedules(), s.dr(),
		s.policies(),
		s.tenants(), s.backends(), s.clusters(), s.nodes(), s.osds(), s.pools(), s.jobs(), s.alerts(), s.capacity(),
		s.maintenance(), s.events(), s.audit(), s.preflight(), s.version(), s.health(),
	)
	s.Complete(cmd)
	cmd.AddCommand(s.devCeph()) // its --backend need not be a backend yet
	return cmd
}

// kinds are what arguments and flags name.
var kinds = map[string]*verb.Kind[*storageapi.Client]{
	"VOLUME": {
		What: "volume", Listed: "mainstay storage volume list", Flags: []string{"volume"}, Searched: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListVolumes(ctx, &storageapi.ListVolumesParams{Limit: p.Limit, Cursor: p.Cursor, Q: p.Search})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) { return c.API.GetVolume(ctx, id) },
		Object: verb.As(&Service, func(v storageapi.Volume) verb.Object {
			return verb.Object{ID: v.Id, Name: v.Name, Owner: v.TenantId}
		}),
	},
	"TRASH": {
		What: "volume in the trash", Listed: "mainstay storage trash list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListTrash(ctx, &storageapi.ListTrashParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(i storageapi.TrashItem) verb.Object {
			return verb.Object{ID: i.Id, Name: i.Name, Owner: i.TenantId}
		}),
	},
	"SNAPSHOT": {
		What: "snapshot", Listed: "mainstay storage snapshot list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListSnapshots(ctx, &storageapi.ListSnapshotsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) {
			return c.API.GetSnapshot(ctx, id)
		},
		Object: verb.As(&Service, func(s storageapi.Snapshot) verb.Object {
			return verb.Object{ID: s.Id, Name: s.Name, Owner: "of the volume " + s.VolumeId}
		}),
	},
	"SCHEDULE": {
		What: "schedule", Listed: "mainstay storage schedule list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListSchedules(ctx, &storageapi.ListSchedulesParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) {
			return c.API.GetSchedule(ctx, id)
		},
		Object: verb.As(&Service, func(o storageapi.Schedule) verb.Object {
			return verb.Object{ID: o.Id, Name: o.Name, Owner: o.TenantId}
		}),
	},
	"GROUP": {
		What: "group", Listed: "mainstay storage group list", Flags: []string{"group"},
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListVolumeGroups(ctx, &storageapi.ListVolumeGroupsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) {
			return c.API.GetVolumeGroup(ctx, id)
		},
		Object: verb.As(&Service, func(g storageapi.VolumeGroup) verb.Object {
			return verb.Object{ID: g.Id, Name: g.Name, Owner: g.TenantId}
		}),
	},
	"IMAGE": {
		What: "image", Listed: "mainstay storage image list", AsTyped: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListRBDImages(ctx, &storageapi.ListRBDImagesParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(i storageapi.RBDImage) verb.Object {
			return verb.Object{Name: i.Pool + "/" + i.Name}
		}),
	},
	"BUCKET": {
		What: "bucket", Listed: "mainstay storage bucket list", Flags: []string{"bucket"},
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListBuckets(ctx, &storageapi.ListBucketsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) { return c.API.GetBucket(ctx, id) },
		Object: verb.As(&Service, func(b storageapi.Bucket) verb.Object {
			return verb.Object{ID: b.Id, Name: b.Name, Owner: b.TenantId}
		}),
	},
	"BACKUP": {
		What: "backup", Listed: "mainstay storage backup list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListBackups(ctx, &storageapi.ListBackupsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) {
			return c.API.GetBackup(ctx, id)
		},
		Object: verb.As(&Service, func(b storageapi.Backup) verb.Object { return verb.Object{ID: b.Id} }),
	},
	"MIRROR": {
		What: "mirror", Listed: "mainstay storage dr list", Flags: []string{"mirror"},
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListMirrors(ctx, &storageapi.ListMirrorsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(m storageapi.Mirror) verb.Object {
			return verb.Object{ID: m.Id, Name: m.Image, Owner: string(m.Role) + " at the cluster " + m.ClusterId}
		}),
	},
	"PEER": {
		What: "peer", Listed: "mainstay storage dr peer list", Flags: []string{"peer"},
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListPeers(ctx, &storageapi.ListPeersParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(p storageapi.Peer) verb.Object { return verb.Object{ID: p.Id, Name: p.Name} }),
	},
	"BACKEND": {
		What: "backend", Listed: "mainstay storage backend list", Flags: []string{"backend"},
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListBackends(ctx, &storageapi.ListBackendsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Get: func(ctx context.Context, c *call, id string) (*http.Response, error) {
			return c.API.GetBackend(ctx, id)
		},
		Object: verb.As(&Service, func(b storageapi.Backend) verb.Object {
			return verb.Object{ID: b.Id, Name: b.Name}
		}),
	},
	"CLUSTER": {
		What: "cluster", Listed: "mainstay storage cluster list", AsTyped: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListClusters(ctx, &storageapi.ListClustersParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(k storageapi.Cluster) verb.Object {
			return verb.Object{ID: k.Id, Name: k.Name}
		}),
	},
	"POLICY": {
		What: "policy", Listed: "mainstay storage policy list", Flags: []string{"policy"}, AsTyped: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListPolicies(ctx, &storageapi.ListPoliciesParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(p storageapi.Policy) verb.Object { return verb.Object{Name: p.Name} }),
	},
	"TENANT": {
		What: "tenant", Listed: "mainstay storage tenant list", Flags: []string{"tenant"}, AsTyped: true,
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListTenants(ctx, &storageapi.ListTenantsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(t storageapi.Tenant) verb.Object { return verb.Object{Name: t.Name} }),
	},
	"ALERT": {
		What: "alert", Listed: "mainstay storage alert list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListAlerts(ctx, &storageapi.ListAlertsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(a storageapi.Alert) verb.Object { return verb.Object{ID: a.Id} }),
	},
	"JOB": {
		What: "job", Listed: "mainstay storage job list",
		List: func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListJobs(ctx, &storageapi.ListJobsParams{Limit: p.Limit, Cursor: p.Cursor})
		},
		Object: verb.As(&Service, func(j storageapi.Job) verb.Object { return verb.Object{ID: j.Id} }),
	},
}

// size formats a number of bytes that may not be known.
func size(n *int64) string {
	if n == nil {
		return ""
	}
	return verb.Bytes(*n)
}
