package httpapi

import (
	"context"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

var errNoPolicies = fault.New(fault.Unavailable, "this daemon enforces no network policies yet")

// GetNetworkPolicy returns a VM's network policy.
func (a *API) GetNetworkPolicy(
	context.Context, hypervisorapi.GetNetworkPolicyRequestObject,
) (hypervisorapi.GetNetworkPolicyResponseObject, error) {
	return nil, errNoPolicies
}

// PutNetworkPolicy replaces a VM's network policy.
func (a *API) PutNetworkPolicy(
	context.Context, hypervisorapi.PutNetworkPolicyRequestObject,
) (hypervisorapi.PutNetworkPolicyResponseObject, error) {
	return nil, errNoPolicies
}

// DeleteNetworkPolicy removes a VM's network policy.
func (a *API) DeleteNetworkPolicy(
	context.Context, hypervisorapi.DeleteNetworkPolicyRequestObject,
) (hypervisorapi.DeleteNetworkPolicyResponseObject, error) {
	return nil, errNoPolicies
}

// ListFlows lists recent decisions of a VM's network policy.
func (a *API) ListFlows(
	context.Context, hypervisorapi.ListFlowsRequestObject,
) (hypervisorapi.ListFlowsResponseObject, error) {
	return nil, errNoPolicies
}
