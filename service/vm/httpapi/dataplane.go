package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/dataplane"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
)

// GetDataplaneStatus returns what the daemon has of a VM's network policy.
func (a *API) GetDataplaneStatus(
	ctx context.Context, req vmapi.GetDataplaneStatusRequestObject,
) (vmapi.GetDataplaneStatusResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	s, err := a.dataplane.Status(ctx, &r)
	if err != nil {
		return nil, err
	}
	out := vmapi.GetDataplaneStatus200JSONResponse{
		Vm: r.Name, Status: vmapi.PolicyState(s.State), Reason: caller.From(ctx).Public(s.Reason),
		Mode: vmapi.DataplaneStatusModeUnknown, SchemaVersion: dataplane.SchemaVersion,
	}
	if s.State == dataplane.Applied || s.State == dataplane.Unsupported {
		out.Applied = timeOrNil(s.AppliedAt)
	}
	if d := s.Daemon; d != nil {
		out.Mode, out.Attached, out.Revision = vmapi.DataplaneStatusMode(d.Mode), d.Attached, d.Revision
		if string(d.Mode) != driver.ModeNone {
			p, err := recode[vmapi.PolicyDocument](d.Policy)
			if err != nil {
				return nil, err
			}
			out.Policy = &p
		}
	}
	return out, nil
}

// GetEffectivePolicy returns all policies of a VM as one.
func (a *API) GetEffectivePolicy(
	ctx context.Context, req vmapi.GetEffectivePolicyRequestObject,
) (vmapi.GetEffectivePolicyResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	s, err := a.dataplane.Effective(ctx, &r)
	if err != nil {
		return nil, err
	}
	out := vmapi.GetEffectivePolicy200JSONResponse{
		Vm: r.Name, Tenant: r.Tenant, Labels: vmapi.Labels{}, Status: vmapi.PolicyState(s.State),
		Reason: caller.From(ctx).Public(s.Reason), Sources: []vmapi.PolicySource{}, Notes: orEmpty(s.Effective.Notes),
		Limit: netpolicy.MaxRules,
	}
	if r.Labels.V != nil {
		out.Labels = r.Labels.V
	}
	for _, f := range s.Effective.Sources {
		_, every := ofTenant(f.Tenant)
		out.Sources = append(out.Sources, vmapi.PolicySource{
			Kind: vmapi.PolicySourceKind(f.Kind), Name: f.Name, EveryTenant: every, DeniesIngress: f.DeniesIngress,
			DeniesEgress: f.DeniesEgress, Rules: f.Rules,
		})
	}
	if d := s.Effective.Document; d != nil {
		p, err := recode[vmapi.PolicyDocument](d)
		if err != nil {
			return nil, err
		}
		out.Policy, out.Rules = &p, d.Size()
	}
	return out, nil
}

// GetDataplaneStats returns what a VM's network policy has allowed and denied.
func (a *API) GetDataplaneStats(
	ctx context.Context, req vmapi.GetDataplaneStatsRequestObject,
) (vmapi.GetDataplaneStatsResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	s, _, err := a.dataplane.Counters(ctx, &r)
	if err != nil {
		return nil, err
	}
	out := vmapi.GetDataplaneStats200JSONResponse{Vm: r.Name, Since: s.Since, Rules: []vmapi.RuleCount{}}
	defaults, err := recode[struct{ Ingress, Egress vmapi.VerdictCounts }](s.Defaults)
	if err != nil {
		return nil, err
	}
	out.Defaults.Ingress, out.Defaults.Egress = defaults.Ingress, defaults.Egress
	add := func(to *vmapi.TrafficCount, packets, bytes int64) {
		to.Packets, to.Bytes = to.Packets+packets, to.Bytes+bytes
	}
	for _, d := range []vmapi.VerdictCounts{defaults.Ingress, defaults.Egress} {
		add(&out.Allowed, d.Allowed.Packets, d.Allowed.Bytes)
		add(&out.Denied, d.Denied.Packets, d.Denied.Bytes)
	}
	actions := map[string]string{}
	for _, rule := range s.Policy.Ingress.Rules {
		actions[netpolicy.Ingress+"/"+rule.Name] = string(rule.Action)
	}
	for _, rule := range s.Policy.Egress.Rules {
		actions[netpolicy.Egress+"/"+rule.Name] = string(rule.Action)
	}
	for _, c := range s.Counters {
		action := actions[string(c.Direction)+"/"+c.Rule]
		out.Rules = append(out.Rules, vmapi.RuleCount{
			Direction: vmapi.PolicyDirection(c.Direction), Rule: c.Rule, Action: action, Packets: c.Packets, Bytes: c.Bytes,
		})
		if action == netpolicy.Deny {
			add(&out.Denied, c.Packets, c.Bytes)
		} else {
			add(&out.Allowed, c.Packets, c.Bytes)
		}
	}
	return out, nil
}

func apiEnd(e dataplane.End) vmapi.FlowEnd {
	return vmapi.FlowEnd{
		Address: e.Address, Port: some(e.Port), Vm: some(e.VM), Identity: e.Identity, Labels: orEmpty(e.Labels),
	}
}

func apiFlow(f dataplane.Flow) vmapi.NetworkFlow {
	return vmapi.NetworkFlow{
		Time: f.Time, Vm: f.VM, Tenant: f.Tenant, Direction: vmapi.PolicyDirection(f.Direction),
		Verdict: vmapi.NetworkFlowVerdict(f.Verdict), Rule: f.Rule, Protocol: f.Protocol, IcmpType: f.IcmpType,
		Source: apiEnd(f.Source), Destination: apiEnd(f.Destination),
	}
}

// ListVMFlows lists recent flows of a VM.
func (a *API) ListVMFlows(
	ctx context.Context, req vmapi.ListVMFlowsRequestObject,
) (vmapi.ListVMFlowsResponseObject, error) {
	r, err := a.store.Named(ctx, req.Name, req.Params.Tenant)
	if err != nil {
		return nil, err
	}
	flows, err := a.dataplane.Flows(ctx, &r, orElse(req.Params.Limit, usualFlows))
	return vmapi.ListVMFlows200JSONResponse(orEmpty(list.Each(flows, apiFlow))), err
}

// usualFlows is how many flows are listed unless the request says otherwise.
const usualFlows = 100

// observe lists recent flows of all VMs that the caller may see, or streams new ones.
func (a *API) observe(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return a.followFlows(w, r)
	}
	limit := usualFlows
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil {
		limit = n // the contract holds it within its bounds
	}
	flows, silent, err := a.dataplane.Observe(r.Context(), limit)
	if err != nil {
		return err
	}
	return rest.WriteJSON(w, http.StatusOK, "application/json", vmapi.Observed{
		Flows: orEmpty(list.Each(flows, apiFlow)), Silent: orEmpty(silent),
	})
}

// backlog is the number of flows that a slow reader of a stream may be behind before flows are left out.
const backlog = 1000

// followFlows streams flows until the client leaves or a host's own stream breaks.
func (a *API) followFlows(w http.ResponseWriter, r *http.Request) error {
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
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(a.cfg.Ending, cancel)()
	flows := make(chan vmapi.NetworkFlow, backlog)
	done := routine.Start(a.cfg.Log, "flows", func() error {
		return a.dataplane.Follow(ctx, func(f dataplane.Flow) {
			select {
			case flows <- apiFlow(f):
			default: // the reader is slow; flows are samples anyway
			}
		})
	})
	const heartbeat = 15 * time.Second
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case f := <-flows:
			err = stream.Send(0, "flow", f)
		case <-beat.C:
			err = stream.Heartbeat()
		case err := <-done:
			a.cfg.Log.Debug("a stream of flows has ended", "error", err)
			return nil // the client connects again
		}
		if err != nil {
			return nil // the client has left
		}
	}
}

// ListIdentities lists identities.
func (a *API) ListIdentities(
	ctx context.Context, _ vmapi.ListIdentitiesRequestObject,
) (vmapi.ListIdentitiesResponseObject, error) {
	all, err := a.dataplane.Identities(ctx)
	return vmapi.ListIdentities200JSONResponse(list.Each(all, func(i dataplane.Identity) vmapi.NetworkIdentity {
		return vmapi.NetworkIdentity{
			Id: i.Number, Tenant: i.Tenant, Labels: orEmpty(i.Labels), Reserved: i.Reserved, Vms: orEmpty(i.VMs),
		}
	})), err
}

// ListIPCache lists addresses with their identities.
func (a *API) ListIPCache(
	ctx context.Context, _ vmapi.ListIPCacheRequestObject,
) (vmapi.ListIPCacheResponseObject, error) {
	all, err := a.dataplane.Addresses(ctx)
	return vmapi.ListIPCache200JSONResponse(list.Each(all, func(e dataplane.Entry) vmapi.IPCacheEntry {
		return vmapi.IPCacheEntry{
			Cidr: e.Network.String(), Identity: e.Identity, Tenant: e.Tenant, Vm: some(e.VM),
			Source: vmapi.IPCacheEntrySource(e.Source),
		}
	})), err
}

// GetDataplaneHealth says how many VMs have their network policies in force.
func (a *API) GetDataplaneHealth(
	ctx context.Context, _ vmapi.GetDataplaneHealthRequestObject,
) (vmapi.GetDataplaneHealthResponseObject, error) {
	h, err := a.dataplane.Health(ctx)
	if err != nil {
		return nil, err
	}
	c := caller.From(ctx)
	out := vmapi.GetDataplaneHealth200JSONResponse{
		Status: vmapi.DataplaneHealthStatusOk, Identities: h.Identities, Groups: h.Groups, Policies: h.Policies,
		Problems: orEmpty(list.Each(h.Problems, func(p dataplane.Problem) vmapi.DataplaneProblem {
			return vmapi.DataplaneProblem{
				Vm: p.VM, Tenant: p.Tenant, Status: vmapi.PolicyState(p.State), Reason: c.Public(p.Reason),
			}
		})),
	}
	out.Vms.None, out.Vms.Pending = h.States[dataplane.None], h.States[dataplane.Pending]
	out.Vms.Applied, out.Vms.Failed = h.States[dataplane.Applied], h.States[dataplane.Failed]
	out.Vms.Unsupported = h.States[dataplane.Unsupported]
	if len(h.Problems) > 0 {
		out.Status = vmapi.DataplaneHealthStatusDegraded
	}
	return out, nil
}

// RefreshDNS has all network policies computed anew.
func (a *API) RefreshDNS(ctx context.Context, _ vmapi.RefreshDNSRequestObject) (vmapi.RefreshDNSResponseObject, error) {
	if err := a.store.Note(ctx, audit.Entry{Action: "network.refresh_dns"}); err != nil {
		return nil, err
	}
	names, vms, err := a.dataplane.Refresh(ctx)
	return vmapi.RefreshDNS200JSONResponse{Names: names, Vms: vms}, err
}
