package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) networkPolicy() *cobra.Command {
	cmd := verb.Group(
		"network-policy", "What traffic a VM may send and receive: show, apply, delete",
		"  mainstay vm network-policy show web\n  mainstay vm network-policy apply web -f policy.json",
	)
	cmd.AddCommand(s.policyShow(), s.policyApply(), s.policyDelete())
	return cmd
}

func (s commands) policyShow() *cobra.Command {
	return s.Command(verb.Verb{
		Use:   "show VM",
		Short: "Show a VM's network policy, and what each rule counted",
		Long: `Show a VM's network policy, and what each rule counted. With --output json, 'apply' takes the output back after an edit: it
refuses to replace a policy that somebody else changed meanwhile.`,
		Example: "  mainstay vm network-policy show web\n  mainstay vm network-policy show web --output json > policy.json",
	}, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		a, err := c.Send(c.API.GetNetworkPolicy(ctx, id))
		p, err := daemon.Decode[hypervisorapi.NetworkPolicyState](a, err)
		if err != nil {
			return err
		}
		return c.Out.ObjectAs(a.Body, func() error { return c.Out.Rows(policyRows(p)) })
	})
}

// policyRows shows a policy: a line for each rule and default, with packets and bytes.
func policyRows(p hypervisorapi.NetworkPolicyState) [][]any {
	counts := map[string]hypervisorapi.RuleCounter{}
	for _, n := range p.Counters {
		counts[string(n.Direction)+" "+n.Rule] = n
	}
	rows := [][]any{{"Mode", p.Mode}, {"Revision", p.Revision}, {"Attached", p.Attached}}
	if p.Since != nil {
		rows = append(rows, []any{"Counted since", *p.Since})
	}
	for _, d := range []struct {
		name string
		of   hypervisorapi.PolicyDirection
		sums hypervisorapi.VerdictCounters
	}{{"ingress", p.Policy.Ingress, p.Defaults.Ingress}, {"egress", p.Policy.Egress, p.Defaults.Egress}} {
		for i := range d.of.Rules {
			r := &d.of.Rules[i]
			n := counts[d.name+" "+r.Name]
			rows = append(rows, []any{
				d.name + " " + r.Name, fmt.Sprintf("%s %s: %s", r.Action, matched(r), counted(n.Packets, n.Bytes)),
			})
		}
		sum := d.sums.Allowed
		if d.of.Default == hypervisorapi.PolicyActionDeny {
			sum = d.sums.Denied
		}
		rows = append(rows, []any{
			d.name + " default", fmt.Sprintf("%s: %s", d.of.Default, counted(sum.Packets, sum.Bytes)),
		})
	}
	return rows
}

func counted(packets, bytes int64) string {
	return fmt.Sprintf("%d packets, %s", packets, verb.Bytes(bytes))
}

// matched describes what a rule matches.
func matched(r *hypervisorapi.PolicyRule) string {
	peers, ports := []string{}, []string{}
	if r.Peers != nil {
		for _, p := range *r.Peers {
			switch {
			case p.Fqdn != nil:
				peers = append(peers, *p.Fqdn)
			case p.Cidr != nil && p.Except != nil:
				peers = append(peers, *p.Cidr+" except "+strings.Join(*p.Except, " "))
			case p.Cidr != nil:
				peers = append(peers, *p.Cidr)
			}
		}
	}
	if r.Ports != nil {
		for _, p := range *r.Ports {
			text := string(p.Protocol)
			switch {
			case p.Port != nil && p.EndPort != nil:
				text += fmt.Sprintf(" %d-%d", *p.Port, *p.EndPort)
			case p.Port != nil:
				text += fmt.Sprintf(" %d", *p.Port)
			case p.IcmpType != nil:
				text += fmt.Sprintf(" type %d", *p.IcmpType)
			}
			ports = append(ports, text)
		}
	}
	text := "all addresses"
	if len(peers) > 0 {
		text = strings.Join(peers, ", ")
	}
	if len(ports) > 0 {
		text += " " + strings.Join(ports, ", ")
	}
	return text
}

func (s commands) policyApply() *cobra.Command {
	var file string
	cmd := s.Change(verb.Verb{
		Use:   "apply VM",
		Short: "Replace a VM's network policy; it applies at once, and cuts what it forbids",
		Long: `Replace a VM's network policy; it applies at once, and cuts what it forbids. The file holds the policy as JSON:

  {"ingress": {"default": "deny", "rules": [
     {"name": "web", "action": "allow", "peers": [{"cidr": "10.0.0.0/8"}],
      "ports": [{"protocol": "tcp", "port": 443}]}]},
   "egress": {"default": "allow", "rules": []}}

It may also be what 'network-policy show --output json' printed. Then it replaces only that revision.`,
		Example:  "  mainstay vm network-policy apply web -f policy.json\n  mainstay vm network-policy apply web -f - < policy.json",
		Required: []string{"file"},
	}, "The network policy of %s is in force.", daemon.OfVM(
		func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
			body, err := readPolicy(c, file)
			if err != nil {
				return nil, err
			}
			return c.Slow.PutNetworkPolicy(ctx, id, body)
		},
	))
	cmd.Flags().StringVarP(&file, "file", "f", "", "the policy as JSON; - for standard input")
	return cmd
}

func readPolicy(c *daemon.Call, path string) (body hypervisorapi.NetworkPolicyUpdate, err error) {
	const limit = 32 << 20
	var raw []byte
	if path == "-" {
		raw, err = io.ReadAll(io.LimitReader(c.Cmd.InOrStdin(), limit))
	} else {
		raw, err = os.ReadFile(path)
	}
	if err != nil {
		return body, fmt.Errorf("--file: %w", err)
	}
	var shown struct {
		Policy   *json.RawMessage `json:"policy"`
		Revision *int64           `json:"revision"`
	}
	if err := json.Unmarshal(raw, &shown); err != nil {
		return body, exit.Usagef("--file is not a policy: %v", err)
	}
	if shown.Policy != nil {
		raw, body.Revision = *shown.Policy, shown.Revision
	}
	if err := json.Unmarshal(raw, &body.Policy); err != nil {
		return body, exit.Usagef("--file is not a policy: %v", err)
	}
	return body, nil
}

func (s commands) policyDelete() *cobra.Command {
	return s.Remove(verb.Verb{
		Use:     "delete VM",
		Short:   "Remove a VM's network policy, so that all traffic passes",
		Example: "  mainstay vm network-policy delete web\n  mainstay vm network-policy delete web --yes",
	}, "Remove the network policy of %s? All traffic passes then.", "The VM %s has no network policy.", daemon.OfVM(
		func(ctx context.Context, c *daemon.Call, id string) (*http.Response, error) {
			return c.API.DeleteNetworkPolicy(ctx, id)
		},
	))
}

func (s commands) flows() *cobra.Command {
	var follow bool
	cmd := verb.List(s.Session, verb.Verb{
		Use:   "flows VM",
		Short: "List what a VM's network policy decided, newest first; or follow it",
		Long: `List what a VM's network policy decided, newest first: flows that begin, and packets that are denied. The records are
samples: the host limits their rate. With --follow new ones are printed as they come, until interrupted.`,
		Example: "  mainstay vm flows web\n  mainstay vm flows web --follow --output json",
	}, output.Columns[hypervisorapi.Flow]{
		Heads: []string{"TIME", "DIRECTION", "VERDICT", "RULE", "PROTOCOL", "SOURCE", "DESTINATION"},
		Row: func(f hypervisorapi.Flow) []any {
			return []any{
				f.Time, f.Direction, f.Verdict, ruleOf(f), f.Protocol,
				end(f.Source, f.SourcePort), end(f.Destination, f.DestinationPort),
			}
		},
	}, func(ctx context.Context, c *daemon.Call, p verb.Page) (*http.Response, error) {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return nil, err
		}
		return c.API.ListFlows(ctx, id, &hypervisorapi.ListFlowsParams{Limit: p.Limit})
	})
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with flows as they come")
	list := cmd.RunE
	following := s.Command(verb.Verb{Use: cmd.Use}, followFlows).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if follow {
			return following(cmd, args)
		}
		return list(cmd, args)
	}
	return cmd
}

func ruleOf(f hypervisorapi.Flow) string {
	if f.Rule == "" {
		return "(default)"
	}
	return f.Rule
}

// end is an address, with a port if there is one.
func end(address string, port *int) string {
	if port == nil {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(*port))
}

func followFlows(ctx context.Context, c *daemon.Call) error {
	id, err := daemon.VMID(ctx, c, c.Args[0])
	if err != nil {
		return err
	}
	begun := false
	open := func(ctx context.Context, last string) (*http.Response, error) {
		params := &hypervisorapi.FollowFlowsParams{}
		if last != "" {
			params.LastEventID = &last
		}
		return c.Slow.FollowFlows(ctx, params, verb.AcceptEvents)
	}
	return c.Follow(ctx, "", open, func(name, data string) error {
		switch name {
		case "reset":
			if begun {
				c.Note("Some flows may be missing: the daemon does not keep them any longer.")
			}
			begun = true
		case "flow":
			return printFlow(c, id, []byte(data))
		}
		return nil
	})
}

// printFlow prints a flow if it is the VM's.
func printFlow(c *daemon.Call, id string, raw []byte) error {
	var f hypervisorapi.Flow
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("the stream is not as the API's contract says: %w", err)
	}
	if f.VmId != id {
		return nil
	}
	return c.Out.Line(raw, func() string {
		return output.Escape(fmt.Sprintf("%s  %s %s by %s: %s %s -> %s", f.Time.UTC().Format(time.RFC3339), f.Direction,
			f.Verdict, ruleOf(f), f.Protocol, end(f.Source, f.SourcePort), end(f.Destination, f.DestinationPort)))
	})
}
