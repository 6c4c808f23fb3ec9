package cli

import (
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/agent"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/edge"
	"github.com/mainstay-infra/mainstay/cli/fleet"
	"github.com/mainstay-infra/mainstay/cli/image"
	"github.com/mainstay-infra/mainstay/cli/lb"
	"github.com/mainstay-infra/mainstay/cli/storage"
	"github.com/mainstay-infra/mainstay/cli/vm"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
	"github.com/mainstay-infra/mainstay/cli/vms"
)

// Noun is the subject of a group of commands, as in `mainstay NOUN VERB`.
type Noun struct {
	// Name is the command below `mainstay`.
	Name string
	// Service is the service that the commands talk to.
	Service *client.Service

	// command returns the command, to which the tasks are added that need no running service, if package
	// app provides a command with this name. If it is nil, package app provides the command, and below
	// returns the commands that are added to it.
	command func(client.Environment) *cobra.Command
	below   func(client.Environment) []*cobra.Command
}

// Nouns returns the nouns of all services.
func Nouns() []Noun {
	return []Noun{
		{Name: "edge", Service: &edge.Service, command: edge.New},
		{Name: "lb", Service: &lb.Service, below: lb.Commands},
		{Name: "vm", Service: &daemon.Service, command: vm.New},
		{Name: "vms", Service: &vms.Service, command: vms.New},
		{Name: "image", Service: &daemon.Service, command: image.New},
		{Name: "fleet", Service: &daemon.Service, command: fleet.New},
		{Name: "storage", Service: &storage.Service, command: storage.New},
		{Name: "agent", Service: &agent.Service, below: agentCommands},
	}
}

func agentCommands(env client.Environment) []*cobra.Command { return agent.Commands(env.Getenv) }

// addTo adds the noun's commands to root, which already has those of package app.
func (n *Noun) addTo(root *cobra.Command, env client.Environment) {
	of := named(root, n.Name)
	if n.command != nil {
		cmd := n.command(env)
		if of != nil {
			root.RemoveCommand(of)
			graft(cmd, of, of.PersistentPreRun)
		}
		root.AddCommand(cmd)
	} else if of != nil {
		of.AddCommand(n.below(env)...)
	}
}

// named returns the command with a name below another one, or nil.
func named(below *cobra.Command, name string) *cobra.Command {
	for _, cmd := range below.Commands() {
		if cmd.Name() == name {
			return cmd
		}
	}
	return nil
}

// graft adds the commands below from to those below to, with what runs before them. Groups that both have become one.
func graft(to, from *cobra.Command, before func(cmd *cobra.Command, args []string)) {
	for _, cmd := range from.Commands() {
		if into := named(to, cmd.Name()); into != nil {
			graft(into, cmd, before)
			continue
		}
		from.RemoveCommand(cmd)
		cmd.PersistentPreRun = before
		to.AddCommand(cmd)
	}
}
