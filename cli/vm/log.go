package vm

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) log() *cobra.Command {
	var tail int
	var cmd *cobra.Command
	cmd = s.Command(verb.Verb{
		Use: "log VM", Short: "Print the end of a VM's serial log",
		Long: `Print the end of a VM's serial log: what it printed, also before it was restarted or while it does not run. On a terminal,
characters that are not printable are escaped. To follow what a VM prints, use its console.`,
		Example: "  mainstay vm log web\n  mainstay vm log web --tail 1000000 >web.log",
	}, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		a, err := c.Send(c.API.GetVMLog(ctx, id, &hypervisorapi.GetVMLogParams{Tail: verb.Given(c, "tail", tail)}))
		if err != nil {
			return err
		}
		text := string(a.Body)
		if c.Out.Terminal {
			text = printable(text)
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	})
	cmd.Flags().IntVar(&tail, "tail", 64<<10, "most bytes to print, at most 2 MiB")
	return cmd
}

// printable makes a log safe to show on a terminal.
func printable(log string) string {
	lines := strings.Split(strings.ReplaceAll(log, "\r", ""), "\n")
	for i, line := range lines {
		lines[i] = output.Escape(line)
	}
	return strings.Join(lines, "\n")
}
