package grpcapi

import (
	"context"

	storagepb "github.com/mainstay-infra/mainstay/api/proto/storage/v1"
	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
)

// ListClusters lists what the backends are.
func (s *server) ListClusters(
	ctx context.Context, in *storagepb.ListClustersRequest,
) (*storagepb.ListClustersResponse, error) {
	q := storageapi.ListClustersParams{
		Backend: given[string](in.Backend), Limit: limit(in.Limit), Cursor: given[string](in.Cursor),
	}
	e, err := s.enter(ctx, "ListClusters", "", q, nil)
	if err != nil {
		return nil, err
	}
	page, err := answer[storageapi.ListClusters200JSONResponse](
		s.Operations.ListClusters(e, storageapi.ListClustersRequestObject{Params: q}))
	return &storagepb.ListClustersResponse{
		Clusters: list.Each(page.Body, clusterOf), NextCursor: next(page.Headers.Link),
	}, err
}

// ListPools lists the parts of clusters in which volumes are.
func (s *server) ListPools(ctx context.Context, in *storagepb.ListPoolsRequest) (*storagepb.ListPoolsResponse, error) {
	q := storageapi.ListPoolsParams{
		Cluster: given[string](in.Cluster), Backend: given[string](in.Backend), Kind: given[storageapi.PoolKind](in.Kind),
		Limit: limit(in.Limit), Cursor: given[string](in.Cursor),
	}
	e, err := s.enter(ctx, "ListPools", "", q, nil)
	if err != nil {
		return nil, err
	}
	page, err := answer[storageapi.ListPools200JSONResponse](
		s.Operations.ListPools(e, storageapi.ListPoolsRequestObject{Params: q}))
	return &storagepb.ListPoolsResponse{
		Pools: list.Each(page.Body, poolOf), NextCursor: next(page.Headers.Link),
	}, err
}

// ListBuckets lists buckets.
func (s *server) ListBuckets(
	ctx context.Context, in *storagepb.ListBucketsRequest,
) (*storagepb.ListBucketsResponse, error) {
	q := storageapi.ListBucketsParams{
		Tenant: given[string](in.Tenant), Backend: given[string](in.Backend), State: given[storageapi.BucketState](in.State),
		Limit: limit(in.Limit), Cursor: given[string](in.Cursor),
	}
	e, err := s.enter(ctx, "ListBuckets", "", q, nil)
	if err != nil {
		return nil, err
	}
	page, err := answer[storageapi.ListBuckets200JSONResponse](
		s.Operations.ListBuckets(e, storageapi.ListBucketsRequestObject{Params: q}))
	return &storagepb.ListBucketsResponse{
		Buckets: list.Each(page.Body, bucketOf), NextCursor: next(page.Headers.Link),
	}, err
}

// ListVolumes lists volumes.
func (s *server) ListVolumes(
	ctx context.Context, in *storagepb.ListVolumesRequest,
) (*storagepb.ListVolumesResponse, error) {
	volumes, cursor, err := s.listVolumes(ctx, storageapi.ListVolumesParams{
		State: given[storageapi.VolumeState](in.State), Tenant: given[string](in.Tenant),
		Backend: given[string](in.Backend), Cluster: given[string](in.Cluster),
		Kind: given[storageapi.VolumeKind](in.Kind), OwnerProduct: given[string](in.OwnerProduct),
		OwnerResourceId: given[string](in.OwnerResourceId), Q: given[string](in.Q), Limit: limit(in.Limit),
		Cursor: given[string](in.Cursor),
	})
	return &storagepb.ListVolumesResponse{Volumes: volumes, NextCursor: cursor}, err
}

// ListVolumesByOwner lists the volumes that a product has had made.
func (s *server) ListVolumesByOwner(
	ctx context.Context, in *storagepb.ListVolumesByOwnerRequest,
) (*storagepb.ListVolumesByOwnerResponse, error) {
	// The product is passed on if it is empty, so that it is refused, after the caller.
	volumes, cursor, err := s.listVolumes(ctx, storageapi.ListVolumesParams{
		OwnerProduct: &in.Product, OwnerResourceId: given[string](in.ResourceId), Limit: limit(in.Limit),
		Cursor: given[string](in.Cursor),
	})
	return &storagepb.ListVolumesByOwnerResponse{Volumes: volumes, NextCursor: cursor}, err
}

func (s *server) listVolumes(
	ctx context.Context, q storageapi.ListVolumesParams,
) (volumes []*storagepb.Volume, cursor string, err error) {
	e, err := s.enter(ctx, "ListVolumes", "", q, nil)
	if err != nil {
		return nil, "", err
	}
	page, err := answer[storageapi.ListVolumes200JSONResponse](
		s.Operations.ListVolumes(e, storageapi.ListVolumesRequestObject{Params: q}))
	return list.Each(page.Body, volumeOf), next(page.Headers.Link), err
}

// GetVolume shows one volume.
func (s *server) GetVolume(ctx context.Context, in *storagepb.GetVolumeRequest) (*storagepb.GetVolumeResponse, error) {
	e, err := s.enter(ctx, "GetVolume", in.Id, nil, nil)
	if err != nil {
		return nil, err
	}
	v, err := answer[storageapi.GetVolume200JSONResponse](
		s.Operations.GetVolume(e, storageapi.GetVolumeRequestObject{Id: in.Id}))
	return &storagepb.GetVolumeResponse{Volume: volumeOf(storageapi.Volume(v))}, err
}

// CreateVolume begins to make a volume.
func (s *server) CreateVolume(
	ctx context.Context, in *storagepb.CreateVolumeRequest,
) (*storagepb.CreateVolumeResponse, error) {
	key, err := word(ctx)
	if err != nil {
		return nil, err
	}
	params := storageapi.CreateVolumeParams{IdempotencyKey: key}
	body := &storageapi.VolumeSpec{
		Name: in.Name, SizeBytes: in.SizeBytes, TenantId: in.TenantId, Policy: given[string](in.Policy),
		Kind: given[storageapi.VolumeKind](in.Kind),
	}
	if o := in.Owner; o != nil {
		body.Owner = &storageapi.Owner{
			Product: o.Product, ResourceType: given[string](o.ResourceType), ResourceId: given[string](o.ResourceId),
			Role: given[string](o.Role),
		}
	}
	e, err := s.enter(ctx, "CreateVolume", "", params, body)
	if err != nil {
		return nil, err
	}
	j, err := answer[storageapi.CreateVolume202JSONResponse](
		s.Operations.CreateVolume(e, storageapi.CreateVolumeRequestObject{Params: params, Body: body}))
	return &storagepb.CreateVolumeResponse{
		JobId: j.JobId, State: string(j.State), VolumeId: j.Resource.VolumeId,
	}, err
}

// DeleteVolume begins to remove a volume.
func (s *server) DeleteVolume(
	ctx context.Context, in *storagepb.DeleteVolumeRequest,
) (*storagepb.DeleteVolumeResponse, error) {
	key, err := word(ctx)
	if err != nil {
		return nil, err
	}
	params := storageapi.DeleteVolumeParams{IdempotencyKey: key}
	e, err := s.enter(ctx, "DeleteVolume", in.Id, params, nil)
	if err != nil {
		return nil, err
	}
	j, err := answer[storageapi.DeleteVolume202JSONResponse](
		s.Operations.DeleteVolume(e, storageapi.DeleteVolumeRequestObject{Id: in.Id, Params: params}))
	return &storagepb.DeleteVolumeResponse{
		JobId: j.JobId, State: string(j.State), VolumeId: j.Resource.VolumeId,
	}, err
}

// CreateSnapshot begins to take a snapshot of a volume.
func (s *server) CreateSnapshot(
	ctx context.Context, in *storagepb.CreateSnapshotRequest,
) (*storagepb.CreateSnapshotResponse, error) {
	key, err := word(ctx)
	if err != nil {
		return nil, err
	}
	params := storageapi.CreateSnapshotParams{IdempotencyKey: key}
	body := &storageapi.SnapshotSpec{Name: given[string](in.Name)}
	e, err := s.enter(ctx, "CreateSnapshot", in.Id, params, body)
	if err != nil {
		return nil, err
	}
	j, err := answer[storageapi.CreateSnapshot202JSONResponse](s.Operations.CreateSnapshot(
		e, storageapi.CreateSnapshotRequestObject{Id: in.Id, Params: params, Body: body}))
	return &storagepb.CreateSnapshotResponse{
		JobId: j.JobId, State: string(j.State), SnapshotId: j.Resource.SnapshotId, VolumeId: j.Resource.VolumeId,
	}, err
}

// answer returns what an operation has answered.
func answer[T, A any](out A, err error) (none T, _ error) {
	if err != nil {
		return none, err
	}
	t, ok := any(out).(T)
	if !ok {
		return none, fault.New(fault.Internal, "the operation has another answer: %T", out)
	}
	return t, nil
}
