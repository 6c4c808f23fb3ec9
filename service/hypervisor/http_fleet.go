package hypervisor

import (
	"context"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// ListNodes lists the fleet.
func (a api) ListNodes(ctx context.Context, _ hypervisorapi.ListNodesRequestObject) (hypervisorapi.ListNodesResponseObject, error) {
	nodes, err := a.s.fleet.Nodes(ctx)
	return hypervisorapi.ListNodes200JSONResponse(nodes), err
}

// GetNode reads one host.
func (a api) GetNode(ctx context.Context, req hypervisorapi.GetNodeRequestObject) (hypervisorapi.GetNodeResponseObject, error) {
	node, err := a.s.fleet.Node(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetNode200JSONResponse(node), nil
}

// Heartbeat takes in what a host says of itself.
func (a api) Heartbeat(ctx context.Context, req hypervisorapi.HeartbeatRequestObject) (hypervisorapi.HeartbeatResponseObject, error) {
	node, sequence, err := a.s.fleet.Heartbeat(ctx, req.Name, *req.Body, value(req.Body.After))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.Heartbeat200JSONResponse{Name: node.Name, Url: node.Url, Version: node.Version, Healthy: node.Healthy, Cordoned: node.Cordoned, Labels: node.Labels, Vcpus: node.Vcpus, MemoryMib: node.MemoryMib,
		FreeVcpus: node.FreeVcpus, FreeMemoryMib: node.FreeMemoryMib, Vms: node.Vms, Backends: node.Backends, HeartbeatAt: node.HeartbeatAt, Sequence: sequence}, nil
}

// DeregisterNode forgets a host.
func (a api) DeregisterNode(ctx context.Context, req hypervisorapi.DeregisterNodeRequestObject) (hypervisorapi.DeregisterNodeResponseObject, error) {
	return hypervisorapi.DeregisterNode204Response{}, a.s.fleet.Deregister(ctx, req.Name, a.s.store.NoteNode(ctx, "node.deregister", req.Name))
}

// CordonNode keeps new VMs away from a host.
func (a api) CordonNode(ctx context.Context, req hypervisorapi.CordonNodeRequestObject) (hypervisorapi.CordonNodeResponseObject, error) {
	node, err := a.s.fleet.SetCordon(ctx, req.Name, true, a.s.store.NoteNode(ctx, "node.cordon", req.Name))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CordonNode200JSONResponse(node), nil
}

// UncordonNode undoes CordonNode.
func (a api) UncordonNode(ctx context.Context, req hypervisorapi.UncordonNodeRequestObject) (hypervisorapi.UncordonNodeResponseObject, error) {
	node, err := a.s.fleet.SetCordon(ctx, req.Name, false, a.s.store.NoteNode(ctx, "node.uncordon", req.Name))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.UncordonNode200JSONResponse(node), nil
}

// ListNodeVMs lists the VMs of one host.
func (a api) ListNodeVMs(ctx context.Context, req hypervisorapi.ListNodeVMsRequestObject) (hypervisorapi.ListNodeVMsResponseObject, error) {
	vms, err := a.s.fleet.NodeVMs(ctx, req.Name, caller.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.ListNodeVMs200JSONResponse(vms), nil
}

// ListFleetVMs lists the VMs of all hosts.
func (a api) ListFleetVMs(ctx context.Context, _ hypervisorapi.ListFleetVMsRequestObject) (hypervisorapi.ListFleetVMsResponseObject, error) {
	vms, err := a.s.fleet.VMs(ctx, caller.From(ctx).Tenant)
	return hypervisorapi.ListFleetVMs200JSONResponse(vms), err
}

// CreateFleetVM makes a VM on one of the hosts.
func (a api) CreateFleetVM(ctx context.Context, req hypervisorapi.CreateFleetVMRequestObject) (hypervisorapi.CreateFleetVMResponseObject, error) {
	made, err := a.s.fleet.Create(ctx, caller.From(ctx).Tenant, *req.Body)
	if err != nil {
		return nil, err
	}
	a.s.noteFleet(ctx, "fleet.vm.create", made.Node+"/"+made.Id, made.Tenant, made.Name)
	return hypervisorapi.CreateFleetVM201JSONResponse(made), nil
}

// DeleteFleetVM removes a VM of a host.
func (a api) DeleteFleetVM(ctx context.Context, req hypervisorapi.DeleteFleetVMRequestObject) (hypervisorapi.DeleteFleetVMResponseObject, error) {
	if err := a.s.fleet.Delete(ctx, req.Node, req.Id, caller.From(ctx).Tenant); err != nil {
		return nil, err
	}
	a.s.noteFleet(ctx, "fleet.vm.delete", req.Node+"/"+req.Id, "", "")
	return hypervisorapi.DeleteFleetVM204Response{}, nil
}

// GetCapacity tells what the fleet has.
func (a api) GetCapacity(ctx context.Context, _ hypervisorapi.GetCapacityRequestObject) (hypervisorapi.GetCapacityResponseObject, error) {
	c, err := a.s.fleet.Capacity(ctx)
	return hypervisorapi.GetCapacity200JSONResponse(c), err
}
