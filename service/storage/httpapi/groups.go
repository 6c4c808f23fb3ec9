package httpapi

import (
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

func apiGroup(g record.Group) storageapi.VolumeGroup {
	return storageapi.VolumeGroup{
		Id: g.ID, TenantId: g.Tenant, Name: g.Name, ClusterId: g.ClusterID, VolumeIds: g.Volumes, CreatedAt: g.CreatedAt.Time,
	}
}

// ListVolumeGroups lists groups.
func (a *API) ListVolumeGroups(
	ctx context.Context, req storageapi.ListVolumeGroupsRequestObject,
) (storageapi.ListVolumeGroupsResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	cluster, err := a.clusterOf(ctx, q.Cluster)
	if err != nil {
		return nil, err
	}
	f := record.GroupFilter{Tenant: tenant, Cluster: cluster}
	out, link, err := list.Rows(ctx, q.Limit, q.Cursor, 100,
		func(before string, limit int) ([]record.Group, error) {
			f.Before = before
			return a.store.Groups(ctx, f, limit)
		},
		func(g record.Group) string { return g.ID }, apiGroup)
	return storageapi.ListVolumeGroups200JSONResponse{
		Body: out, Headers: storageapi.ListVolumeGroups200ResponseHeaders{Link: link},
	}, err
}

// CreateVolumeGroup groups volumes.
func (a *API) CreateVolumeGroup(
	ctx context.Context, req storageapi.CreateVolumeGroupRequestObject,
) (storageapi.CreateVolumeGroupResponseObject, error) {
	g, err := a.store.CreateGroup(ctx, req.Body.Name, req.Body.VolumeIds)
	return storageapi.CreateVolumeGroup201JSONResponse(apiGroup(g)), err
}

// GetVolumeGroup returns one group.
func (a *API) GetVolumeGroup(
	ctx context.Context, req storageapi.GetVolumeGroupRequestObject,
) (storageapi.GetVolumeGroupResponseObject, error) {
	g, err := a.store.Group(ctx, req.Id)
	return storageapi.GetVolumeGroup200JSONResponse(apiGroup(g)), err
}

// DeleteVolumeGroup dissolves a group that has no snapshots.
func (a *API) DeleteVolumeGroup(
	ctx context.Context, req storageapi.DeleteVolumeGroupRequestObject,
) (storageapi.DeleteVolumeGroupResponseObject, error) {
	g, err := a.volumes.DeleteGroup(ctx, req.Id)
	return storageapi.DeleteVolumeGroup200JSONResponse(apiGroup(g)), err
}

// ListGroupSnapshots lists the snapshots of a group.
func (a *API) ListGroupSnapshots(
	ctx context.Context, req storageapi.ListGroupSnapshotsRequestObject,
) (storageapi.ListGroupSnapshotsResponseObject, error) {
	g, err := a.store.Group(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(before string, limit int) ([]record.GroupSnapshot, error) {
			return a.store.GroupSnapshots(ctx, g.ID, before, limit)
		},
		func(s record.GroupSnapshot) string { return s.ID },
		func(s record.GroupSnapshot) storageapi.GroupSnapshot {
			worth := driver.NotConsistent
			if s.State == state.SnapshotReady {
				worth = driver.CrashConsistent
			}
			return storageapi.GroupSnapshot{
				Id: s.ID, GroupId: s.GroupID, Name: s.Name, State: storageapi.SnapshotState(s.State),
				Consistency: storageapi.Consistency(worth), VolumeIds: g.Volumes, LastError: s.LastError,
				CreatedAt: s.CreatedAt.Time,
			}
		})
	return storageapi.ListGroupSnapshots200JSONResponse{
		Body: out, Headers: storageapi.ListGroupSnapshots200ResponseHeaders{Link: link},
	}, err
}

// onGroupSnapshot begins a job about a snapshot of a group.
func (a *API) onGroupSnapshot(
	ctx context.Context, key *string, what, group string, request any,
	begin func(ctx context.Context) (record.GroupSnapshot, record.Job, error),
) (storageapi.GroupSnapshotAccepted, error) {
	j, err := a.once(ctx, key, what+" "+group, request, func(ctx context.Context) (record.Job, error) {
		return begun(begin(ctx))
	})
	if err != nil {
		return storageapi.GroupSnapshotAccepted{}, err
	}
	sn, err := a.store.AnyGroupSnapshot(ctx, j.ResourceID)
	return storageapi.GroupSnapshotAccepted{
		JobId: j.ID, State: stateOf(&j), Links: links(&j), Resource: storageapi.GroupSnapshotRef{
			SnapshotId: j.ResourceID, GroupId: group, Snap: sn.Name,
		},
	}, err
}

// CreateGroupSnapshot begins to take a snapshot of all volumes of a group at the same moment.
func (a *API) CreateGroupSnapshot(
	ctx context.Context, req storageapi.CreateGroupSnapshotRequestObject,
) (storageapi.CreateGroupSnapshotResponseObject, error) {
	name := a.cfg.Now().UTC().Format(timestamp)
	if req.Body != nil {
		name = orElse(req.Body.Name, name)
	}
	out, err := a.onGroupSnapshot(ctx, req.Params.IdempotencyKey, record.JobSnapshotGroup, req.Id, req.Body,
		func(ctx context.Context) (record.GroupSnapshot, record.Job, error) {
			return a.volumes.SnapshotGroup(ctx, req.Id, name, "")
		})
	return storageapi.CreateGroupSnapshot202JSONResponse(out), err
}

// DeleteGroupSnapshot begins to remove a snapshot of a group.
func (a *API) DeleteGroupSnapshot(
	ctx context.Context, req storageapi.DeleteGroupSnapshotRequestObject,
) (storageapi.DeleteGroupSnapshotResponseObject, error) {
	out, err := a.onGroupSnapshot(ctx, req.Params.IdempotencyKey, record.JobUnsnapshotGroup, req.Id, req.Snap,
		func(ctx context.Context) (record.GroupSnapshot, record.Job, error) {
			return a.volumes.DeleteGroupSnapshot(ctx, req.Id, req.Snap)
		})
	return storageapi.DeleteGroupSnapshot202JSONResponse(out), err
}

// RollbackGroup begins to put all volumes of a group back to a snapshot.
func (a *API) RollbackGroup(
	ctx context.Context, req storageapi.RollbackGroupRequestObject,
) (storageapi.RollbackGroupResponseObject, error) {
	out, err := a.onGroupSnapshot(ctx, req.Params.IdempotencyKey, record.JobRevertGroup, req.Id, req.Snap,
		func(ctx context.Context) (record.GroupSnapshot, record.Job, error) {
			return a.volumes.RevertGroup(ctx, req.Id, req.Snap)
		})
	return storageapi.RollbackGroup202JSONResponse(out), err
}
