package drivertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
)

// policyState is what the daemon has of a VM's network policy.
type policyState struct {
	policy   *hypervisorapi.NetworkPolicy // nil: none
	revision int64
	flows    []hypervisorapi.Flow // oldest first
}

var open = hypervisorapi.PolicyDirection{Default: "allow", Rules: []hypervisorapi.PolicyRule{}}

// policyOf returns the state of a VM's policy, which is kept.
func (d *Daemon) policyOf(vm *hypervisorapi.VM) *policyState {
	s := d.policies[vm.Id]
	if s == nil {
		s = &policyState{}
		d.policies[vm.Id] = s
	}
	return s
}

func (d *Daemon) policyAnswer(vm *hypervisorapi.VM) hypervisorapi.NetworkPolicyState {
	s := d.policyOf(vm)
	bridged := value(vm.Network.Mode, "user") == "bridge"
	out := hypervisorapi.NetworkPolicyState{
		Policy: hypervisorapi.NetworkPolicy{Ingress: open, Egress: open}, Revision: s.revision, Mode: "none",
		Attached: bridged && vm.StartedAt != nil, Counters: []hypervisorapi.RuleCounter{},
	}
	if s.policy == nil {
		return out
	}
	out.Policy, out.Mode = *s.policy, "enforced"
	if !bridged {
		out.Mode = "unsupported"
		return out
	}
	count := func(d hypervisorapi.FlowDirection, rules []hypervisorapi.PolicyRule, packets int64) {
		for _, r := range rules {
			out.Counters = append(out.Counters, hypervisorapi.RuleCounter{
				Direction: d, Rule: r.Name, Packets: packets, Bytes: 60 * packets,
			})
		}
	}
	count("ingress", s.policy.Ingress.Rules, 1)
	count("egress", s.policy.Egress.Rules, 2)
	out.Defaults.Ingress.Denied = hypervisorapi.Traffic{Packets: 3, Bytes: 180}
	return out
}

func (d *Daemon) getPolicy(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) { return 200, d.policyAnswer(vm) })
}

func (d *Daemon) putPolicy(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		var u hypervisorapi.NetworkPolicyUpdate
		if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
			return 400, errorBody(400, "%v", err)
		}
		s := d.policyOf(vm)
		if u.Revision != nil && *u.Revision != s.revision {
			e := errorBody(409, "the policy has revision %d", s.revision)
			e.Code = "stale_revision"
			return 409, e
		}
		if len(u.Policy.Ingress.Rules)+len(u.Policy.Egress.Rules) > 1000 {
			return 400, errorBody(400, "policy: has more than 1000 rules")
		}
		for i, rule := range u.Policy.Egress.Rules {
			for j, peer := range value(rule.Peers, nil) {
				if d.nameless && peer.Fqdn != nil {
					return 400, errorBody(400, "policy.egress.rules[%d].peers[%d].fqdn: this daemon has no rules for names", i, j)
				}
			}
		}
		for _, direction := range []hypervisorapi.PolicyDirection{u.Policy.Ingress, u.Policy.Egress} {
			seen := map[string]bool{}
			for _, rule := range direction.Rules {
				if seen[rule.Name] {
					return 400, errorBody(400, "policy: the rule %s is given twice", rule.Name)
				}
				seen[rule.Name] = true
			}
		}
		s.policy, s.revision = &u.Policy, s.revision+1
		return 200, d.policyAnswer(vm)
	})
}

func (d *Daemon) deletePolicy(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		if s := d.policyOf(vm); s.policy != nil {
			s.policy, s.revision = nil, s.revision+1
		}
		return 204, nil
	})
}

// named returns the VM with a name. It fails the test if there is none.
func (d *Daemon) named(name string) *hypervisorapi.VM {
	d.t.Helper()
	for _, vm := range d.vms {
		if vm.Name == name {
			return vm
		}
	}
	d.t.Fatalf("the daemon has no VM %s", name)
	return nil
}

// Policy returns the network policy that the daemon has of a VM, or nil if it has none.
func (d *Daemon) Policy(name string) *hypervisorapi.NetworkPolicy {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.policyOf(d.named(name)).policy
}

// Nameless makes the daemon one that has no rules for names.
func (d *Daemon) Nameless() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nameless = true
}

// SetPolicy changes the network policy of a VM behind the service's back. Nil removes it.
func (d *Daemon) SetPolicy(name string, p *hypervisorapi.NetworkPolicy) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policyOf(d.named(name))
	s.policy, s.revision = p, s.revision+1
}

// Flow adds a flow of a VM. The other end is the VM named peer; empty: none.
func (d *Daemon) Flow(name, peer string, f hypervisorapi.Flow) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	vm := d.named(name)
	f.VmId, f.Vm, f.Tenant = vm.Id, vm.Name, vm.Tenant
	if peer != "" {
		f.PeerVmId = &d.named(peer).Id
	}
	s := d.policyOf(vm)
	s.flows = append(s.flows, f)
	d.flowed = append(d.flowed, f)
	close(d.feed)
	d.feed = make(chan struct{})
}

// visible returns a flow as a tenant may see it.
func (d *Daemon) visible(f hypervisorapi.Flow, tenant string) hypervisorapi.Flow {
	if f.PeerVmId != nil {
		if peer := d.vms[*f.PeerVmId]; peer == nil || tenant != "" && peer.Tenant != tenant {
			f.PeerVmId = nil
		}
	}
	return f
}

func (d *Daemon) listFlows(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil {
			limit = 100
		}
		out := []hypervisorapi.Flow{}
		for _, f := range slices.Backward(d.policyOf(vm).flows) {
			if len(out) < limit {
				out = append(out, d.visible(f, tenant))
			}
		}
		return 200, out
	})
}

// followFlows is the stream of flows.
func (d *Daemon) followFlows(w http.ResponseWriter, r *http.Request) {
	tenant := r.Header.Get("Mainstay-Tenant")
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	d.mu.Lock()
	next := len(d.flowed)
	d.calls = append(d.calls, Call{"FollowFlows", r.URL.Path, tenant, r.Header.Get("Mainstay-Actor")})
	d.mu.Unlock()
	_, _ = fmt.Fprintf(w, "id: %d\nevent: reset\ndata: {}\n\n", next) // the client may have left
	for {
		d.mu.Lock()
		feed := d.feed
		for ; next < len(d.flowed); next++ {
			f := d.flowed[next]
			if tenant != "" && f.Tenant != tenant {
				continue
			}
			data, _ := json.Marshal(d.visible(f, tenant)) // a plain value
			_, _ = fmt.Fprintf(w, "id: %d\nevent: flow\ndata: %s\n\n", next+1, data)
		}
		d.mu.Unlock()
		_ = http.NewResponseController(w).Flush()
		select {
		case <-feed:
		case <-r.Context().Done():
			return
		}
	}
}
