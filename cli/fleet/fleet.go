// Package fleet implements `mainstay fleet`: managing several hosts with hypervisor daemons through
// the daemon that is their registry.
//
//	fleet.go  the command; node.go: hosts and their resources; vm.go: their VMs
//
// Code shared with `mainstay vm` is in packages daemon and spec.
package fleet

import (
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// commands builds the commands of the group.
type commands struct{ *daemon.Session }

// New returns the command `fleet` with all commands below it.
func New(env client.Environment) *cobra.Command {
	cmd := verb.Group(
		"fleet", "Hosts with hypervisor daemons, together: nodes, placement, VMs",
		"  mainstay fleet nodes\n  mainstay fleet create web --image debian-12 --selector disk=nvme\n  mainstay fleet vms",
	)
	cmd.Long = `Hosts with hypervisor daemons, together: --server is the daemon that is their registry.

` + daemon.TokenHelp
	s := commands{daemon.NewSession(env, cmd)}
	cmd.AddCommand(
		s.nodes(), s.node(), s.cordon(), s.uncordon(), s.capacity(), s.vms(), s.create(), s.delete(), s.deregister(),
	)
	s.Complete(cmd)
	return cmd
}
