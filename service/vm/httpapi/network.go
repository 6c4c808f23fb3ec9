package httpapi

import (
	"context"
	"encoding/json"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// recode translates a document between the contract's type and that of package netpolicy, which have
// the same form in JSON.
func recode[T any](from any) (to T, err error) {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, &to)
	}
	if err != nil {
		return to, fault.Wrap(fault.Internal, err, "a network policy cannot be translated")
	}
	return to, nil
}

// GetVMPolicy returns a VM's own network policy.
func (a *API) GetVMPolicy(
	ctx context.Context, req vmapi.GetVMPolicyRequestObject,
) (vmapi.GetVMPolicyResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	status, err := a.dataplane.Status(ctx, &r)
	if err != nil {
		return nil, err
	}
	out, err := a.apiVMPolicy(ctx, &r, status.State, status.Reason)
	return vmapi.GetVMPolicy200JSONResponse(out), err
}

// SetVMPolicy replaces a VM's own network policy.
func (a *API) SetVMPolicy(
	ctx context.Context, req vmapi.SetVMPolicyRequestObject,
) (vmapi.SetVMPolicyResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	p, err := recode[netpolicy.Policy](req.Body)
	if err != nil {
		return nil, err
	}
	status, err := a.dataplane.SetPolicy(ctx, &r, p)
	if err != nil {
		return nil, err
	}
	out, err := a.apiVMPolicy(ctx, &r, status.State, status.Reason)
	return vmapi.SetVMPolicy200JSONResponse(out), err
}

func (a *API) apiVMPolicy(ctx context.Context, r *record.VM, state, reason string) (vmapi.VMPolicy, error) {
	p, err := a.store.VMPolicy(ctx, r.ID)
	if err != nil {
		return vmapi.VMPolicy{}, err
	}
	out, err := recode[vmapi.VMPolicy](p.Document.V)
	out.Vm, out.Groups, out.Updated = r.Name, orEmpty(out.Groups), p.UpdatedAt.Ptr()
	out.Status, out.Reason = vmapi.PolicyState(state), caller.From(ctx).Public(reason)
	return out, err
}

// ofTenant translates the tenant of a document.
func ofTenant(tenant string) (name string, every bool) {
	if tenant == netpolicy.EveryTenant {
		return "", true
	}
	return tenant, false
}

func apiGroup(g record.NetworkGroup) (vmapi.SecurityGroup, error) {
	out, err := recode[vmapi.SecurityGroup](g.Document.V)
	out.Rules, out.Created, out.Updated = orEmpty(out.Rules), g.CreatedAt.Time, g.UpdatedAt.Time
	out.Tenant, out.EveryTenant = ofTenant(g.Tenant)
	return out, err
}

// ListSecurityGroups lists security groups by name.
func (a *API) ListSecurityGroups(
	ctx context.Context, req vmapi.ListSecurityGroupsRequestObject,
) (vmapi.ListSecurityGroupsResponseObject, error) {
	var failed error
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.NetworkGroup, error) {
			return a.store.NetworkGroups(ctx, req.Params.Tenant, after, limit)
		},
		func(g record.NetworkGroup) string { return record.DocumentKey(g.Tenant, g.Name) },
		func(g record.NetworkGroup) vmapi.SecurityGroup {
			shown, err := apiGroup(g)
			if err != nil {
				failed = err
			}
			return shown
		})
	if err == nil {
		err = failed
	}
	return vmapi.ListSecurityGroups200JSONResponse{
		Body: out, Headers: vmapi.ListSecurityGroups200ResponseHeaders{Link: link},
	}, err
}

// PutSecurityGroup adds a security group, or replaces it.
func (a *API) PutSecurityGroup(
	ctx context.Context, req vmapi.PutSecurityGroupRequestObject,
) (vmapi.PutSecurityGroupResponseObject, error) {
	tenant, err := record.NetworkOwner(caller.From(ctx), req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	g, err := recode[netpolicy.Group](req.Body)
	if err != nil {
		return nil, err
	}
	stored, err := a.dataplane.PutGroup(ctx, tenant, g)
	if err != nil {
		return nil, err
	}
	out, err := apiGroup(stored)
	return vmapi.PutSecurityGroup201JSONResponse(out), err
}

// GetSecurityGroup returns one security group.
func (a *API) GetSecurityGroup(
	ctx context.Context, req vmapi.GetSecurityGroupRequestObject,
) (vmapi.GetSecurityGroupResponseObject, error) {
	g, err := a.store.NetworkGroup(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	out, err := apiGroup(g)
	return vmapi.GetSecurityGroup200JSONResponse(out), err
}

// DeleteSecurityGroup removes a security group that nothing uses.
func (a *API) DeleteSecurityGroup(
	ctx context.Context, req vmapi.DeleteSecurityGroupRequestObject,
) (vmapi.DeleteSecurityGroupResponseObject, error) {
	return vmapi.DeleteSecurityGroup204Response{}, a.store.DeleteNetworkGroup(ctx, req.Name, req.Params.Tenant)
}

func apiNetworkPolicy(p record.NetworkPolicy) vmapi.NetworkPolicy {
	out := vmapi.NetworkPolicy{Name: p.Name, Document: p.Document.V, Created: p.CreatedAt.Time, Updated: p.UpdatedAt.Time}
	out.Tenant, out.EveryTenant = ofTenant(p.Tenant)
	return out
}

// ListNetworkPolicies lists network policies by name.
func (a *API) ListNetworkPolicies(
	ctx context.Context, req vmapi.ListNetworkPoliciesRequestObject,
) (vmapi.ListNetworkPoliciesResponseObject, error) {
	out, link, err := list.Rows(ctx, req.Params.Limit, req.Params.Cursor, 100,
		func(after string, limit int) ([]record.NetworkPolicy, error) {
			return a.store.NetworkPolicies(ctx, req.Params.Tenant, after, limit)
		},
		func(p record.NetworkPolicy) string { return record.DocumentKey(p.Tenant, p.Name) }, apiNetworkPolicy)
	return vmapi.ListNetworkPolicies200JSONResponse{
		Body: out, Headers: vmapi.ListNetworkPolicies200ResponseHeaders{Link: link},
	}, err
}

// PutNetworkPolicy adds a network policy, or replaces it.
func (a *API) PutNetworkPolicy(
	ctx context.Context, req vmapi.PutNetworkPolicyRequestObject,
) (vmapi.PutNetworkPolicyResponseObject, error) {
	tenant, err := record.NetworkOwner(caller.From(ctx), req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	p, err := a.dataplane.PutCilium(ctx, tenant, *req.Body)
	if err != nil {
		return nil, err
	}
	return vmapi.PutNetworkPolicy201JSONResponse(apiNetworkPolicy(p)), nil
}

// GetNetworkPolicy returns one network policy.
func (a *API) GetNetworkPolicy(
	ctx context.Context, req vmapi.GetNetworkPolicyRequestObject,
) (vmapi.GetNetworkPolicyResponseObject, error) {
	p, err := a.store.NetworkPolicy(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	return vmapi.GetNetworkPolicy200JSONResponse(apiNetworkPolicy(p)), nil
}

// DeleteNetworkPolicy removes a network policy.
func (a *API) DeleteNetworkPolicy(
	ctx context.Context, req vmapi.DeleteNetworkPolicyRequestObject,
) (vmapi.DeleteNetworkPolicyResponseObject, error) {
	return vmapi.DeleteNetworkPolicy204Response{}, a.store.DeleteNetworkPolicy(ctx, req.Name, req.Params.Tenant)
}
