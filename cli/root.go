package cli

import (
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/agent"
	"github.com/mainstay-infra/mainstay/cli/edge"
	"github.com/mainstay-infra/mainstay/cli/fleet"
	"github.com/mainstay-infra/mainstay/cli/image"
	"github.com/mainstay-infra/mainstay/cli/lb"
	"github.com/mainstay-infra/mainstay/cli/vm"
)

// NewRoot makes the command `mainstay` with everything below it.
func NewRoot(stdio IO, extra ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "mainstay",
		Short: "Mainstay: infrastructure services in one binary",
		Long: `Mainstay: infrastructure services in one binary.

Exit codes:
  0  success
  1  failure
  2  the command line is wrong
  3  the object does not exist
  4  no valid credentials, or they do not permit this`,
		Example: "  mainstay dev\n  mainstay edge overview",
		// Main prints errors itself; the usage would push them off the screen.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(stdio.In)
	root.SetOut(stdio.Out)
	root.SetErr(stdio.Err)
	root.AddCommand(extra...)
	env := stdio.environment()
	root.AddCommand(version(), edge.New(env), vm.New(env), image.New(env), fleet.New(env))
	for _, cmd := range extra {
		switch cmd.Name() { // these run the service; asking a running one is a client's matter
		case "agent":
			cmd.AddCommand(agent.Commands(env.Getenv)...)
		case "lb":
			cmd.AddCommand(lb.Commands(env)...)
		}
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}
