package hypervisor

import (
	"context"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
)

// noteNode writes the audit entry of a change to a node, in the transaction of the change.
func (s *Service) noteNode(ctx context.Context, action, name string) func(tx *db.Tx) error {
	return func(tx *db.Tx) error { return s.note(ctx, tx, audit.Entry{Action: action, Target: name}) }
}

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
	return hypervisorapi.DeregisterNode204Response{}, a.s.fleet.Deregister(ctx, req.Name, a.s.noteNode(ctx, "node.deregister", req.Name))
}

// CordonNode keeps new VMs away from a host.
func (a api) CordonNode(ctx context.Context, req hypervisorapi.CordonNodeRequestObject) (hypervisorapi.CordonNodeResponseObject, error) {
	node, err := a.s.fleet.SetCordon(ctx, req.Name, true, a.s.noteNode(ctx, "node.cordon", req.Name))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.CordonNode200JSONResponse(node), nil
}

// UncordonNode undoes CordonNode.
func (a api) UncordonNode(ctx context.Context, req hypervisorapi.UncordonNodeRequestObject) (hypervisorapi.UncordonNodeResponseObject, error) {
	node, err := a.s.fleet.SetCordon(ctx, req.Name, false, a.s.noteNode(ctx, "node.uncordon", req.Name))
	if err != nil {
		return nil, err
	}
	return hypervisorapi.UncordonNode200JSONResponse(node), nil
}

// ListNodeVMs lists the VMs of one host.
func (a api) ListNodeVMs(ctx context.Context, req hypervisorapi.ListNodeVMsRequestObject) (hypervisorapi.ListNodeVMsResponseObject, error) {
	vms, err := a.s.fleet.NodeVMs(ctx, req.Name, callerFrom(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.ListNodeVMs200JSONResponse(vms), nil
}

// ListFleetVMs lists the VMs of all hosts.
func (a api) ListFleetVMs(ctx context.Context, _ hypervisorapi.ListFleetVMsRequestObject) (hypervisorapi.ListFleetVMsResponseObject, error) {
	vms, err := a.s.fleet.VMs(ctx, callerFrom(ctx).Tenant)
	return hypervisorapi.ListFleetVMs200JSONResponse(vms), err
}

// CreateFleetVM makes a VM on one of the hosts.
func (a api) CreateFleetVM(ctx context.Context, req hypervisorapi.CreateFleetVMRequestObject) (hypervisorapi.CreateFleetVMResponseObject, error) {
	made, err := a.s.fleet.Create(ctx, callerFrom(ctx).Tenant, *req.Body)
	if err != nil {
		return nil, err
	}
	a.s.noteFleet(ctx, "fleet.vm.create", made.Node+"/"+made.Id, made.Tenant, made.Name)
	return hypervisorapi.CreateFleetVM201JSONResponse(made), nil
}

// DeleteFleetVM removes a VM of a host.
func (a api) DeleteFleetVM(ctx context.Context, req hypervisorapi.DeleteFleetVMRequestObject) (hypervisorapi.DeleteFleetVMResponseObject, error) {
	if err := a.s.fleet.Delete(ctx, req.Node, req.Id, callerFrom(ctx).Tenant); err != nil {
		return nil, err
	}
	a.s.noteFleet(ctx, "fleet.vm.delete", req.Node+"/"+req.Id, "", "")
	return hypervisorapi.DeleteFleetVM204Response{}, nil
}

// noteFleet writes the audit entry of what another host has done, and has noted itself:
// the answer is what that host says, whether or not it can be noted here too.
func (s *Service) noteFleet(ctx context.Context, action, target, tenant, message string) {
	ctx = context.WithoutCancel(ctx)
	if err := s.db.Update(ctx, func(tx *db.Tx) error {
		return s.note(ctx, tx, audit.Entry{Action: action, Target: target, Tenant: tenant, Message: message})
	}); err != nil {
		s.log.Error("what was done on another host is not in this one's audit log", "action", action, "target", target, "error", err)
	}
}

// GetCapacity tells what the fleet has.
func (a api) GetCapacity(ctx context.Context, _ hypervisorapi.GetCapacityRequestObject) (hypervisorapi.GetCapacityResponseObject, error) {
	c, err := a.s.fleet.Capacity(ctx)
	return hypervisorapi.GetCapacity200JSONResponse(c), err
}

// heartbeat is what this host tells the registry.
func (s *Service) heartbeat(ctx context.Context) (hypervisorapi.Heartbeat, error) {
	h, err := s.host(ctx)
	if err != nil {
		return hypervisorapi.Heartbeat{}, err
	}
	given, err := s.cfg.labels()
	if err != nil {
		return hypervisorapi.Heartbeat{}, err
	}
	labels := hypervisorapi.Labels(given)
	out := hypervisorapi.Heartbeat{Url: s.advertised(), Version: h.Version, Labels: &labels, Vcpus: h.Vcpus, MemoryMib: h.MemoryMib, FreeVcpus: h.FreeVcpus, FreeMemoryMib: h.FreeMemoryMib, Vms: h.Vms, Backends: []hypervisorapi.Backend{}}
	for _, b := range h.Backends {
		if b.Available {
			out.Backends = append(out.Backends, b.Name)
		}
	}
	return out, nil
}

// nudgeFleet has the registry know soon that this host has more or less room.
func (s *Service) nudgeFleet() {
	if s.reporter != nil {
		s.reporter.Nudge()
	}
}
