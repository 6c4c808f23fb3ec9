package httpapi

import (
	"context"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// ListNodes lists the fleet.
func (a *API) ListNodes(
	ctx context.Context, _ hypervisorapi.ListNodesRequestObject,
) (hypervisorapi.ListNodesResponseObject, error) {
	nodes, err := a.fleet.Nodes(ctx)
	return hypervisorapi.ListNodes200JSONResponse(nodes), err
}

// GetNode returns a node.
func (a *API) GetNode(
	ctx context.Context, req hypervisorapi.GetNodeRequestObject,
) (hypervisorapi.GetNodeResponseObject, error) {
	node, err := a.fleet.Node(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetNode200JSONResponse(node), nil
}

// Heartbeat stores a node's report.
func (a *API) Heartbeat(
	ctx context.Context, req hypervisorapi.HeartbeatRequestObject,
) (hypervisorapi.HeartbeatResponseObject, error) {
	node, sequence, err := a.fleet.Heartbeat(ctx, req.Name, *req.Body, value(req.Body.After))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.Heartbeat200JSONResponse{
		Name: node.Name, Url: node.Url, Version: node.Version, Healthy: node.Healthy, Cordoned: node.Cordoned,
		Labels: node.Labels, Vcpus: node.Vcpus, MemoryMib: node.MemoryMib, FreeVcpus: node.FreeVcpus,
		FreeMemoryMib: node.FreeMemoryMib, Vms: node.Vms, Backends: node.Backends, HeartbeatAt: node.HeartbeatAt,
		Sequence: sequence,
	}, nil
}

// DeregisterNode removes a node from the registry.
func (a *API) DeregisterNode(
	ctx context.Context, req hypervisorapi.DeregisterNodeRequestObject,
) (hypervisorapi.DeregisterNodeResponseObject, error) {
	noted := a.store.NoteNode(ctx, "node.deregister", req.Name)
	return hypervisorapi.DeregisterNode204Response{}, a.fleet.Deregister(ctx, req.Name, noted)
}

// CordonNode excludes a node from the placement of new VMs.
func (a *API) CordonNode(
	ctx context.Context, req hypervisorapi.CordonNodeRequestObject,
) (hypervisorapi.CordonNodeResponseObject, error) {
	node, err := a.fleet.SetCordon(ctx, req.Name, true, a.store.NoteNode(ctx, "node.cordon", req.Name))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CordonNode200JSONResponse(node), nil
}

// UncordonNode undoes CordonNode.
func (a *API) UncordonNode(
	ctx context.Context, req hypervisorapi.UncordonNodeRequestObject,
) (hypervisorapi.UncordonNodeResponseObject, error) {
	node, err := a.fleet.SetCordon(ctx, req.Name, false, a.store.NoteNode(ctx, "node.uncordon", req.Name))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.UncordonNode200JSONResponse(node), nil
}

// ListNodeVMs lists the VMs of one host.
func (a *API) ListNodeVMs(
	ctx context.Context, req hypervisorapi.ListNodeVMsRequestObject,
) (hypervisorapi.ListNodeVMsResponseObject, error) {
	vms, err := a.fleet.NodeVMs(ctx, req.Name, caller.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.ListNodeVMs200JSONResponse(vms), nil
}

// ListFleetVMs lists the VMs of all hosts.
func (a *API) ListFleetVMs(
	ctx context.Context, _ hypervisorapi.ListFleetVMsRequestObject,
) (hypervisorapi.ListFleetVMsResponseObject, error) {
	vms, err := a.fleet.VMs(ctx, caller.From(ctx).Tenant)
	return hypervisorapi.ListFleetVMs200JSONResponse(vms), err
}

// CreateFleetVM creates a VM on one of the nodes.
func (a *API) CreateFleetVM(
	ctx context.Context, req hypervisorapi.CreateFleetVMRequestObject,
) (hypervisorapi.CreateFleetVMResponseObject, error) {
	made, err := a.fleet.Create(ctx, caller.From(ctx).Tenant, *req.Body)
	if err != nil {
		return nil, err
	}
	a.noteFleet(ctx, "fleet.vm.create", made.Node+"/"+made.Id, made.Tenant, made.Name)
	return hypervisorapi.CreateFleetVM201JSONResponse(made), nil
}

// DeleteFleetVM deletes a VM on a node.
func (a *API) DeleteFleetVM(
	ctx context.Context, req hypervisorapi.DeleteFleetVMRequestObject,
) (hypervisorapi.DeleteFleetVMResponseObject, error) {
	if err := a.fleet.Delete(ctx, req.Node, req.Id, caller.From(ctx).Tenant); err != nil {
		return nil, err
	}
	a.noteFleet(ctx, "fleet.vm.delete", req.Node+"/"+req.Id, "", "")
	return hypervisorapi.DeleteFleetVM204Response{}, nil
}

// GetCapacity returns the capacity of the fleet.
func (a *API) GetCapacity(
	ctx context.Context, _ hypervisorapi.GetCapacityRequestObject,
) (hypervisorapi.GetCapacityResponseObject, error) {
	c, err := a.fleet.Capacity(ctx)
	return hypervisorapi.GetCapacity200JSONResponse(c), err
}

// noteFleet writes the audit entry of an action that another host performed and recorded itself. An
// error is only logged: the response reports the other host's result in any case.
func (a *API) noteFleet(ctx context.Context, action, target, tenant, message string) {
	ctx = context.WithoutCancel(ctx)
	e := audit.Entry{Action: action, Target: target, Tenant: tenant, Message: message}
	if err := a.store.Note(ctx, e); err != nil {
		a.log.Error("what was done on another host is not in this one's audit log",
			"action", action, "target", target, "error", err)
	}
}
