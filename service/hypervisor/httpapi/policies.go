package httpapi

import (
	"context"
	"net/http"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
	"github.com/mainstay-infra/mainstay/service/hypervisor/policy"
)

// GetNetworkPolicy returns a VM's network policy.
func (a *API) GetNetworkPolicy(
	ctx context.Context, req hypervisorapi.GetNetworkPolicyRequestObject,
) (hypervisorapi.GetNetworkPolicyResponseObject, error) {
	s, err := a.policies.Get(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.GetNetworkPolicy200JSONResponse(apiPolicyState(s)), nil
}

// PutNetworkPolicy replaces a VM's network policy.
func (a *API) PutNetworkPolicy(
	ctx context.Context, req hypervisorapi.PutNetworkPolicyRequestObject,
) (hypervisorapi.PutNetworkPolicyResponseObject, error) {
	p := netpolicy.Policy{
		Ingress: directionOf(req.Body.Policy.Ingress), Egress: directionOf(req.Body.Policy.Egress),
	}
	if err := a.policies.Set(ctx, req.Id, req.Body.Revision, &p); err != nil {
		return nil, err
	}
	s, err := a.policies.Get(ctx, req.Id)
	if err != nil {
		return nil, err
	}
	return hypervisorapi.PutNetworkPolicy200JSONResponse(apiPolicyState(s)), nil
}

// DeleteNetworkPolicy removes a VM's network policy.
func (a *API) DeleteNetworkPolicy(
	ctx context.Context, req hypervisorapi.DeleteNetworkPolicyRequestObject,
) (hypervisorapi.DeleteNetworkPolicyResponseObject, error) {
	return hypervisorapi.DeleteNetworkPolicy204Response{}, a.policies.Set(ctx, req.Id, nil, nil)
}

func directionOf(d hypervisorapi.PolicyDirection) netpolicy.Direction {
	return netpolicy.Direction{
		Default: netpolicy.Action(d.Default),
		Rules: list.Each(d.Rules, func(r hypervisorapi.PolicyRule) netpolicy.Rule {
			return netpolicy.Rule{
				Name: r.Name, Action: netpolicy.Action(r.Action),
				Peers: list.Each(value(r.Peers), func(p hypervisorapi.PolicyPeer) netpolicy.Peer {
					return netpolicy.Peer{CIDR: value(p.Cidr), Except: value(p.Except), FQDN: value(p.Fqdn)}
				}),
				Ports: list.Each(value(r.Ports), func(p hypervisorapi.PolicyPort) netpolicy.Port {
					return netpolicy.Port{
						Protocol: string(p.Protocol), Port: value(p.Port), EndPort: value(p.EndPort),
						ICMPType: p.IcmpType, ICMPCode: p.IcmpCode,
					}
				}),
			}
		}),
	}
}

func apiDirection(d netpolicy.Direction) hypervisorapi.PolicyDirection {
	return hypervisorapi.PolicyDirection{
		Default: hypervisorapi.PolicyAction(d.Default),
		Rules: list.Each(d.Rules, func(r netpolicy.Rule) hypervisorapi.PolicyRule {
			out := hypervisorapi.PolicyRule{Name: r.Name, Action: hypervisorapi.PolicyAction(r.Action)}
			if len(r.Peers) > 0 {
				out.Peers = ref(list.Each(r.Peers, func(p netpolicy.Peer) hypervisorapi.PolicyPeer {
					peer := hypervisorapi.PolicyPeer{Cidr: some(p.CIDR), Fqdn: some(p.FQDN)}
					if len(p.Except) > 0 {
						peer.Except = &p.Except
					}
					return peer
				}))
			}
			if len(r.Ports) > 0 {
				out.Ports = ref(list.Each(r.Ports, func(p netpolicy.Port) hypervisorapi.PolicyPort {
					return hypervisorapi.PolicyPort{
						Protocol: hypervisorapi.PolicyPortProtocol(p.Protocol), Port: some(p.Port), EndPort: some(p.EndPort),
						IcmpType: p.ICMPType, IcmpCode: p.ICMPCode,
					}
				}))
			}
			return out
		}),
	}
}

func apiPolicyState(s policy.State) hypervisorapi.NetworkPolicyState {
	p := netpolicy.AllowAll()
	out := hypervisorapi.NetworkPolicyState{
		Revision: s.Revision, Attached: s.Attached, Mode: hypervisorapi.NetworkPolicyStateModeNone,
		Counters: []hypervisorapi.RuleCounter{},
	}
	if s.Policy.V != nil {
		p, out.Mode = *s.Policy.V, hypervisorapi.NetworkPolicyStateModeUnsupported
		if s.Supported {
			out.Mode = hypervisorapi.NetworkPolicyStateModeEnforced
		}
	}
	out.Policy = hypervisorapi.NetworkPolicy{Ingress: apiDirection(p.Ingress), Egress: apiDirection(p.Egress)}
	if s.Enforced {
		out.Since = ref(s.Since.UTC())
	}
	for _, d := range []struct {
		name   hypervisorapi.FlowDirection
		policy *netpolicy.Direction
		counts network.PolicyCounters
		sums   *hypervisorapi.VerdictCounters
	}{
		{hypervisorapi.FlowDirectionIngress, &p.Ingress, s.Ingress, &out.Defaults.Ingress},
		{hypervisorapi.FlowDirectionEgress, &p.Egress, s.Egress, &out.Defaults.Egress},
	} {
		for i, t := range d.counts.Rules {
			if i < len(d.policy.Rules) {
				out.Counters = append(out.Counters, hypervisorapi.RuleCounter{
					Direction: d.name, Rule: d.policy.Rules[i].Name, Packets: t.Packets, Bytes: t.Bytes,
				})
			}
		}
		t := hypervisorapi.Traffic{Packets: d.counts.Default.Packets, Bytes: d.counts.Default.Bytes}
		if d.policy.Default == netpolicy.Deny {
			d.sums.Denied = t
		} else {
			d.sums.Allowed = t
		}
	}
	return out
}

// ListFlows lists recent decisions of a VM's network policy.
func (a *API) ListFlows(
	ctx context.Context, req hypervisorapi.ListFlowsRequestObject,
) (hypervisorapi.ListFlowsResponseObject, error) {
	found, err := a.policies.Flows(ctx, req.Id, orElse(req.Params.Limit, 100))
	if err != nil {
		return nil, err
	}
	c := caller.From(ctx)
	return hypervisorapi.ListFlows200JSONResponse(list.Each(found, func(f policy.Flow) hypervisorapi.Flow {
		return apiFlow(&f, c)
	})), nil
}

func apiFlow(f *policy.Flow, c caller.Caller) hypervisorapi.Flow {
	out := hypervisorapi.Flow{
		Time: f.Time.UTC(), VmId: f.VM, Vm: f.Name, Tenant: f.Tenant, Direction: hypervisorapi.FlowDirectionEgress,
		Verdict: hypervisorapi.FlowVerdictDenied, Rule: f.Rule, Protocol: netpolicy.ProtocolName(f.Protocol),
		Source: f.Source.Addr().String(), Destination: f.Destination.Addr().String(),
		SourcePort: some(int(f.Source.Port())), DestinationPort: some(int(f.Destination.Port())),
	}
	if f.Ingress {
		out.Direction = hypervisorapi.FlowDirectionIngress
	}
	if f.Allowed {
		out.Verdict = hypervisorapi.FlowVerdictAllowed
	}
	if f.ICMPType >= 0 {
		out.IcmpType = &f.ICMPType
	}
	if f.Visible(c) {
		out.PeerVmId = &f.PeerVM
	}
	return out
}

const feedFlow = "flow"

// followFlows streams decisions about the VMs in the caller's scope.
func (a *API) followFlows(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	_, newest := a.policies.Bounds()
	if r.Method == http.MethodHead { // patterns of GET also match HEAD
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	stream, err := httpserve.NewEventStream(w, r, 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	position, resumed := stream.LastEventID()
	if !resumed || position > newest {
		position = newest
		stream.StartAfter(newest)
		if stream.Send(newest, feedReset, struct{}{}) != nil {
			return nil // the client has left
		}
	}
	wake, cancel := a.policies.Bell().Subscribe()
	defer cancel()
	next := func(ctx context.Context, _ int64) ([]httpserve.Event, error) {
		found, until := a.policies.After(ctx, position, feedPage)
		// Read last: what is removed meanwhile must be noticed.
		oldest, newest := a.policies.Bounds()
		if position < oldest-1 {
			position = newest
			return []httpserve.Event{{ID: newest, Name: feedReset, Data: struct{}{}}}, nil
		}
		position = until
		c := caller.From(ctx)
		return list.Each(found, func(f policy.Flow) httpserve.Event {
			return httpserve.Event{ID: f.ID, Name: feedFlow, Data: apiFlow(&f, c)}
		}), nil
	}
	return httpserve.Loop(stream.Context(), stream, wake, 0, next)
}
