package vms

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) network() *cobra.Command {
	cmd := verb.Group("network", "What traffic VMs may send and receive: policies, security groups, flows",
		"  mainstay vms network policy show web\n  mainstay vms network effective web\n  mainstay vms network flows web")
	policy := verb.Group("policy", "A VM's own network policy", "  mainstay vms network policy show web")
	policy.AddCommand(s.policyShow(), s.policySet())
	group := verb.Group("group", "Security groups", "  mainstay vms network group list", "groups")
	group.AddCommand(s.groupList(), s.groupShow(), s.groupCreate(), s.groupDelete())
	cnp := verb.Group("cnp", "Network policies in Cilium's form", "  mainstay vms network cnp list")
	cnp.AddCommand(s.cnpList(), s.cnpShow(), s.cnpApply(), s.cnpDelete())
	cmd.AddCommand(
		policy, group, cnp, s.networkStatus(), s.networkEffective(), s.networkStats(), s.networkFlows(), s.networkObserve(),
		s.networkIdentities(), s.networkAddresses(), s.networkHealth(), s.networkRefresh(),
	)
	return cmd
}

// body reads the JSON object of a flag into a request.
func body[T any](c *call, flag, value string) (out T, err error) {
	raw, err := c.JSON(flag, value)
	if err == nil {
		if err = json.Unmarshal(raw, &out); err != nil {
			err = exit.Usagef("--%s does not have the form that it should have: %v", flag, err)
		}
	}
	return out, err
}

func (s commands) policyShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show VM", Short: "Show a VM's own network policy, and whether it is in force", Example: "  mainstay vms network policy show web",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetVMPolicy(ctx, c.Args[0], &vmapi.GetVMPolicyParams{Tenant: s.of()})
	})
}

func (s commands) policySet() *cobra.Command {
	var text string
	cmd := s.Command(verb.Verb{
		Use: "set VM", Short: "Replace a VM's own network policy",
		Example: "  mainstay vms network policy set web --policy @web.json\n" +
			`  mainstay vms network policy set web --policy '{"groups": ["web"], "ingress": {"default": "deny"}}'`,
	}, func(ctx context.Context, c *call) error {
		spec, err := body[vmapi.VMPolicySpec](c, "policy", text)
		if err != nil {
			return err
		}
		a, err := c.Send(c.Slow.SetVMPolicy(ctx, c.Args[0], &vmapi.SetVMPolicyParams{Tenant: s.of()}, spec))
		p, err := decode[vmapi.VMPolicy](a, err)
		if err != nil {
			return err
		}
		if p.Reason != "" {
			return c.Done(a, "The network policy of %s is stored and %s: %s.", c.Args[0], p.Status, p.Reason)
		}
		return c.Done(a, "The network policy of %s is stored and %s.", c.Args[0], p.Status)
	})
	cmd.Flags().StringVar(&text, "policy", "-", "the policy: JSON, @FILE, or - for standard input")
	return cmd
}

// owner returns whose a group or network policy is.
func owner(tenant string, every bool) string {
	if every {
		return "(every tenant)"
	}
	return tenant
}

func (s commands) groupList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list", Short: "List security groups by name", Example: "  mainstay vms network group list",
	}, output.Columns[vmapi.SecurityGroup]{
		Heads: []string{"NAME", "RULES", "TENANT", "UPDATED", "DESCRIPTION"},
		Row: func(g vmapi.SecurityGroup) []any {
			return []any{g.Name, len(g.Rules), owner(g.Tenant, g.EveryTenant), g.Updated, g.Description}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		params := vmapi.ListSecurityGroupsParams{Tenant: s.of(), Limit: p.Limit, Cursor: p.Cursor}
		return c.API.ListSecurityGroups(ctx, &params)
	})
}

func (s commands) groupShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show NAME", Short: "Show one security group", Example: "  mainstay vms network group show web",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetSecurityGroup(ctx, c.Args[0], &vmapi.GetSecurityGroupParams{Tenant: s.of()})
	})
}

func (s commands) groupCreate() *cobra.Command {
	var description, rules string
	cmd := s.Change(verb.Verb{
		Use: "create NAME", Short: "Add a security group, or replace it",
		Long: "Add a security group, or replace it with all its rules. An admin without a tenant makes it for every tenant, or for the one " +
			"of --tenant.",
		Example: "  mainstay vms network group create web --rules @rules.json\n" +
			`  mainstay vms network group create ssh --rules '[{"direction": "ingress", "cidr": "10.0.0.0/8", "protocol": "tcp", "ports": [{"port": 22}]}]'`,
	}, "The security group %s is stored.", func(ctx context.Context, c *call) (*http.Response, error) {
		spec := vmapi.SecurityGroupSpec{Name: c.Args[0], Description: verb.Given(c, "description", description)}
		if c.Cmd.Flags().Changed("rules") {
			list, err := body[[]vmapi.VMRule](c, "rules", rules)
			if err != nil {
				return nil, err
			}
			spec.Rules = &list
		}
		return c.API.PutSecurityGroup(ctx, &vmapi.PutSecurityGroupParams{Tenant: s.of()}, spec)
	})
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	cmd.Flags().StringVar(&rules, "rules", "", "a list of rules: JSON, @FILE, or - for standard input")
	return cmd
}

func (s commands) groupDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete NAME", Short: "Remove a security group that nothing uses", Example: "  mainstay vms network group delete web --yes",
	}, "Delete the security group %s?", "Deleted the security group %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.DeleteSecurityGroup(ctx, c.Args[0], &vmapi.DeleteSecurityGroupParams{Tenant: s.of()})
	})
}

func (s commands) cnpList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list", Short: "List network policies by name", Example: "  mainstay vms network cnp list",
	}, output.Columns[vmapi.NetworkPolicy]{
		Heads: []string{"NAME", "TENANT", "CREATED", "UPDATED"},
		Row: func(p vmapi.NetworkPolicy) []any {
			return []any{p.Name, owner(p.Tenant, p.EveryTenant), p.Created, p.Updated}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		params := vmapi.ListNetworkPoliciesParams{Tenant: s.of(), Limit: p.Limit, Cursor: p.Cursor}
		return c.API.ListNetworkPolicies(ctx, &params)
	})
}

func (s commands) cnpShow() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "show NAME", Short: "Show one network policy", Example: "  mainstay vms network cnp show allow-web -o json",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetNetworkPolicy(ctx, c.Args[0], &vmapi.GetNetworkPolicyParams{Tenant: s.of()})
	})
}

func (s commands) cnpApply() *cobra.Command {
	var text string
	cmd := s.Command(verb.Verb{
		Use: "apply", Short: "Add a network policy in Cilium's form, or replace it",
		Long: "Add a CiliumNetworkPolicy, as JSON, or replace the one of its name. What is not supported is refused with its path. An admin " +
			"without a tenant makes it for every tenant, or for the one of --tenant.",
		Example: "  mainstay vms network cnp apply --policy @allow-web.json",
	}, func(ctx context.Context, c *call) error {
		document, err := body[vmapi.CiliumNetworkPolicy](c, "policy", text)
		if err != nil {
			return err
		}
		a, err := c.Send(c.API.PutNetworkPolicy(ctx, &vmapi.PutNetworkPolicyParams{Tenant: s.of()}, document))
		p, err := decode[vmapi.NetworkPolicy](a, err)
		if err != nil {
			return err
		}
		return c.Done(a, "The network policy %s is stored.", p.Name)
	})
	cmd.Flags().StringVar(&text, "policy", "-", "the policy: JSON, @FILE, or - for standard input")
	return cmd
}

func (s commands) cnpDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "delete NAME", Short: "Remove a network policy", Example: "  mainstay vms network cnp delete allow-web --yes",
	}, "Delete the network policy %s?", "Deleted the network policy %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.DeleteNetworkPolicy(ctx, c.Args[0], &vmapi.DeleteNetworkPolicyParams{Tenant: s.of()})
	})
}

func (s commands) networkStatus() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "status VM", Short: "Show what the hypervisor daemon has of a VM's policies", Example: "  mainstay vms network status web",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetDataplaneStatus(ctx, c.Args[0], &vmapi.GetDataplaneStatusParams{Tenant: s.of()})
	})
}

func (s commands) networkEffective() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "effective VM", Short: "Show all policies of a VM as one, with where each rule comes from",
		Example: "  mainstay vms network effective web -o yaml",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetEffectivePolicy(ctx, c.Args[0], &vmapi.GetEffectivePolicyParams{Tenant: s.of()})
	})
}

func (s commands) networkStats() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "stats VM", Short: "Show how much a VM's policies have allowed and denied", Example: "  mainstay vms network stats web",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetDataplaneStats(ctx, c.Args[0], &vmapi.GetDataplaneStatsParams{Tenant: s.of()})
	})
}

func (s commands) networkIdentities() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "identities", Short: "List identities: the numbers of sets of labels and of networks", Example: "  mainstay vms network identities",
	}, output.Columns[vmapi.NetworkIdentity]{
		Heads: []string{"ID", "LABELS", "VMS", "TENANT"},
		Row: func(i vmapi.NetworkIdentity) []any {
			return []any{i.Id, strings.Join(i.Labels, " "), strings.Join(i.Vms, " "), i.Tenant}
		},
	}, func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) {
		return c.API.ListIdentities(ctx)
	})
}

func (s commands) networkAddresses() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "ipcache", Short: "List addresses and networks with their identities", Example: "  mainstay vms network ipcache",
	}, output.Columns[vmapi.IPCacheEntry]{
		Heads: []string{"NETWORK", "IDENTITY", "VM", "SOURCE", "TENANT"},
		Row: func(e vmapi.IPCacheEntry) []any {
			return []any{e.Cidr, e.Identity, text(e.Vm), e.Source, e.Tenant}
		},
	}, func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) { return c.API.ListIPCache(ctx) })
}

func (s commands) networkHealth() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "health", Short: "Show how many VMs have their policies in force, and which do not", Example: "  mainstay vms network health",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetDataplaneHealth(ctx) })
}

func (s commands) networkRefresh() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "refresh-dns", Short: "Compute all policies anew, and say how many names they have", Example: "  mainstay vms network refresh-dns",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.RefreshDNS(ctx, vmapi.Nothing{}))
		r, err := decode[vmapi.DNSRefreshed](a, err)
		if err != nil {
			return err
		}
		return c.Done(a, "The policies of %d VMs are computed anew; they have %d names.", r.Vms, r.Names)
	})
}

var flowColumns = output.Columns[vmapi.NetworkFlow]{
	Heads: []string{"TIME", "VM", "DIRECTION", "VERDICT", "PROTOCOL", "SOURCE", "DESTINATION", "RULE"},
	Row: func(f vmapi.NetworkFlow) []any {
		return []any{f.Time, f.Vm, f.Direction, f.Verdict, f.Protocol, end(f.Source), end(f.Destination), f.Rule}
	},
}

// end returns one end of a flow as people read it.
func end(e vmapi.FlowEnd) string {
	out := e.Address
	if e.Port != nil {
		out = fmt.Sprintf("%s:%d", out, *e.Port)
	}
	if e.Vm != nil {
		return out + " (" + *e.Vm + ")"
	}
	return fmt.Sprintf("%s (%d)", out, e.Identity)
}

func (s commands) networkFlows() *cobra.Command {
	var follow bool
	var limit int
	cmd := s.Command(verb.Verb{
		Use: "flows VM", Short: "List recent decisions of a VM's policies, newest first; or follow them",
		Example: "  mainstay vms network flows web\n  mainstay vms network flows web --follow",
	}, func(ctx context.Context, c *call) error {
		if follow {
			v, err := decode[vmapi.VM](c.Send(c.API.GetVM(ctx, c.Args[0], &vmapi.GetVMParams{Tenant: s.of()})))
			if err != nil {
				return err
			}
			return followFlows(ctx, c, func(f vmapi.NetworkFlow) bool { return f.Vm == v.Name && f.Tenant == text(v.Tenant) })
		}
		items, err := decode[[]json.RawMessage](c.Send(
			c.API.ListVMFlows(ctx, c.Args[0], &vmapi.ListVMFlowsParams{Tenant: s.of(), Limit: verb.Given(c, "limit", limit)})))
		if err != nil {
			return err
		}
		return printFlows(c, items)
	})
	cmd.Flags().IntVar(&limit, "limit", 100, "print at most so many")
	cmd.Flags().BoolVar(&follow, "follow", false, "print new ones as they come, until interrupted")
	return cmd
}

func (s commands) networkObserve() *cobra.Command {
	var follow bool
	var limit int
	cmd := s.Command(verb.Verb{
		Use: "observe", Short: "List recent decisions about all VMs, newest first; or follow them",
		Example: "  mainstay vms network observe --limit 20\n  mainstay vms network observe --follow",
	}, func(ctx context.Context, c *call) error {
		if follow {
			return followFlows(ctx, c, func(vmapi.NetworkFlow) bool { return true })
		}
		seen, err := decode[struct {
			Flows  []json.RawMessage `json:"flows"`
			Silent []string          `json:"silent"`
		}](c.Send(c.API.Observe(ctx, &vmapi.ObserveParams{Limit: verb.Given(c, "limit", limit)})))
		if err != nil {
			return err
		}
		if len(seen.Silent) > 0 {
			c.Note("The flows of these VMs are missing, because their host does not answer: %s", strings.Join(seen.Silent, ", "))
		}
		return printFlows(c, seen.Flows)
	})
	cmd.Flags().IntVar(&limit, "limit", 100, "print at most so many")
	cmd.Flags().BoolVar(&follow, "follow", false, "print new ones as they come, until interrupted")
	return cmd
}

func printFlows(c *call, items []json.RawMessage) error {
	l := output.NewList(c.Out, flowColumns)
	if err := l.Page(items); err != nil {
		return err
	}
	return l.Close()
}

func followFlows(ctx context.Context, c *call, wanted func(vmapi.NetworkFlow) bool) error {
	open := func(ctx context.Context, _ string) (*http.Response, error) {
		return c.Slow.Observe(ctx, &vmapi.ObserveParams{}, verb.AcceptEvents)
	}
	return c.Follow(ctx, "", open, func(name, data string) error {
		var f vmapi.NetworkFlow
		if name != "flow" {
			return nil
		}
		if err := json.Unmarshal([]byte(data), &f); err != nil {
			return fmt.Errorf("the stream is not as the API's contract says: %w", err)
		}
		if !wanted(f) {
			return nil
		}
		return c.Out.Line([]byte(data), func() string {
			at := f.Time.UTC().Format("15:04:05.000")
			return output.Escape(fmt.Sprintf("%s  %s  %s %s %s  %s -> %s  %s", at, f.Vm, f.Direction, f.Verdict, f.Protocol,
				end(f.Source), end(f.Destination), f.Rule))
		})
	})
}
