package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
)

// CodeStaleRevision is the code of the refusal of a policy that replaces another revision than the
// daemon has.
const CodeStaleRevision = "stale_revision"

// PolicyState is what the daemon has of a VM's network policy, and what it has counted.
type PolicyState = hypervisorapi.NetworkPolicyState

// RefusesNames reports whether a daemon refuses a policy because it has no rules for names.
func RefusesNames(err error) bool {
	f := fault.From(err)
	return f != nil && f.Kind == fault.Invalid && strings.Contains(f.Message, ".fqdn: ")
}

// The modes of a PolicyState.
const (
	ModeEnforced    = string(hypervisorapi.NetworkPolicyStateModeEnforced)
	ModeNone        = string(hypervisorapi.NetworkPolicyStateModeNone)
	ModeUnsupported = string(hypervisorapi.NetworkPolicyStateModeUnsupported)
)

// Flow is a decision of the daemon about a flow. It names VMs by their ids at the daemon.
type Flow = hypervisorapi.Flow

// NetworkPolicy returns the policy that the daemon has of a VM.
func (d *Driver) NetworkPolicy(ctx context.Context, at Place) (PolicyState, error) {
	s, err := call[PolicyState](ctx, d, at, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.GetNetworkPolicy(ctx, at.ID)
		})
	return s, checkPolicyState(&s, err)
}

// SetNetworkPolicy replaces the policy of a VM, which must have the given revision at the daemon. It
// fails with Conflict and CodeStaleRevision if it has another one.
func (d *Driver) SetNetworkPolicy(
	ctx context.Context, at Place, p *netpolicy.Document, revision int64,
) (PolicyState, error) {
	body, err := json.Marshal(struct {
		Policy   *netpolicy.Document `json:"policy"`
		Revision int64               `json:"revision"`
	}{p, revision})
	if err != nil {
		return PolicyState{}, err
	}
	s, err := call[PolicyState](ctx, d, at, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.PutNetworkPolicyWithBody(ctx, at.ID, "application/json", bytes.NewReader(body))
		})
	return s, checkPolicyState(&s, err)
}

func checkPolicyState(s *PolicyState, err error) error {
	if err == nil && !s.Mode.Valid() {
		return fault.New(fault.Unavailable, "the hypervisor daemon's answer is not in the form of a daemon's")
	}
	return err
}

// RemoveNetworkPolicy removes the policy of a VM. It succeeds if there is none.
func (d *Driver) RemoveNetworkPolicy(ctx context.Context, at Place) error {
	c, err := d.at(at.Node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(forTenant(ctx, at.Tenant), readTimeout)
	defer cancel()
	_, err = rest.Read(c.DeleteNetworkPolicy(ctx, at.ID))
	return d.translate(ctx, at, err)
}

// Flows returns recent decisions about the flows of a VM, newest first.
func (d *Driver) Flows(ctx context.Context, at Place, limit int) ([]Flow, error) {
	return call[[]Flow](ctx, d, at, readTimeout,
		func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
			return c.ListFlows(ctx, at.ID, &hypervisorapi.ListFlowsParams{Limit: &limit})
		})
}

// FollowFlows calls f with each decision about flows of VMs of a tenant on a host, until ctx ends or the
// stream breaks, which is an error. Without a tenant, it follows the VMs of all tenants.
func (d *Driver) FollowFlows(ctx context.Context, node, tenant string, f func(Flow)) error {
	at := Place{Node: node, Tenant: tenant}
	return d.stream(ctx, at, func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error) {
		return c.FollowFlows(ctx, &hypervisorapi.FollowFlowsParams{}, acceptEvents)
	}, func(kind, _, data string) {
		var flow Flow
		if kind == "flow" && json.Unmarshal([]byte(data), &flow) == nil {
			f(flow)
		}
	})
}
