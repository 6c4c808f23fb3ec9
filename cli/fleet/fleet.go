// Package fleet implements `mainstay fleet`: managing several hosts with hypervisor daemons through
// the daemon that is their registry.
//
//	fleet.go  the command; node.go: hosts and their resources; vm.go: their VMs; drain.go: empties a host
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
		"fleet", "Hosts with hypervisor daemons, together: nodes, placement, VMs, drain",
		"  mainstay fleet node list\n  mainstay fleet vm create web --image debian-12 --selector disk=nvme\n"+
			"  mainstay fleet vm list",
	)
	cmd.Long = `Hosts with hypervisor daemons, together: --server is the daemon that is their registry.

` + daemon.TokenHelp
	s := commands{daemon.NewSession(env, cmd)}
	cmd.AddCommand(
		s.nodes(), s.vms(), s.capacity(), s.drain(),
		verb.Old("nodes", s.nodeList()), verb.Old("cordon NODE", s.cordon()), verb.Old("uncordon NODE", s.uncordon()),
		verb.Old("deregister NODE", s.nodeDelete()), verb.Old("vms", s.vmList()), verb.Old("create NAME", s.vmCreate()),
		verb.Old("delete NODE VM", s.vmDelete()),
	)
	s.Complete(cmd)
	return cmd
}
