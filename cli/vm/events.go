package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// watchedEvents is how many of the newest events are polled.
const watchedEvents = 100

func (s commands) events() *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := verb.List(s.Session, verb.Verb{
		Use:   "events VM",
		Short: "List what happened to a VM, newest first; or watch it happen",
		Long: `List what happened to a VM, newest first; the last 1,000 events are kept. With --watch the latest are printed oldest first,
then new ones as they come, until Ctrl-C.`,
		Example: "  mainstay vm events web\n  mainstay vm events web --watch",
	}, output.Columns[hypervisorapi.Event]{
		Heads: []string{"TIME", "KIND", "ACTOR", "MESSAGE"},
		Row:   func(v hypervisorapi.Event) []any { return []any{v.At, v.Kind, actor(v), v.Message} },
	}, func(ctx context.Context, c *daemon.Call, p verb.Page) (*http.Response, error) {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return nil, err
		}
		return c.API.ListVMEvents(ctx, id, &hypervisorapi.ListVMEventsParams{Limit: p.Limit, Cursor: p.Cursor})
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "go on with events as they come")
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "how often to look, with --watch")
	list := cmd.RunE
	watching := s.Command(
		verb.Verb{Use: cmd.Use},
		func(ctx context.Context, c *daemon.Call) error { return watchEvents(ctx, c, interval) },
	).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !watch {
			return list(cmd, args)
		}
		if interval <= 0 {
			return exit.Usagef("--interval must be more than 0")
		}
		return watching(cmd, args)
	}
	return cmd
}

func actor(e hypervisorapi.Event) string {
	if e.Actor == nil {
		return ""
	}
	return *e.Actor
}

// watchEvents prints events as they occur. Events have no ids, so those of the previous poll are
// recognized by their whole content.
func watchEvents(ctx context.Context, c *daemon.Call, interval time.Duration) error {
	id, err := daemon.VMID(ctx, c, c.Args[0])
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for {
		items, err := daemon.Decode[[]json.RawMessage](
			c.Send(c.API.ListVMEvents(ctx, id, &hypervisorapi.ListVMEventsParams{Limit: new(watchedEvents)})),
		)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := make(map[string]bool, len(items))
		for _, item := range slices.Backward(items) {
			now[string(item)] = true
			if known[string(item)] {
				continue
			}
			event, err := daemon.Decode[hypervisorapi.Event](daemon.Answer{Body: item}, nil)
			if err != nil {
				return err
			}
			if err := c.Out.Line(item, func() string { return eventLine(event) }); err != nil {
				return err
			}
		}
		known = now
		if !pause(ctx, interval) {
			return nil
		}
	}
}

func eventLine(e hypervisorapi.Event) string {
	line := fmt.Sprintf("%s  %-10s %s", e.At.UTC().Format(time.RFC3339), e.Kind, e.Message)
	if by := actor(e); by != "" {
		line += " (" + by + ")"
	}
	return output.Escape(line)
}

// pause waits for d. It returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
