package cli

import (
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/contexts"
	"github.com/mainstay-infra/mainstay/cli/edge"
	"github.com/mainstay-infra/mainstay/cli/lb"
	"github.com/mainstay-infra/mainstay/cli/login"
	"github.com/mainstay-infra/mainstay/cli/man"
	"github.com/mainstay-infra/mainstay/cli/storage"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
	"github.com/mainstay-infra/mainstay/cli/vms"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// NewRoot returns the command `mainstay` with everything below it.
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
  4  no valid credentials, or they do not permit this
  5  the server cannot be reached, or cannot answer now

"mainstay vm exec" exits with the code of the program in the guest, 126 if it cannot be executed, 127 if it does not
exist, 128 and the signal's number if a signal ended it, and 125 if it was not run at all.`,
		Example: "  mainstay dev\n  mainstay edge overview",
		Version: telemetry.BuildInfo().Version,
		RunE:    verb.Subcommands,
		Args:    cobra.ArbitraryArgs,
		// Main prints errors itself; the usage text would push them off the screen.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	verb.ListShortForms(root)
	root.SetVersionTemplate("mainstay {{.Version}}\n")
	root.SetIn(stdio.In)
	root.SetOut(stdio.Out)
	root.SetErr(stdio.Err)
	root.AddCommand(version())
	root.AddCommand(extra...)
	env := stdio.environment()
	for _, n := range Nouns() {
		n.addTo(root, env)
	}
	root.AddCommand(contexts.New(env, &edge.Service, &daemon.Service, &vms.Service, &lb.Service, &storage.Service))
	root.AddCommand(login.New(env, edge.Account, daemon.Account, vms.Account, lb.Account, storage.Account)...)
	root.AddCommand(man.New(root.Version))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}
