// Package contexts implements `mainstay context`: the installations that a person works with, and their
// credentials, which package login adds too.
//
// Invariants: tokens are stored only in a file that its owner alone can read, are never printed, and
// are sent only to the server that they were stored for.
package contexts

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// commands builds the commands. units are the services that a context can name.
type commands struct {
	env   client.Environment
	units []string
}

// New returns the command `context`. services are those that commands can talk to over the network.
func New(env client.Environment, services ...*client.Service) *cobra.Command {
	c := commands{env: env}
	for _, s := range services {
		if !slices.Contains(c.units, s.Unit) {
			c.units = append(c.units, s.Unit)
		}
	}
	cmd := verb.Group(
		"context", "The installations that you work with: servers and credentials",
		"  mainstay context add prod edge=https://edge.example.com lb=https://lb-1.example.com:9870\n"+
			"  mainstay context use prod\n  mainstay context list",
		"contexts",
	)
	cmd.Long = `The installations that you work with. A context names the servers of an installation and holds their credentials. They
are in contexts.json in your folder for configuration, which only you can read.

A command takes the server and the token from its flags, else from the environment, else from .mainstay in the working
directory, where "mainstay dev" leaves them, else from the current context. 'mainstay login' adds a credential.`
	cmd.AddCommand(c.add(), c.use(), c.list(), c.remove())
	return cmd
}

func (c commands) add() *cobra.Command {
	var tokens, authorities []string
	cmd := &cobra.Command{
		Use:   "add NAME SERVICE=URL...",
		Short: "Add a context, or servers to one",
		Long: `Add a context, or servers to one. The first context becomes the current one.

Services: ` + strings.Join(c.units, ", ") + `.`,
		Example: "  mainstay context add prod edge=https://edge.example.com --token-file edge=token.txt",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := client.CheckContextName(args[0]); err != nil {
				return err
			}
			added := client.Context{}
			for _, pair := range args[1:] {
				unit, server, err := c.pair("SERVICE=URL", pair)
				if err != nil {
					return err
				}
				if u, err := url.Parse(server); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
					return exit.Usagef("%s must be a URL such as https://edge.example.com, not %q", unit, server)
				}
				added[unit] = client.Place{Server: strings.TrimRight(server, "/")}
			}
			err := c.env.ChangeContexts(func(all *client.Contexts) error {
				both := maps.Clone(all.All[args[0]])
				if both == nil {
					both = client.Context{}
				}
				maps.Copy(both, added)
				if err := c.complete(both, tokens, authorities); err != nil {
					return err
				}
				all.All[args[0]] = both
				all.Current = cmp.Or(all.Current, args[0])
				return nil
			})
			if err != nil {
				return err
			}
			return say(cmd, "Added %s.", args[0])
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&tokens, "token-file", nil, "SERVICE=FILE: file with the token of a service; may be repeated")
	f.StringArrayVar(&authorities, "ca-file", nil, "SERVICE=FILE: PEM file with authorities to trust; may be repeated")
	return cmd
}

// complete adds the contents of files with tokens, and the paths of files with authorities.
func (c commands) complete(added client.Context, tokens, authorities []string) error {
	for _, pair := range tokens {
		unit, path, err := c.pair("--token-file", pair)
		if err != nil {
			return err
		}
		text, err := verb.ReadText("token-file", path, 64<<10)
		if err != nil {
			return err
		}
		place := added[unit]
		place.Token = strings.TrimSpace(text)
		added[unit] = place
	}
	for _, pair := range authorities {
		unit, path, err := c.pair("--ca-file", pair)
		if err != nil {
			return err
		}
		place := added[unit]
		place.CAFile = path
		added[unit] = place
	}
	for unit, place := range added {
		if place.Server == "" {
			return exit.Usagef("the context has no server for %s: give %s=URL", unit, unit)
		}
	}
	return nil
}

func (c commands) pair(what, text string) (unit, value string, err error) {
	unit, value, ok := strings.Cut(text, "=")
	if !ok || value == "" || !slices.Contains(c.units, unit) {
		return "", "", exit.Usagef(
			"%s: %q must be SERVICE=VALUE, where SERVICE is %s", what, text, strings.Join(c.units, ", "),
		)
	}
	return unit, value, nil
}

func (c commands) use() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Example: "  mainstay context use prod",
		Args: cobra.ExactArgs(1), ValidArgsFunction: c.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(args[0], func(all *client.Contexts) { all.Current = args[0] }, func() error {
				return say(cmd, "Commands talk to %s now.", args[0])
			})
		},
	}
}

func (c commands) remove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a context with its credentials", Aliases: []string{"rm", "delete"},
		Example: "  mainstay context remove staging",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: c.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(args[0], func(all *client.Contexts) {
				delete(all.All, args[0])
				if all.Current == args[0] {
					all.Current = ""
				}
			}, func() error { return say(cmd, "Removed %s.", args[0]) })
		},
	}
}

// names completes the name of a context.
func (c commands) names(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := c.env.Contexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(all.All)), cobra.ShellCompDirectiveNoFileComp
}

// change changes the contexts, of which name must be one.
func (c commands) change(name string, change func(*client.Contexts), done func() error) error {
	err := c.env.ChangeContexts(func(all *client.Contexts) error {
		if _, known := all.All[name]; !known {
			return &exit.Error{
				Code: exit.NotFound, Err: fmt.Errorf("there is no context %s", output.Escape(name)),
				Hint: "'mainstay context list' shows what there is",
			}
		}
		change(all)
		return nil
	})
	if err != nil {
		return err
	}
	return done()
}

// shown is a context as `list` prints it, without tokens.
type shown struct {
	Name    string            `json:"name"`
	Current bool              `json:"current"`
	Servers map[string]string `json:"servers"`
	Tokens  []string          `json:"tokens"` // the services with a token
}

func (c commands) list() *cobra.Command {
	var style output.Style
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts", Aliases: []string{"ls"}, Example: "  mainstay context list",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := c.env.Contexts()
			if err != nil {
				return err
			}
			l := output.NewList(output.NewPrinter(cmd.OutOrStdout(), style), output.Columns[shown]{
				Heads: []string{"CURRENT", "NAME", "SERVICE", "SERVER", "TOKEN"},
				Row:   row,
			})
			for _, name := range slices.Sorted(maps.Keys(all.All)) {
				if err := l.Add(show(name, name == all.Current, all.All[name], !style.People())...); err != nil {
					return err
				}
			}
			return l.Close()
		},
	}
	style.AddFlags(cmd)
	return cmd
}

// show returns what to list of a context: one item, or for people one for each service.
func show(name string, current bool, c client.Context, whole bool) []shown {
	all := shown{Name: name, Current: current, Servers: map[string]string{}, Tokens: []string{}}
	var each []shown
	for _, unit := range slices.Sorted(maps.Keys(c)) {
		one := shown{Name: name, Current: current, Servers: map[string]string{unit: c[unit].Server}}
		all.Servers[unit] = c[unit].Server
		if c[unit].Token != "" {
			one.Tokens, all.Tokens = []string{unit}, append(all.Tokens, unit)
		}
		each = append(each, one)
	}
	if whole || len(each) == 0 {
		return []shown{all}
	}
	return each
}

func row(s shown) []any {
	current, token := "", "no"
	if s.Current {
		current = "*"
	}
	if len(s.Tokens) > 0 {
		token = "yes"
	}
	for unit, server := range s.Servers {
		return []any{current, s.Name, unit, server, token}
	}
	return []any{current, s.Name, "", "", ""}
}

func say(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintln(cmd.OutOrStdout(), output.Escape(fmt.Sprintf(format, args...)))
	return err
}
