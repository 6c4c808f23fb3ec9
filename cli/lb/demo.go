package lb

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/lb/demo"
)

// demoCommand is `mainstay lb demo`.
func demoCommand() *cobra.Command {
	cfg := demo.Config{}
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the load balancer at work on this machine, in a network of its own",
		Long: `Show the load balancer at work on this machine, in a network of its own.

A client, a balancer and three backends run in network namespaces on one switch. The daemon runs on the balancer, and
the client's traffic goes through it. The demo prints who answers while it changes a weight, drains a backend and kills
another. Then it runs until Ctrl-C, so that you can look at the console.

Nothing outside these namespaces changes, and nothing is left afterwards. The demo needs root.`,
		Example: `  sudo mainstay lb demo
  sudo mainstay lb demo --mode dsr
  sudo mainstay lb demo --once --step 2s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Mode != "nat" && cfg.Mode != "dsr" {
				return exit.Usagef("--mode must be nat or dsr, not %q", cfg.Mode)
			}
			if cfg.Step < time.Second {
				return exit.Usagef("--step must be at least 1s")
			}
			cfg.Out, cfg.Stay = cmd.OutOrStdout(), !once
			return demo.Run(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&cfg.Mode, "mode", "nat", "how packets get to backends: nat or dsr")
	cmd.Flags().DurationVar(&cfg.Step, "step", 5*time.Second, "how long each step is watched")
	cmd.Flags().BoolVar(&once, "once", false, "end after the last step")
	return cmd
}
