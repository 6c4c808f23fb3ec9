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

	// command returns the command. If it is nil, package app provides a command with this name, for
	// tasks that need no running service, and below returns the commands that are added to it.
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
	if n.command != nil {
		root.AddCommand(n.command(env))
		return
	}
	for _, cmd := range root.Commands() {
		if cmd.Name() == n.Name {
			cmd.AddCommand(n.below(env)...)
		}
	}
}
