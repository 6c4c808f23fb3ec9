// Package vm implements `mainstay vm`: managing the virtual machines of one host from the command
// line.
//
//	vm.go         the command; list.go, life.go, start.go, wait.go, create.go, set.go, run.go
//	guest.go      how consoles, screens, programs and files are reached, for package guest
//	snapshot.go, backup.go, clone.go: disks
//	template.go  templates, from which VMs start
//	migrate.go   between hosts of a fleet
//	policy.go    network policies and their decisions
//	events.go, watch.go, metrics.go, host.go, operation.go
//
// Code shared with `mainstay image` and `mainstay fleet` is in package daemon; the flags for a VM's
// fields are in package spec.
package vm

import (
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// commands builds the commands of the group.
type commands struct{ *daemon.Session }

// New returns the command `vm` with all commands below it.
func New(env client.Environment) *cobra.Command {
	cmd := verb.Group(
		"vm", "Run virtual machines: create, consoles, files, snapshots, backups",
		"  mainstay image build-demo && mainstay vm run demo\n  mainstay vm list --state running\n  mainstay vm exec web -- uname -a",
	)
	cmd.Long = `Run virtual machines on the host whose hypervisor daemon answers at --server. VMs are named by id or by name.
If --server is the registry of a fleet, --node names the host.

` + daemon.TokenHelp
	s := commands{daemon.NewHostSession(env, cmd)}
	in := s.guests()
	cmd.AddCommand(
		s.run(), s.create(), s.list(), s.show(),
		s.start(), s.stop(), s.restart(), s.reset(), s.pause(), s.resume(), s.enable(), s.disable(), s.delete(), s.wait(),
		in.Console(), in.VNC(), in.Run(), in.Copy(), s.ping(), s.events(), s.watch(), s.metrics(),
		s.networkPolicy(), s.flows(),
		s.templates(), s.snapshots(), s.backups(), s.disk(), s.cd(), s.log(), s.clone(), s.resize(),
		s.migrate(), s.takeBack(), s.migrations(),
		s.set(), s.operations(), s.host(), s.whoami(), s.audit(),
	)
	s.Complete(cmd)
	return cmd
}
