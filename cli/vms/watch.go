package vms

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) watch() *cobra.Command {
	var last string
	cmd := s.Command(verb.Verb{
		Use: "watch VM", Short: "Print what happens to a VM as it happens, until interrupted",
		Long: `Print what happens to a VM as it happens, until interrupted. When the connection breaks, the command reconnects and continues
after the last event. When the VM is deleted, it fails. --output json prints one object per line.`,
		Example: "  mainstay vms watch web\n  mainstay vms watch web --last-event-id 12 --output json",
	}, func(ctx context.Context, c *call) error {
		open := func(ctx context.Context, last string) (*http.Response, error) {
			params := &vmapi.WatchVMEventsParams{Tenant: s.of()}
			if last != "" {
				params.LastEventID = &last
			}
			return c.Slow.WatchVMEvents(ctx, c.Args[0], params, verb.AcceptEvents)
		}
		return c.Follow(ctx, last, open, func(name, data string) error {
			if name != "event" {
				return nil
			}
			return printEvent(c, []byte(data))
		})
	})
	cmd.Flags().StringVar(&last, "last-event-id", "", "go on after this event")
	return cmd
}

func printEvent(c *call, raw []byte) error {
	var e vmapi.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return fmt.Errorf("the stream is not as the API's contract says: %w", err)
	}
	return c.Out.Line(raw, func() string {
		line := fmt.Sprintf("%s  %-10s %s", e.At.UTC().Format(time.RFC3339), e.Kind, e.Message)
		if e.Actor != "" {
			line += " (" + e.Actor + ")"
		}
		return output.Escape(line)
	})
}
