package edge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) activityFollow() *cobra.Command {
	var last string
	cmd := s.Command(verb.Verb{
		Use:   "follow",
		Short: "Print activity as it happens, until interrupted",
		Long: `Print activity as it happens, until interrupted. When the connection breaks, the command reconnects and
continues after the last line, so nothing is missed that the server still keeps. --output json prints one object per line.`,
		Example: "  mainstay edge activity follow\n  mainstay edge activity follow -o json --last-event-id 120 | jq .message",
	}, func(ctx context.Context, c *call) error {
		return follow(ctx, c, last)
	})
	cmd.Flags().StringVar(&last, "last-event-id", "", "go on after this entry")
	return cmd
}

func follow(ctx context.Context, c *call, last string) error {
	open := func(ctx context.Context, last string) (*http.Response, error) {
		params := &edgeapi.GetStreamParams{}
		if last != "" {
			params.LastEventID = &last
		}
		return c.Slow.GetStream(ctx, params, verb.AcceptEvents)
	}
	return c.Follow(ctx, last, open, func(name, data string) error {
		if name != "activity" {
			return nil
		}
		return printActivity(c, []byte(data))
	})
}

func printActivity(c *call, raw []byte) error {
	var entry edgeapi.ActivityEntry
	if err := json.Unmarshal(raw, &entry); err != nil {
		return fmt.Errorf("the stream is not as the API's contract says: %w", err)
	}
	return c.Out.Line(raw, func() string {
		// In lines that stay on the screen, a clock time is more useful than a relative one.
		cells := []string{entry.Time.Local().Format(time.DateTime)}
		if !c.Out.Terminal {
			cells[0] = c.Out.Time(entry.Time)
		}
		for _, v := range activityColumns().Row(entry)[1:] {
			cells = append(cells, c.Out.Cell(v))
		}
		return strings.Join(cells, "  ")
	})
}
