package httpapi

import (
	"cmp"
	"context"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// discoverWithin is how long a request waits for a pass over a backend.
const discoverWithin = 10 * time.Second

func apiCapabilities(c driver.Capabilities) storageapi.Capabilities {
	return storageapi.Capabilities{
		Block: c.Block, File: c.File, Object: c.Object, Snapshots: c.Snapshots, Clone: c.Clone, Expansion: c.Expansion,
		Replication: c.Replication,
	}
}

func apiBackend(ctx context.Context, b record.Backend) storageapi.Backend {
	out := storageapi.Backend{
		Id: b.ID, Name: b.Name, BackendType: storageapi.BackendType(b.Type), Mode: storageapi.BackendMode(b.Mode),
		Status: storageapi.BackendStatusReady, Cordoned: b.Cordoned, Capabilities: apiCapabilities(b.Capabilities.V),
		DiscoveredAt: b.DiscoveredAt.Ptr(), CreatedAt: b.CreatedAt.Time,
	}
	switch {
	case b.Cordoned:
		out.Status = storageapi.BackendStatusCordoned
	case b.LastError != "":
		out.Status = storageapi.BackendStatusUnreachable
	case b.DiscoveredAt.IsZero():
		out.Status = storageapi.BackendStatusPending
	}
	if caller.From(ctx).SeesAll() {
		out.ConnectionRef, out.LastError = b.ConnectionRef, b.LastError
	}
	return out
}

// ListBackends lists the backends.
func (a *API) ListBackends(
	ctx context.Context, req storageapi.ListBackendsRequestObject,
) (storageapi.ListBackendsResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.Backend, error) {
			return a.store.BackendsPage(ctx, string(value(req.Params.BackendType)), after, limit)
		},
		func(b record.Backend) string { return b.ID },
		func(b record.Backend) storageapi.Backend { return apiBackend(ctx, b) })
	return storageapi.ListBackends200JSONResponse{
		Body: out, Headers: storageapi.ListBackends200ResponseHeaders{Link: link},
	}, err
}

// CreateBackend registers a backend.
func (a *API) CreateBackend(
	ctx context.Context, req storageapi.CreateBackendRequestObject,
) (storageapi.CreateBackendResponseObject, error) {
	b := record.Backend{
		Name: req.Body.Name, Type: string(orElse(req.Body.BackendType, storageapi.BackendTypeCeph)),
		Mode:          string(orElse(req.Body.Mode, storageapi.BackendModeExternal)),
		ConnectionRef: cmp.Or(value(req.Body.ConnectionRef), req.Body.Name),
	}
	if err := a.backends.Check(b); err != nil {
		return nil, err
	}
	b, err := a.store.AddBackend(ctx, b)
	return storageapi.CreateBackend201JSONResponse(apiBackend(ctx, b)), err
}

// GetBackend returns one backend.
func (a *API) GetBackend(
	ctx context.Context, req storageapi.GetBackendRequestObject,
) (storageapi.GetBackendResponseObject, error) {
	b, err := a.store.Backend(ctx, req.Id)
	return storageapi.GetBackend200JSONResponse(apiBackend(ctx, b)), err
}

// DiscoverBackend looks at what a backend has.
func (a *API) DiscoverBackend(
	ctx context.Context, req storageapi.DiscoverBackendRequestObject,
) (storageapi.DiscoverBackendResponseObject, error) {
	if err := a.store.NoteDiscovery(ctx, req.Id); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, discoverWithin)
	defer cancel()
	found, err := a.backends.Discover(waiting, req.Id)
	out := storageapi.Discovery{State: storageapi.DiscoveryStateSucceeded, Summary: storageapi.DiscoverySummary{
		BackendId: req.Id, ClusterId: found.ClusterID, Pools: found.Pools, Osds: found.OSDs, Volumes: int(found.Volumes),
		New: int(found.New), Missing: int(found.Missing),
	}}
	if found.Running {
		out.State = storageapi.DiscoveryStateRunning
	}
	return storageapi.DiscoverBackend200JSONResponse(out), err
}

// CordonBackend keeps new volumes out of a backend.
func (a *API) CordonBackend(
	ctx context.Context, req storageapi.CordonBackendRequestObject,
) (storageapi.CordonBackendResponseObject, error) {
	b, err := a.store.Cordon(ctx, req.Id, true)
	return storageapi.CordonBackend200JSONResponse(apiBackend(ctx, b)), err
}

// UncordonBackend lets new volumes into a backend again.
func (a *API) UncordonBackend(
	ctx context.Context, req storageapi.UncordonBackendRequestObject,
) (storageapi.UncordonBackendResponseObject, error) {
	b, err := a.store.Cordon(ctx, req.Id, false)
	return storageapi.UncordonBackend200JSONResponse(apiBackend(ctx, b)), err
}

// ListClusters lists what the backends are.
func (a *API) ListClusters(
	ctx context.Context, req storageapi.ListClustersRequestObject,
) (storageapi.ListClustersResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.Cluster, error) {
			return a.store.Clusters(ctx, value(req.Params.Backend), after, limit)
		},
		func(c record.Cluster) string { return c.ID },
		func(c record.Cluster) storageapi.Cluster {
			return storageapi.Cluster{
				Id: c.ID, BackendId: c.BackendID, Name: c.Name, NativeFsid: c.NativeID, Health: storageapi.Condition(c.Health),
				RawCapacityBytes: c.Raw, UsedCapacityBytes: c.Used, AvailableCapacityBytes: c.Available, SeenAt: c.SeenAt.Time,
			}
		})
	return storageapi.ListClusters200JSONResponse{
		Body: out, Headers: storageapi.ListClusters200ResponseHeaders{Link: link},
	}, err
}

// GetClusterHealth returns how a cluster was last seen.
func (a *API) GetClusterHealth(
	ctx context.Context, req storageapi.GetClusterHealthRequestObject,
) (storageapi.GetClusterHealthResponseObject, error) {
	c, err := a.store.Cluster(ctx, req.Id)
	out := storageapi.ClusterHealth{
		Status: storageapi.Condition(c.Health), Summary: c.Summary, RawCapacityBytes: c.Raw, UsedCapacityBytes: c.Used,
		AvailableCapacityBytes: c.Available, Recovering: c.Recovering, DegradedObjects: c.DegradedObjects,
		SeenAt: c.SeenAt.Time,
	}
	if c.Health == driver.Unknown && !caller.From(ctx).SeesAll() {
		out.Summary = "the cluster does not answer" // why not is how it is reached
	}
	return storageapi.GetClusterHealth200JSONResponse(out), err
}

// GetClusterCapabilities returns what a cluster can do.
func (a *API) GetClusterCapabilities(
	ctx context.Context, req storageapi.GetClusterCapabilitiesRequestObject,
) (storageapi.GetClusterCapabilitiesResponseObject, error) {
	c, err := a.store.Cluster(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	b, err := a.store.Backend(ctx, c.BackendID)
	return storageapi.GetClusterCapabilities200JSONResponse(apiCapabilities(b.Capabilities.V)), err
}

// ListNodes lists the hosts of the clusters.
func (a *API) ListNodes(
	ctx context.Context, req storageapi.ListNodesRequestObject,
) (storageapi.ListNodesResponseObject, error) {
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.Node, error) { return a.store.Nodes(ctx, cluster, after, limit) },
		record.Node.Key,
		func(n record.Node) storageapi.Node {
			return storageapi.Node{
				ClusterId: n.ClusterID, Name: n.Host, Osds: int(n.OSDs), OsdsUp: int(n.Up), OsdsIn: int(n.In), UsedBytes: n.Used,
				CapacityBytes: n.Capacity,
			}
		})
	return storageapi.ListNodes200JSONResponse{Body: out, Headers: storageapi.ListNodes200ResponseHeaders{Link: link}}, err
}

// clusterOf returns the id of the cluster that a request names by its id or by the name of its backend; empty: all.
func (a *API) clusterOf(ctx context.Context, given *string) (string, error) {
	if given == nil {
		return "", nil
	}
	c, err := a.store.ClusterNamed(ctx, *given)
	if fault.Is(err, fault.NotFound) {
		err = fault.InvalidField("cluster", "there is no cluster %s", *given)
	}
	return c.ID, err
}

// ListOSDs lists the daemons that store data.
func (a *API) ListOSDs(
	ctx context.Context, req storageapi.ListOSDsRequestObject,
) (storageapi.ListOSDsResponseObject, error) {
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.OSD, error) {
			return a.store.OSDsPage(ctx, cluster, value(req.Params.Host), after, limit)
		},
		record.OSD.Key,
		func(o record.OSD) storageapi.OSD {
			return storageapi.OSD{
				Id: int(o.Number), ClusterId: o.ClusterID, Up: o.Up, InCluster: o.In, DeviceClass: o.DeviceClass, Host: o.Host,
				UsedBytes: o.Used, CapacityBytes: o.Capacity, Weight: o.Weight,
			}
		})
	return storageapi.ListOSDs200JSONResponse{Body: out, Headers: storageapi.ListOSDs200ResponseHeaders{Link: link}}, err
}

// ListPools lists the parts of clusters in which volumes are.
func (a *API) ListPools(
	ctx context.Context, req storageapi.ListPoolsRequestObject,
) (storageapi.ListPoolsResponseObject, error) {
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	f := record.PoolFilter{Backend: value(req.Params.Backend), Cluster: cluster, Kind: string(value(req.Params.Kind))}
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.Pool, error) { return a.store.PoolsPage(ctx, f, after, limit) },
		record.Pool.Key,
		func(p record.Pool) storageapi.Pool {
			return storageapi.Pool{
				Id: p.ID, ClusterId: p.ClusterID, Name: p.Name, Kind: storageapi.PoolKind(p.Kind), DeviceClass: p.DeviceClass,
				ReplicaSize: int(p.Replicas), UsedBytes: p.Used, MaxBytes: p.Max, Health: storageapi.Condition(p.Health),
				Missing: p.Missing,
			}
		})
	return storageapi.ListPools200JSONResponse{Body: out, Headers: storageapi.ListPools200ResponseHeaders{Link: link}}, err
}
