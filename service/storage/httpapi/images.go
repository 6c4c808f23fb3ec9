package httpapi

import (
	"context"
	"fmt"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

func apiImage(i record.Image) storageapi.RBDImage {
	return storageapi.RBDImage{
		Id: i.ID, TenantId: i.Tenant, ClusterId: i.ClusterID, Pool: i.Pool, Name: i.Shown(), SizeBytes: i.Size,
		UsedBytes: known(i.Used), State: storageapi.VolumeState(i.State), Health: storageapi.Condition(i.Health),
		Parent: i.Parent, Iops: i.IOPS, Bps: i.BPS, Managed: !i.Foreign, CreatedAt: i.CreatedAt.Time,
	}
}

// ListRBDImages lists images by pool and name.
func (a *API) ListRBDImages(
	ctx context.Context, req storageapi.ListRBDImagesRequestObject,
) (storageapi.ListRBDImagesResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	cluster, err := a.clusterOf(ctx, q.Cluster)
	if err != nil {
		return nil, err
	}
	f := record.ImageFilter{Cluster: cluster, Tenant: tenant, Pool: value(q.Pool)}
	out, link, err := list.Rows(ctx, q.Limit, q.Cursor, 100,
		func(after string, limit int) ([]record.Image, error) { return a.store.Images(ctx, f, after, limit) },
		record.Image.Key, apiImage)
	return storageapi.ListRBDImages200JSONResponse{
		Body: out, Headers: storageapi.ListRBDImages200ResponseHeaders{Link: link},
	}, err
}

// image returns the image that a path names.
func (a *API) image(ctx context.Context, of *string, pool, name string) (record.Image, error) {
	cluster, err := a.clusterOf(ctx, of)
	if err != nil {
		return record.Image{}, err
	}
	return a.store.Image(ctx, cluster, pool, name)
}

// acceptedImage answers with a job about an image, which will be in pool then; empty: where it is.
func (a *API) acceptedImage(ctx context.Context, j *record.Job, pool string) (storageapi.ImageAccepted, error) {
	v, at, err := a.store.Whereabouts(ctx, j.ResourceID)
	if pool == "" {
		pool = at
	}
	return storageapi.ImageAccepted{
		JobId: j.ID, State: stateOf(j), Links: links(j), Resource: storageapi.ImageRef{
			VolumeId: v.ID, ClusterId: v.ClusterID, Pool: pool, Image: v.Shown(),
		},
	}, err
}

// CreateRBDImage begins to make an image.
func (a *API) CreateRBDImage(
	ctx context.Context, req storageapi.CreateRBDImageRequestObject,
) (storageapi.CreateRBDImageResponseObject, error) {
	b := req.Body
	tenant, err := tenantOf(ctx, b.TenantId)
	if err != nil {
		return nil, err
	}
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	spec := record.ImageRequest{Cluster: cluster, Pool: b.Pool, Tenant: tenant, Name: b.Name, Size: b.SizeBytes}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "CreateRBDImage "+cluster, b,
		func(ctx context.Context) (record.Job, error) { return begun(a.volumes.CreateImage(ctx, spec)) })
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedImage(ctx, &j, "")
	return storageapi.CreateRBDImage202JSONResponse(out), err
}

// onImage begins a job about the image that a path names. what is the name of the operation, and request its content.
func (a *API) onImage(
	ctx context.Context, key, of *string, pool, name, what string, request any,
	begin func(ctx context.Context, i *record.Image) (record.Volume, record.Job, error),
) (storageapi.ImageAccepted, error) {
	what = fmt.Sprintf("%s %s/%s of %s", what, pool, name, value(of))
	j, err := a.once(ctx, key, what, request, func(ctx context.Context) (record.Job, error) {
		i, err := a.image(ctx, of, pool, name)
		if err != nil {
			return record.Job{}, err
		}
		return begun(begin(ctx, &i))
	})
	if err != nil {
		return storageapi.ImageAccepted{}, err
	}
	return a.acceptedImage(ctx, &j, "")
}

// changeImage begins a job that changes the image that a path names.
func (a *API) changeImage(
	ctx context.Context, key, of *string, pool, name string, request any, c record.ImageChange,
) (storageapi.ImageAccepted, error) {
	return a.onImage(ctx, key, of, pool, name, c.Kind, request,
		func(ctx context.Context, i *record.Image) (record.Volume, record.Job, error) {
			return a.volumes.ChangeImage(ctx, i.ID, c)
		})
}

// DeleteRBDImage begins to remove an image.
func (a *API) DeleteRBDImage(
	ctx context.Context, req storageapi.DeleteRBDImageRequestObject,
) (storageapi.DeleteRBDImageResponseObject, error) {
	p := req.Params
	out, err := a.onImage(ctx, p.IdempotencyKey, p.Cluster, req.Pool, req.Image, record.JobDeleteImage, value(p.TrashSecs),
		func(ctx context.Context, i *record.Image) (record.Volume, record.Job, error) {
			return a.volumes.Delete(ctx, i.ID, deletion(record.JobDeleteImage, p.TrashSecs))
		})
	return storageapi.DeleteRBDImage202JSONResponse(out), err
}

// CloneRBDImage begins to make an image of a snapshot.
func (a *API) CloneRBDImage(
	ctx context.Context, req storageapi.CloneRBDImageRequestObject,
) (storageapi.CloneRBDImageResponseObject, error) {
	p := req.Params
	out, err := a.onImage(ctx, p.IdempotencyKey, p.Cluster, req.Pool, req.Image, record.JobCloneImage, req.Body,
		func(ctx context.Context, i *record.Image) (record.Volume, record.Job, error) {
			sn, err := a.store.SnapshotNamed(ctx, &i.Volume, req.Body.Snap)
			if err != nil {
				return record.Volume{}, record.Job{}, err
			}
			return a.volumes.Clone(ctx, sn.ID, record.CloneRequest{
				Name: req.Body.Name, Kind: record.JobCloneImage, Named: true,
			})
		})
	return storageapi.CloneRBDImage202JSONResponse(out), err
}

// FlattenRBDImage begins to copy into a clone what it has of its parent.
func (a *API) FlattenRBDImage(
	ctx context.Context, req storageapi.FlattenRBDImageRequestObject,
) (storageapi.FlattenRBDImageResponseObject, error) {
	p := req.Params
	out, err := a.changeImage(ctx, p.IdempotencyKey, p.Cluster, req.Pool, req.Image, nil, record.ImageChange{
		Kind: record.JobFlattenImage, Action: state.Change,
	})
	return storageapi.FlattenRBDImage202JSONResponse(out), err
}

// SetRBDQoS begins to limit what clients may read and write.
func (a *API) SetRBDQoS(
	ctx context.Context, req storageapi.SetRBDQoSRequestObject,
) (storageapi.SetRBDQoSResponseObject, error) {
	p := req.Params
	if p.Iops == nil && p.Bps == nil {
		return nil, fault.InvalidField("iops", "one of iops and bps is needed")
	}
	out, err := a.changeImage(ctx, p.IdempotencyKey, p.Cluster, req.Pool, req.Image, []any{p.Iops, p.Bps},
		record.ImageChange{Kind: record.JobLimitImage, Action: state.Change, IOPS: p.Iops, BPS: p.Bps})
	return storageapi.SetRBDQoS202JSONResponse(out), err
}

// ResizeRBDImage begins to change the size of an image.
func (a *API) ResizeRBDImage(
	ctx context.Context, req storageapi.ResizeRBDImageRequestObject,
) (storageapi.ResizeRBDImageResponseObject, error) {
	p, size := req.Params, req.Body.SizeBytes
	shrink := value(req.Body.AllowShrink)
	if c := caller.From(ctx); shrink && c.Role != caller.Admin {
		return nil, fault.New(fault.Denied, "allow_shrink takes the role %s, and %s has the role %s",
			caller.Admin, c.Name, c.Role)
	}
	out, err := a.onImage(ctx, p.IdempotencyKey, p.Cluster, req.Pool, req.Image, record.JobResizeImage, req.Body,
		func(ctx context.Context, i *record.Image) (record.Volume, record.Job, error) {
			switch {
			case size >= i.Size:
				return a.volumes.Expand(ctx, i.ID, record.JobResizeImage, size)
			case !shrink:
				return record.Volume{}, record.Job{}, fault.InvalidField("size_bytes",
					"is less than the image has, %d bytes; set allow_shrink to cut off what lies beyond", i.Size)
			}
			return a.volumes.ChangeImage(ctx, i.ID, record.ImageChange{
				Kind: record.JobShrinkImage, Action: state.Change, Size: size,
			})
		})
	return storageapi.ResizeRBDImage202JSONResponse(out), err
}

// RollbackRBDImage begins to put an image back to a snapshot.
func (a *API) RollbackRBDImage(
	ctx context.Context, req storageapi.RollbackRBDImageRequestObject,
) (storageapi.RollbackRBDImageResponseObject, error) {
	p := req.Params
	out, err := a.onImage(ctx, p.IdempotencyKey, p.Cluster, req.Pool, req.Image, record.JobRevertImage, req.Body,
		func(ctx context.Context, i *record.Image) (record.Volume, record.Job, error) {
			sn, err := a.store.SnapshotNamed(ctx, &i.Volume, req.Body.Snap)
			if err != nil {
				return record.Volume{}, record.Job{}, err
			}
			return a.volumes.ChangeImage(ctx, i.ID, record.ImageChange{
				Kind: record.JobRevertImage, Action: state.Restore, Snapshot: sn.ID,
			})
		})
	return storageapi.RollbackRBDImage202JSONResponse(out), err
}

// MigrateRBDImage begins to move an image to another pool.
func (a *API) MigrateRBDImage(
	ctx context.Context, req storageapi.MigrateRBDImageRequestObject,
) (storageapi.MigrateRBDImageResponseObject, error) {
	p := req.Params
	out, err := a.changeImage(ctx, p.IdempotencyKey, p.Cluster, req.Pool, req.Image, p.DestPool, record.ImageChange{
		Kind: record.JobMoveImage, Action: state.Move, Pool: p.DestPool,
	})
	out.Resource.Pool = p.DestPool
	return storageapi.MigrateRBDImage202JSONResponse(out), err
}

// ListRBDSnapshots lists the snapshots of an image, as the storage system has them.
func (a *API) ListRBDSnapshots(
	ctx context.Context, req storageapi.ListRBDSnapshotsRequestObject,
) (storageapi.ListRBDSnapshotsResponseObject, error) {
	i, err := a.image(ctx, req.Params.Cluster, req.Pool, req.Image)
	if err != nil {
		return nil, err
	}
	all, err := a.volumes.Snapshots(ctx, &i.Volume)
	if err != nil {
		return nil, err
	}
	ids, err := a.store.SnapshotsByShown(ctx, &i.Volume)
	if err != nil {
		return nil, err
	}
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]driver.ImageSnapshot, error) {
			return snapshotsAfter(all, after, limit), nil
		},
		func(s driver.ImageSnapshot) string { return s.Name },
		func(s driver.ImageSnapshot) storageapi.RBDSnapshot {
			return storageapi.RBDSnapshot{
				Id: ids[s.Name], Name: s.Name, SizeBytes: s.Size, Protected: s.Protected, CreatedAt: timeOrNil(s.CreatedAt),
			}
		})
	return storageapi.ListRBDSnapshots200JSONResponse{
		Body: out, Headers: storageapi.ListRBDSnapshots200ResponseHeaders{Link: link},
	}, err
}

// snapshotsAfter returns up to limit snapshots after the one of a name, or from the first one on if there is none.
func snapshotsAfter(all []driver.ImageSnapshot, name string, limit int) []driver.ImageSnapshot {
	from := 0
	for i := range all {
		if all[i].Name == name {
			from = i + 1
		}
	}
	return all[from:min(len(all), from+limit)]
}

func (a *API) acceptedImageSnapshot(
	ctx context.Context, j *record.Job,
) (out storageapi.ImageSnapshotAccepted, err error) {
	sn, err := a.store.AnySnapshot(ctx, j.ResourceID)
	if err != nil {
		return out, err
	}
	v, pool, err := a.store.Whereabouts(ctx, sn.VolumeID)
	return storageapi.ImageSnapshotAccepted{
		JobId: j.ID, State: stateOf(j), Links: links(j), Resource: storageapi.ImageSnapshotRef{
			SnapshotId: j.ResourceID, VolumeId: v.ID, ClusterId: v.ClusterID, Pool: pool, Image: v.Shown(), Snap: sn.Shown(&v),
		},
	}, err
}

// CreateRBDSnapshot begins to take a snapshot of an image.
func (a *API) CreateRBDSnapshot(
	ctx context.Context, req storageapi.CreateRBDSnapshotRequestObject,
) (storageapi.CreateRBDSnapshotResponseObject, error) {
	p, name := req.Params, req.Body.Name
	what := fmt.Sprintf("%s %s/%s of %s", record.JobSnapshotImage, req.Pool, req.Image, value(p.Cluster))
	j, err := a.once(ctx, p.IdempotencyKey, what, req.Body, func(ctx context.Context) (record.Job, error) {
		i, err := a.image(ctx, p.Cluster, req.Pool, req.Image)
		if err != nil {
			return record.Job{}, err
		}
		return begun(a.volumes.Snapshot(ctx, record.SnapshotRequest{
			Volume: i.ID, Kind: record.JobSnapshotImage, Name: name,
		}))
	})
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedImageSnapshot(ctx, &j)
	return storageapi.CreateRBDSnapshot202JSONResponse(out), err
}

// DeleteRBDSnapshot begins to remove a snapshot of an image.
func (a *API) DeleteRBDSnapshot(
	ctx context.Context, req storageapi.DeleteRBDSnapshotRequestObject,
) (storageapi.DeleteRBDSnapshotResponseObject, error) {
	p := req.Params
	what := fmt.Sprintf("%s %s/%s@%s of %s", record.JobUnsnapshotImage, req.Pool, req.Image, req.Snap, value(p.Cluster))
	j, err := a.once(ctx, p.IdempotencyKey, what, nil, func(ctx context.Context) (record.Job, error) {
		i, err := a.image(ctx, p.Cluster, req.Pool, req.Image)
		if err != nil {
			return record.Job{}, err
		}
		sn, err := a.store.SnapshotNamed(ctx, &i.Volume, req.Snap)
		if err != nil {
			return record.Job{}, err
		}
		return begun(a.volumes.DeleteSnapshot(ctx, sn.ID, record.JobUnsnapshotImage, false))
	})
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedImageSnapshot(ctx, &j)
	return storageapi.DeleteRBDSnapshot202JSONResponse(out), err
}

// RefreshRBDUsage begins to count what images use.
func (a *API) RefreshRBDUsage(
	ctx context.Context, req storageapi.RefreshRBDUsageRequestObject,
) (storageapi.RefreshRBDUsageResponseObject, error) {
	cluster, err := a.clusterOf(ctx, req.Params.Cluster)
	if err != nil {
		return nil, err
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, record.JobCountUsage, cluster,
		func(ctx context.Context) (record.Job, error) { return begun(a.volumes.CountUsage(ctx, cluster)) })
	return storageapi.RefreshRBDUsage202JSONResponse{
		JobId: j.ID, State: stateOf(&j), Links: links(&j),
		Resource: storageapi.UsageRef{ClusterIds: record.SplitClusters(j.ResourceID)},
	}, err
}
