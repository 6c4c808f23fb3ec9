package httpapi

import (
	"cmp"
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

func apiSnapshot(s record.Snapshot) storageapi.Snapshot {
	return storageapi.Snapshot{
		Id: s.ID, VolumeId: s.VolumeID, TenantId: s.Tenant, Name: s.Name, State: storageapi.SnapshotState(s.State),
		SizeBytes: s.Size, UsedBytes: known(s.Used), Dependents: int(s.Dependents), LastError: s.LastError,
		Consistency: storageapi.Consistency(cmp.Or(s.Consistency, driver.NotConsistent)),
		CreatedAt:   s.CreatedAt.Time, ReadyAt: s.ReadyAt.Ptr(),
	}
}

// timestamp is how a time stands in names that are made of it.
const timestamp = "20060102-150405"

func (a *API) listSnapshots(
	ctx context.Context, f record.SnapshotFilter, limit *int, cursor *string,
) ([]storageapi.Snapshot, *string, error) {
	return list.Rows(ctx, limit, cursor, 100,
		func(before string, limit int) ([]record.Snapshot, error) {
			f.Before = before
			return a.store.Snapshots(ctx, f, limit)
		},
		func(s record.Snapshot) string { return s.ID }, apiSnapshot)
}

// ListSnapshots lists snapshots.
func (a *API) ListSnapshots(
	ctx context.Context, req storageapi.ListSnapshotsRequestObject,
) (storageapi.ListSnapshotsResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	f := record.SnapshotFilter{Tenant: tenant, Volume: value(q.VolumeId), State: string(value(q.State))}
	out, link, err := a.listSnapshots(ctx, f, q.Limit, q.Cursor)
	return storageapi.ListSnapshots200JSONResponse{
		Body: out, Headers: storageapi.ListSnapshots200ResponseHeaders{Link: link},
	}, err
}

// ListVolumeSnapshots lists the snapshots of a volume.
func (a *API) ListVolumeSnapshots(
	ctx context.Context, req storageapi.ListVolumeSnapshotsRequestObject,
) (storageapi.ListVolumeSnapshotsResponseObject, error) {
	if _, err := a.store.Volume(ctx, req.Id); err != nil {
		return nil, err
	}
	out, link, err := a.listSnapshots(ctx, record.SnapshotFilter{Volume: req.Id}, req.Params.Limit, req.Params.Cursor)
	return storageapi.ListVolumeSnapshots200JSONResponse{
		Body: out, Headers: storageapi.ListVolumeSnapshots200ResponseHeaders{Link: link},
	}, err
}

// GetSnapshot returns one snapshot.
func (a *API) GetSnapshot(
	ctx context.Context, req storageapi.GetSnapshotRequestObject,
) (storageapi.GetSnapshotResponseObject, error) {
	s, err := a.store.Snapshot(ctx, req.Id)
	return storageapi.GetSnapshot200JSONResponse(apiSnapshot(s)), err
}

// CreateSnapshot begins to take a snapshot of a volume.
func (a *API) CreateSnapshot(
	ctx context.Context, req storageapi.CreateSnapshotRequestObject,
) (storageapi.CreateSnapshotResponseObject, error) {
	name := a.cfg.Now().UTC().Format(timestamp)
	if req.Body != nil {
		if err := checkNoClaims([]string{"snapshot_class"}, req.Body.SnapshotClass); err != nil {
			return nil, err
		}
		name = orElse(req.Body.Name, name)
	}
	spec := record.SnapshotRequest{Volume: req.Id, Kind: record.JobSnapshot, Name: name}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "CreateSnapshot "+req.Id, req.Body,
		func(ctx context.Context) (record.Job, error) {
			return begun(a.volumes.Snapshot(ctx, spec))
		})
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedSnapshot(ctx, &j)
	return storageapi.CreateSnapshot202JSONResponse(out), err
}

// DeleteSnapshot begins to remove a snapshot.
func (a *API) DeleteSnapshot(
	ctx context.Context, req storageapi.DeleteSnapshotRequestObject,
) (storageapi.DeleteSnapshotResponseObject, error) {
	force := value(req.Params.Force)
	if force {
		if err := a.admit(ctx, forcedDeletion, req.Id); err != nil {
			return nil, err
		}
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "DeleteSnapshot "+req.Id, force,
		func(ctx context.Context) (record.Job, error) {
			return begun(a.volumes.DeleteSnapshot(ctx, req.Id, record.JobDeleteSnapshot, force))
		})
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedSnapshot(ctx, &j)
	return storageapi.DeleteSnapshot202JSONResponse(out), err
}

// CloneSnapshot begins to make a volume of a snapshot.
func (a *API) CloneSnapshot(
	ctx context.Context, req storageapi.CloneSnapshotRequestObject,
) (storageapi.CloneSnapshotResponseObject, error) {
	if err := checkNoClaims([]string{"namespace", "storage_class"}, req.Body.Namespace, req.Body.StorageClass); err != nil {
		return nil, err
	}
	spec := record.CloneRequest{Kind: record.JobClone, Name: req.Body.Name, Size: value(req.Body.SizeBytes)}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "CloneSnapshot "+req.Id, req.Body,
		func(ctx context.Context) (record.Job, error) { return begun(a.volumes.Clone(ctx, req.Id, spec)) })
	return storageapi.CloneSnapshot202JSONResponse(acceptedCopy(&j, storageapi.CopyRefModeClone)), err
}

// RestoreSnapshot begins to make a volume as a snapshot is.
func (a *API) RestoreSnapshot(
	ctx context.Context, req storageapi.RestoreSnapshotRequestObject,
) (storageapi.RestoreSnapshotResponseObject, error) {
	b := req.Body
	if b == nil {
		b = &storageapi.RestoreSpec{}
	}
	if value(b.InPlace) {
		return a.revertSnapshot(ctx, req.Id, req.Params.IdempotencyKey, b)
	}
	if err := checkNoClaims([]string{"namespace", "storage_class"}, b.Namespace, b.StorageClass); err != nil {
		return nil, err
	}
	spec := record.CloneRequest{Kind: record.JobRestore, Name: value(b.Name), Size: value(b.SizeBytes)}
	if spec.Name == "" {
		spec.NameFrom = "restore-%s-" + a.cfg.Now().UTC().Format(timestamp)
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "RestoreSnapshot "+req.Id, b,
		func(ctx context.Context) (record.Job, error) { return begun(a.volumes.Clone(ctx, req.Id, spec)) })
	return storageapi.RestoreSnapshot202JSONResponse(acceptedCopy(&j, storageapi.CopyRefModeRestore)), err
}

// revertSnapshot begins to put the volume of a snapshot back to it.
func (a *API) revertSnapshot(
	ctx context.Context, id string, key *string, b *storageapi.RestoreSpec,
) (storageapi.RestoreSnapshotResponseObject, error) {
	if err := a.admit(ctx, revertedVolume, id); err != nil {
		return nil, err
	}
	if !value(b.Confirm) {
		return nil, fault.InvalidField("confirm", "must be true: what was written since the snapshot is lost")
	}
	for field, given := range map[string]bool{"name": b.Name != nil, "size_bytes": b.SizeBytes != nil} {
		if given {
			return nil, fault.InvalidField(field, "is for a new volume; with in_place, the snapshot's own volume is put back")
		}
	}
	j, err := a.once(ctx, key, "RestoreSnapshot "+id, b, func(ctx context.Context) (record.Job, error) {
		sn, err := a.store.AnySnapshot(ctx, id)
		if err != nil {
			return record.Job{}, err
		}
		return begun(a.volumes.ChangeImage(ctx, sn.VolumeID, record.ImageChange{
			Kind: record.JobRevert, Action: state.Restore, Snapshot: id,
		}))
	})
	return storageapi.RestoreSnapshot202JSONResponse(acceptedCopy(&j, storageapi.CopyRefModeRestore)), err
}
