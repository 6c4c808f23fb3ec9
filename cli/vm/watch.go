package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) watch() *cobra.Command {
	var last string
	cmd := s.Command(verb.Verb{
		Use: "watch", Short: "Print what happens to all VMs as it happens, until interrupted",
		Long: `Print what happens to all VMs as it happens, until interrupted. When the connection breaks, the command reconnects and
continues after the last event. If the daemon does not keep all events since then, it says so. --output json prints one
object per line.`,
		Example: "  mainstay vm watch\n  mainstay vm watch --output json | jq .message",
	}, func(ctx context.Context, c *daemon.Call) error {
		return watchVMs(ctx, c, last)
	})
	cmd.Flags().StringVar(&last, "last-event-id", "", "go on after this event")
	return cmd
}

func watchVMs(ctx context.Context, c *daemon.Call, last string) error {
	begun := last != ""
	open := func(ctx context.Context, last string) (*http.Response, error) {
		params := &hypervisorapi.WatchVMsParams{}
		if last != "" {
			params.LastEventID = &last
		}
		return c.Slow.WatchVMs(ctx, params, verb.AcceptEvents)
	}
	return c.Follow(ctx, last, open, func(name, data string) error {
		switch name {
		case "reset":
			if begun {
				c.Note("Some events are missing: the daemon does not keep them any longer. 'mainstay vm list' shows what there is.")
			}
			begun = true
		case "vm":
			return printVMEvent(c, []byte(data))
		}
		return nil
	})
}

func printVMEvent(c *daemon.Call, raw []byte) error {
	var e hypervisorapi.VMEvent
	if err := json.Unmarshal(raw, &e); err != nil {
		return fmt.Errorf("the stream is not as the API's contract says: %w", err)
	}
	return c.Out.Line(raw, func() string {
		line := fmt.Sprintf("%s  %s  %-10s %s", e.At.UTC().Format(time.RFC3339), e.Name, e.Kind, e.Message)
		if e.Actor != nil {
			line += " (" + *e.Actor + ")"
		}
		return output.Escape(line)
	})
}
