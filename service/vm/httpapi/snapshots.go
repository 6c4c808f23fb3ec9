package httpapi

import (
	"context"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/service/vm/record"
	"github.com/mainstay-infra/mainstay/service/vm/snapshot"
)

func apiSnapshot(r *record.VM, s record.Snapshot) vmapi.Snapshot {
	kind := vmapi.SnapshotTypeDisk
	if s.Kind == "full" {
		kind = vmapi.SnapshotTypeFull
	}
	return vmapi.Snapshot{
		Id: s.ID, VmName: r.Name, Name: s.Name, Description: s.Description, SnapshotType: kind, ParentId: some(s.Parent),
		SizeBytes: s.SizeBytes, Created: s.CreatedAt.Time, Current: s.ID == r.SnapshotID,
	}
}

// ListSnapshots lists the snapshots of a VM.
func (a *API) ListSnapshots(
	ctx context.Context, req vmapi.ListSnapshotsRequestObject,
) (vmapi.ListSnapshotsResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	all, err := a.store.Snapshots(ctx, r.ID)
	out := vmapi.ListSnapshots200JSONResponse{}
	for _, s := range all {
		out = append(out, apiSnapshot(&r, s))
	}
	return out, err
}

// GetSnapshotTree returns the tree of a VM's snapshots.
func (a *API) GetSnapshotTree(
	ctx context.Context, req vmapi.GetSnapshotTreeRequestObject,
) (vmapi.GetSnapshotTreeResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	all, err := a.store.Snapshots(ctx, r.ID)
	return vmapi.GetSnapshotTree200JSONResponse(apiNodes(&r, snapshot.Tree(all))), err
}

func apiNodes(r *record.VM, nodes []*snapshot.Node) []vmapi.SnapshotNode {
	out := []vmapi.SnapshotNode{}
	for _, n := range nodes {
		out = append(out, vmapi.SnapshotNode{Snapshot: apiSnapshot(r, n.Snapshot), Children: apiNodes(r, n.Children)})
	}
	return out
}

// CreateSnapshot takes a snapshot.
func (a *API) CreateSnapshot(
	ctx context.Context, req vmapi.CreateSnapshotRequestObject,
) (vmapi.CreateSnapshotResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	b := req.Body
	s, err := a.snapshots.Take(ctx, r.ID, snapshot.Request{
		Name: b.Name, Description: value(b.Description), Full: value(b.SnapshotType) == vmapi.SnapshotTypeFull,
	})
	if err != nil {
		return nil, err
	}
	r.SnapshotID = s.ID
	return vmapi.CreateSnapshot201JSONResponse(apiSnapshot(&r, s)), nil
}

// GetSnapshot returns one snapshot.
func (a *API) GetSnapshot(
	ctx context.Context, req vmapi.GetSnapshotRequestObject,
) (vmapi.GetSnapshotResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	s, err := a.store.Snapshot(ctx, r.ID, req.Id)
	if err != nil {
		return nil, err
	}
	return vmapi.GetSnapshot200JSONResponse(apiSnapshot(&r, s)), nil
}

// DeleteSnapshot removes a snapshot.
func (a *API) DeleteSnapshot(
	ctx context.Context, req vmapi.DeleteSnapshotRequestObject,
) (vmapi.DeleteSnapshotResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	return vmapi.DeleteSnapshot204Response{}, a.snapshots.Delete(ctx, r.ID, req.Id)
}

// RevertSnapshot returns a VM to a snapshot.
func (a *API) RevertSnapshot(
	ctx context.Context, req vmapi.RevertSnapshotRequestObject,
) (vmapi.RevertSnapshotResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	if err := a.snapshots.Revert(ctx, r.ID, req.Id); err != nil {
		return nil, err
	}
	return vmapi.RevertSnapshot200JSONResponse{Status: vmapi.RevertedStatusReverted, SnapshotId: req.Id}, nil
}
