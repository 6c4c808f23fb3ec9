package httpapi

import (
	"context"
	"time"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// deletion returns how a request has a volume removed, by a job of a kind.
func deletion(kind string, trashSecs *int) record.Deletion {
	return record.Deletion{Kind: kind, Keep: time.Duration(value(trashSecs)) * time.Second}
}

func apiTrash(d record.Discarded) storageapi.TrashItem {
	return storageapi.TrashItem{
		Id: d.ID, VolumeId: d.ID, TenantId: d.Tenant, ClusterId: d.ClusterID, Pool: d.Pool, Name: d.Name,
		Kind: storageapi.VolumeKind(d.Kind), SizeBytes: d.Size, State: storageapi.TrashItemState(d.State),
		LastError: d.LastError, DeletedAt: d.DeletedAt.Time, DeletedBy: d.DeletedBy, PurgeAt: d.PurgeAt.Time,
	}
}

// ListTrash lists volumes that were deleted and can be brought back.
func (a *API) ListTrash(
	ctx context.Context, req storageapi.ListTrashRequestObject,
) (storageapi.ListTrashResponseObject, error) {
	tenant, err := tenantFilter(ctx, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	f := record.TrashFilter{Tenant: tenant, Cluster: cluster}
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(before string, limit int) ([]record.Discarded, error) {
			return a.store.Trash(ctx, f, before, limit)
		},
		record.Discarded.Key, apiTrash)
	return storageapi.ListTrash200JSONResponse{
		Body: out, Headers: storageapi.ListTrash200ResponseHeaders{Link: link},
	}, err
}

func acceptedTrash(j *record.Job, d *record.Discarded) storageapi.TrashAccepted {
	return storageapi.TrashAccepted{
		JobId: j.ID, State: stateOf(j), Links: links(j), Resource: storageapi.TrashRef{
			TrashId: d.ID, VolumeId: d.ID, ClusterId: d.ClusterID, Pool: d.Pool, Name: d.Name,
		},
	}
}

// onTrash begins a job about a volume in the trash, and answers with it.
func (a *API) onTrash(
	ctx context.Context, key *string, what string, request any,
	begin func(ctx context.Context) (record.Discarded, record.Job, error),
) (storageapi.TrashAccepted, error) {
	j, err := a.once(ctx, key, what, request, func(ctx context.Context) (record.Job, error) { return begun(begin(ctx)) })
	if err != nil {
		return storageapi.TrashAccepted{}, err
	}
	d, err := a.store.AnyDiscarded(ctx, j.ResourceID)
	return acceptedTrash(&j, &d), err
}

// PurgeTrash begins to remove for ever what is in the trash.
func (a *API) PurgeTrash(
	ctx context.Context, req storageapi.PurgeTrashRequestObject,
) (storageapi.PurgeTrashResponseObject, error) {
	out, err := a.onTrash(ctx, req.Params.IdempotencyKey, "PurgeTrash "+req.Id, nil,
		func(ctx context.Context) (record.Discarded, record.Job, error) { return a.volumes.Purge(ctx, req.Id) })
	return storageapi.PurgeTrash202JSONResponse(out), err
}

// RestoreTrash begins to bring back what was deleted.
func (a *API) RestoreTrash(
	ctx context.Context, req storageapi.RestoreTrashRequestObject,
) (storageapi.RestoreTrashResponseObject, error) {
	name := ""
	if req.Body != nil {
		name = value(req.Body.Name)
	}
	out, err := a.onTrash(ctx, req.Params.IdempotencyKey, "RestoreTrash "+req.Id, req.Body,
		func(ctx context.Context) (record.Discarded, record.Job, error) {
			return a.volumes.Undelete(ctx, req.Id, name)
		})
	return storageapi.RestoreTrash202JSONResponse(out), err
}
