package lb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// Commands returns the commands to add to `mainstay lb`.
func Commands(env client.Environment) []*cobra.Command {
	return []*cobra.Command{
		vips(env), backends(env), explain(env), node(env), demoCommand(),
		verb.Old("vips", vipList(env)), verb.Old("backends", backendList(env)),
		verb.Old("drain BACKEND", drain(env)), verb.Old("undrain BACKEND", undrain(env)),
		verb.Old("weight BACKEND WEIGHT", weight(env)),
	}
}

// command returns a command. The number of its arguments follows from use: "drain BACKEND" takes
// one.
func command(
	env client.Environment, use, short, long, example string, run func(ctx context.Context, c *call) error,
) *cobra.Command {
	s := verb.NewSession(env, &api)
	cmd := s.Command(verb.Verb{
		Use: use, Short: short, Long: short + ".\n\n" + strings.TrimSpace(long+"\n"+keysHelp), Example: example,
	}, run)
	s.AddFlags(cmd)
	s.Complete(cmd)
	return cmd
}

func vips(env client.Environment) *cobra.Command {
	cmd := verb.Group("vip", "VIPs: list", "  mainstay lb vip list")
	cmd.AddCommand(vipList(env))
	return cmd
}

func vipList(env client.Environment) *cobra.Command {
	return listCommand(
		env, "List the VIPs with what they did",
		"  mainstay lb vip list\n  mainstay lb vip list --server https://node-3:9870 -o json", vipColumns(),
		func(ctx context.Context, c *call) (*http.Response, error) { return c.API.ListVIPs(ctx) },
	)
}

func backends(env client.Environment) *cobra.Command {
	cmd := verb.Group(
		"backend", "Backends: list, drain, weight",
		"  mainstay lb backend list\n  mainstay lb backend drain 10.0.0.12:8080",
	)
	cmd.AddCommand(backendList(env), drain(env), undrain(env), weight(env))
	return cmd
}

func backendList(env client.Environment) *cobra.Command {
	return listCommand(
		env, "List the backends, a row for each VIP that they serve",
		"  mainstay lb backend list\n  mainstay lb backend list -o yaml", backendColumns(),
		func(ctx context.Context, c *call) (*http.Response, error) { return c.API.ListBackends(ctx) },
	)
}

// listCommand returns the command list.
func listCommand[T any](
	env client.Environment, short, example string, columns output.Columns[T],
	r func(context.Context, *call) (*http.Response, error),
) *cobra.Command {
	s := verb.NewSession(env, &api)
	cmd := verb.List(s, verb.Verb{
		Use: "list", Short: short, Long: short + ".\n\n" + strings.TrimSpace(keysHelp), Example: example,
	}, columns, func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) { return r(ctx, c) })
	s.AddFlags(cmd)
	return cmd
}

func drain(env client.Environment) *cobra.Command {
	return drainer(
		env, "drain", "Send a backend no new flows; those it has go on",
		"An orchestrator's drain is apart from it. The drain is gone after a restart of the daemon.",
		func(ctx context.Context, api *lbapi.Client, id string) (*http.Response, error) {
			return api.DrainBackend(ctx, id, lbapi.Nothing{})
		},
	)
}

func undrain(env client.Environment) *cobra.Command {
	return drainer(
		env, "undrain", "Undo a drain", "A drain that an orchestrator asked for stays.",
		func(ctx context.Context, api *lbapi.Client, id string) (*http.Response, error) {
			return api.UndrainBackend(ctx, id, lbapi.Nothing{})
		},
	)
}

// list prints the items of a response.
func list[T any](c *call, columns output.Columns[T]) func(client.Answer, error) error {
	return func(a client.Answer, err error) error {
		items, err := decode[[]json.RawMessage](a, err)
		if err != nil {
			return err
		}
		l := output.NewList(c.Out, columns)
		if err := l.Page(items); err != nil {
			return err
		}
		return l.Close()
	}
}

func drainer(
	env client.Environment, verb, short, long string,
	send func(context.Context, *lbapi.Client, string) (*http.Response, error),
) *cobra.Command {
	return command(
		env,
		verb+" BACKEND",
		short,
		"BACKEND is an id, or ADDRESS:PORT as 'mainstay lb backend list' shows it. "+long,
		fmt.Sprintf("  mainstay lb backend %s 3\n  mainstay lb backend %s 10.0.0.12:8080", verb, verb),
		func(ctx context.Context, c *call) error {
			id, err := backendID(ctx, c, c.Args[0])
			if err != nil {
				return err
			}
			return list(c, backendColumns())(read(send(ctx, c.API, id)))
		},
	)
}

func weight(env client.Environment) *cobra.Command {
	var vip string
	cmd := command(
		env,
		"weight BACKEND WEIGHT",
		"Override the weight of a backend",
		"BACKEND is an id, or ADDRESS:PORT as 'mainstay lb backend list' shows it. WEIGHT is 1 to 1000; 0 goes back to the configured weight.\nThe override is gone after a restart of the daemon.",
		"  mainstay lb backend weight 3 10\n  mainstay lb backend weight 10.0.0.12:8080 0\n  mainstay lb backend weight 3 10 --vip 192.0.2.10:80:tcp",
		func(ctx context.Context, c *call) error {
			n, err := strconv.Atoi(c.Args[1])
			if err != nil || n < 0 || n > 1000 {
				return exit.Usagef("WEIGHT must be a whole number from 0 to 1000, not %q", c.Args[1])
			}
			id, err := backendID(ctx, c, c.Args[0])
			if err != nil {
				return err
			}
			body := lbapi.Weight{Weight: n}
			if c.Cmd.Flags().Changed("vip") {
				body.Vip = &vip
			}
			return list(c, backendColumns())(read(c.API.SetWeight(ctx, id, body)))
		},
	)
	cmd.Flags().StringVar(
		&vip, "vip", "", "only at this VIP, ADDRESS:PORT:PROTOCOL (default: every VIP that the backend serves)",
	)
	return cmd
}

// backendID returns the id of a backend that is given by id or address.
func backendID(ctx context.Context, c *call, name string) (string, error) {
	if _, err := strconv.Atoi(name); err == nil {
		return name, nil
	}
	at, err := netip.ParseAddrPort(name)
	if err != nil {
		return "", exit.Usagef("BACKEND must be an id or ADDRESS:PORT, as in 3 or 10.0.0.12:8080, not %q", name)
	}
	rows, err := decode[[]lbapi.BackendRow](read(c.API.ListBackends(ctx)))
	if err != nil {
		return "", err
	}
	for _, r := range rows {
		if r.Address == at.Addr().Unmap().String() && r.Port == int(at.Port()) {
			return strconv.Itoa(r.Id), nil
		}
	}
	return "", &exit.Error{
		Code: exit.NotFound,
		Err:  fmt.Errorf("no backend is at %s", name),
		Hint: "'mainstay lb backend list' shows what there is; in a range the port is 0",
	}
}

func explain(env client.Environment) *cobra.Command {
	return command(
		env,
		"explain CLIENT VIP",
		"Say which backend a flow's next packet would get, and why",
		"CLIENT is ADDRESS:PORT, VIP is ADDRESS:PORT:PROTOCOL, where the protocol may be left out if it is tcp.",
		"  mainstay lb explain 198.51.100.7:40000 192.0.2.10:80\n  mainstay lb explain '[2001:db8::7]:40000' '[2001:db8::1]:53:udp'",
		func(ctx context.Context, c *call) error {
			vip := c.Args[1]
			if _, err := netip.ParseAddrPort(vip); err == nil {
				vip += ":tcp"
			}
			a, err := read(c.API.Explain(ctx, &lbapi.ExplainParams{Client: c.Args[0], Vip: vip}))
			e, err := decode[lbapi.Explanation](a, err)
			if err != nil {
				return err
			}
			return c.Out.ObjectAs(a.Body, func() error {
				_, err := fmt.Fprintln(c.Out.Out, sentence(e))
				return err
			})
		},
	)
}

func node(env client.Environment) *cobra.Command {
	return command(
		env,
		"node",
		"Show the node: interface, configuration, drops, flows, BGP",
		"",
		"  mainstay lb node\n  mainstay lb node -o json",
		func(ctx context.Context, c *call) error {
			a, err := read(c.API.GetNode(ctx))
			n, err := decode[lbapi.Node](a, err)
			if err != nil {
				return err
			}
			return c.Out.ObjectAs(a.Body, func() error { return c.Out.Rows(nodeRows(c.Out, n)) })
		},
	)
}
