package httpapi

import (
	"context"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// apiVolume returns a volume for callers, with its claim if it is in one of the storage classes.
func apiVolume(v record.Volume, classes map[string]record.Class) storageapi.Volume {
	out := storageapi.Volume{
		Id: v.ID, TenantId: v.Tenant, ClusterId: v.ClusterID, PoolId: v.PoolID, Name: v.Name,
		Kind: storageapi.VolumeKind(v.Kind), Policy: v.Policy, BackendNativeId: v.Shown(), SizeBytes: v.Size,
		UsedBytes: known(v.Used), SizeEnforced: v.Enforced, State: storageapi.VolumeState(v.State),
		Health: storageapi.Condition(v.Health), Managed: !v.Foreign, SourceSnapshotId: v.SourceID, LastError: v.LastError,
		CreatedAt: v.CreatedAt.Time, UpdatedAt: v.UpdatedAt.Time,
	}
	if o := v.Owner.V; o != (record.Owner{}) {
		out.Owner = &storageapi.Owner{
			Product: o.Product, ResourceType: &o.ResourceType, ResourceId: &o.ResourceID, Role: &o.Role,
		}
	}
	if c, ok := classes[v.PoolID]; ok {
		out.KubernetesNamespace, out.PvcName, out.StorageClassName = c.Namespace, v.Native, c.Name
	}
	return out
}

// ListVolumes lists volumes.
func (a *API) ListVolumes(
	ctx context.Context, req storageapi.ListVolumesRequestObject,
) (storageapi.ListVolumesResponseObject, error) {
	q := req.Params
	tenant, err := tenantFilter(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	cluster, err := a.clusterOf(ctx, q.Cluster)
	if err != nil {
		return nil, err
	}
	f := record.VolumeFilter{
		State: string(value(q.State)), Tenant: tenant, Backend: value(q.Backend), Cluster: cluster,
		Kind: string(value(q.Kind)), Product: value(q.OwnerProduct), Resource: value(q.OwnerResourceId), Text: value(q.Q),
	}
	if err := text.Check("q", f.Text); err != nil {
		return nil, err
	}
	classes, err := a.store.Classes(ctx)
	if err != nil {
		return nil, err
	}
	out, link, err := list.Rows(ctx, q.Limit, q.Cursor, 100,
		func(before string, limit int) ([]record.Volume, error) {
			f.Before = before
			return a.store.Volumes(ctx, f, limit)
		},
		func(v record.Volume) string { return v.ID },
		func(v record.Volume) storageapi.Volume { return apiVolume(v, classes) })
	return storageapi.ListVolumes200JSONResponse{
		Body: out, Headers: storageapi.ListVolumes200ResponseHeaders{Link: link},
	}, err
}

// GetVolume returns one volume.
func (a *API) GetVolume(
	ctx context.Context, req storageapi.GetVolumeRequestObject,
) (storageapi.GetVolumeResponseObject, error) {
	v, err := a.store.Volume(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	classes, err := a.store.Classes(ctx)
	return storageapi.GetVolume200JSONResponse(apiVolume(v, classes)), err
}

// CreateVolume begins to make a volume.
func (a *API) CreateVolume(
	ctx context.Context, req storageapi.CreateVolumeRequestObject,
) (storageapi.CreateVolumeResponseObject, error) {
	b := req.Body
	tenant, err := tenantOf(ctx, b.TenantId)
	if err != nil {
		return nil, err
	}
	spec := record.VolumeRequest{
		Tenant: tenant, Name: b.Name, Size: b.SizeBytes, Policy: value(b.Policy),
		Kind: driver.Kind(value(b.Kind)),
	}
	if k := b.Kubernetes; k != nil {
		spec.Claim = record.Claim{Wanted: value(k.CreatePvc), Namespace: value(k.Namespace), Class: value(k.StorageClass)}
	}
	if o := b.Owner; o != nil {
		spec.Owner = record.Owner{
			Product: o.Product, ResourceType: value(o.ResourceType), ResourceID: value(o.ResourceId), Role: value(o.Role),
		}
	}
	j, err := a.once(ctx, req.Params.IdempotencyKey, "CreateVolume", b, func(ctx context.Context) (record.Job, error) {
		return begun(a.volumes.Create(ctx, spec))
	})
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedVolume(ctx, &j)
	return storageapi.CreateVolume202JSONResponse(out), err
}

// checkNoClaims refuses fields about claims of Kubernetes where nothing can be chosen, by their names in order.
func checkNoClaims(names []string, given ...*string) error {
	for i, g := range given {
		if g != nil {
			return fault.InvalidField(names[i], "cannot be chosen here").WithCode("unsupported")
		}
	}
	return nil
}

// ExpandVolume begins to make a volume larger.
func (a *API) ExpandVolume(
	ctx context.Context, req storageapi.ExpandVolumeRequestObject,
) (storageapi.ExpandVolumeResponseObject, error) {
	j, err := a.once(ctx, req.Params.IdempotencyKey, "ExpandVolume "+req.Id, req.Body,
		func(ctx context.Context) (record.Job, error) {
			return begun(a.volumes.Expand(ctx, req.Id, record.JobExpandVolume, req.Body.NewSizeBytes))
		})
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedVolume(ctx, &j)
	return storageapi.ExpandVolume202JSONResponse(out), err
}

// DeleteVolume begins to remove a volume.
func (a *API) DeleteVolume(
	ctx context.Context, req storageapi.DeleteVolumeRequestObject,
) (storageapi.DeleteVolumeResponseObject, error) {
	j, err := a.once(ctx, req.Params.IdempotencyKey, "DeleteVolume "+req.Id, value(req.Params.TrashSecs),
		func(ctx context.Context) (record.Job, error) {
			return begun(a.volumes.Delete(ctx, req.Id, deletion(record.JobDeleteVolume, req.Params.TrashSecs)))
		})
	if err != nil {
		return nil, err
	}
	out, err := a.acceptedVolume(ctx, &j)
	return storageapi.DeleteVolume202JSONResponse(out), err
}
