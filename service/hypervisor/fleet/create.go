package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/placement"
)

const (
	// Limits of a VM, as in the contract.
	maxVMVCPUs  = 512
	maxVMMemory = 1 << 24 // MiB
	// tries is the maximum number of nodes that are tried for one VM.
	tries = 5
)

// Create creates a VM on the node with most free capacity, or on the one that spec names, cordoned
// or not. If tenant is set, the VM belongs to it; otherwise spec decides.
//
// A node's refusal is returned with its own message, including the limit of its policy if it names
// one. If a node cannot be reached or cannot run the VM now, the next best is tried, unless spec
// names the node. If it is unknown whether the VM was created, the fault has CodeUnreachable and
// names the node.
func (r *Registry) Create(
	ctx context.Context, tenant string, spec hypervisorapi.FleetVMSpec,
) (hypervisorapi.FleetVM, error) {
	req, err := checkSpec(tenant, &spec)
	if err != nil {
		return hypervisorapi.FleetVM{}, err
	}
	var owner string
	if spec.Tenant != nil {
		owner = *spec.Tenant
	}
	// The node's own contract lacks these two fields.
	spec.Node, spec.NodeSelector = nil, nil
	body, err := json.Marshal(spec)
	if err != nil {
		return hypervisorapi.FleetVM{}, err
	}
	var last error
	for range tries {
		one, node, err := r.reserve(ctx, &req)
		if err != nil {
			if last != nil && fault.Is(err, fault.Conflict) {
				err = last // it says more than that no other node is left
			}
			return hypervisorapi.FleetVM{}, err
		}
		vm, err := r.createOn(ctx, one, &node, body, spec.Name, owner)
		if err == nil {
			return vm, nil
		}
		last = passOn(node.Name, err)
		if !nothingMade(err) {
			last = unknownOutcome(node.Name, err)
		}
		if req.node != "" || !elsewhere(err) {
			return hypervisorapi.FleetVM{}, last
		}
		r.cfg.Log.Warn("a VM is tried on another node", "node", node.Name, "error", err)
		req.avoided = append(req.avoided, node.Name)
	}
	return hypervisorapi.FleetVM{}, last
}

func checkSpec(tenant string, spec *hypervisorapi.FleetVMSpec) (request, error) {
	size := sizeOf(spec)
	switch {
	case spec.Name == "":
		return request{}, fault.InvalidField("name", "is missing")
	case size.VCPUs < 1 || size.VCPUs > maxVMVCPUs:
		return request{}, fault.InvalidField("vcpus", "must be between 1 and %d, not %d", maxVMVCPUs, size.VCPUs)
	case size.MemoryMiB < 1 || size.MemoryMiB > maxVMMemory:
		return request{}, fault.InvalidField(
			"memory_mib", "must be between 1 and %d, not %d", maxVMMemory, size.MemoryMiB,
		)
	case tenant != "" && spec.Tenant != nil && *spec.Tenant != "" && *spec.Tenant != tenant:
		return request{}, fault.InvalidField(
			"tenant", "the credentials belong to the tenant %s; only an admin may name another", tenant,
		)
	}
	if tenant != "" {
		spec.Tenant = &tenant
	}
	req := request{Request: placement.Request{Resources: size}}
	if spec.Backend != nil {
		req.Backend = string(*spec.Backend)
	}
	if spec.NodeSelector != nil {
		if err := checkLabels("node_selector", *spec.NodeSelector); err != nil {
			return request{}, err
		}
		req.Selector = *spec.NodeSelector
	}
	if spec.Node != nil {
		req.node = *spec.Node
	}
	return req, nil
}

// createOn requests a VM from a node whose capacity is reserved, and settles or releases the
// reservation depending on the response. It waits for the response even if the caller leaves.
func (r *Registry) createOn(
	ctx context.Context, one *reservation, node *nodeRow, body []byte, name, owner string,
) (hypervisorapi.FleetVM, error) {
	p, err := r.peer(node)
	if err != nil {
		r.release(ctx, one)
		return hypervisorapi.FleetVM{}, err
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.CreateDeadline)
	defer cancel()
	vm, err := p.create(asking, body, name, owner)
	switch {
	case err == nil:
		r.settle(one, vm.Id)
	case nothingMade(err):
		r.release(ctx, one)
	default:
		r.settle(one, "")
	}
	return vm, err
}

// nothingMade reports whether a create is certain to have left nothing behind.
func nothingMade(err error) bool {
	var refused *refusal
	var status statusError
	return errors.Is(err, errNotSent) || errors.As(err, &refused) ||
		errors.As(err, &status) && status >= http.StatusBadRequest && status < http.StatusInternalServerError &&
			status != http.StatusRequestTimeout
}

// unknownOutcome returns the fault for a create whose response did not arrive.
func unknownOutcome(node string, err error) error {
	return unreachable(
		node, explain(err)+"; the VM may have been created: list the VMs of this node before you try again", err,
	)
}

// elsewhere reports whether another node may succeed where this one did not.
func elsewhere(err error) bool {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused.status == http.StatusServiceUnavailable || refused.status == http.StatusInsufficientStorage ||
			refused.status == http.StatusTooManyRequests
	}
	return errors.Is(err, errNotSent)
}

// Delete deletes a VM on a node. To tenants, VMs of others do not exist.
func (r *Registry) Delete(ctx context.Context, node, id, tenant string) error {
	row, err := findNode(ctx, r.cfg.DB, node)
	if err != nil {
		return unknownNode(err, node)
	}
	missing := fault.New(fault.NotFound, "node %s has no VM %.64q", node, id)
	if !vmID.MatchString(id) {
		return missing
	}
	p, err := r.peer(&row)
	if err != nil {
		return unreachable(node, explain(err), err)
	}
	if tenant != "" {
		reading, cancel := context.WithTimeout(ctx, r.cfg.Deadline)
		vm, err := p.get(reading, id)
		cancel()
		if err != nil {
			return passOn(node, err)
		}
		if vm.Tenant != tenant {
			return missing
		}
	}
	deleting, cancel := context.WithTimeout(ctx, r.cfg.CreateDeadline)
	defer cancel()
	if err := p.delete(deleting, id); err != nil {
		return passOn(node, err)
	}
	r.releaseVM(ctx, node, id)
	return nil
}

// silent returns since when there was no heartbeat, as text.
func (r *Registry) silent(n *nodeRow) string {
	return "no heartbeat since " + n.HeartbeatAt.UTC().Format(time.RFC3339)
}
