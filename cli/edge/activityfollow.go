package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

const (
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
	// silence is how long a stream may send nothing, not even heartbeats, before it is considered
	// dead.
	silence = time.Minute
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
	pause, connected := firstPause, false
	for {
		before := last
		accepted, err := stream(ctx, c, &last)
		if ctx.Err() != nil {
			return nil // the only successful end
		}
		connected = connected || accepted
		// An error response would be repeated, and if the first connection fails, the user should
		// know.
		if !connected || exit.Code(err) != exit.Failure {
			return err
		}
		if last != before {
			pause = firstPause
		}
		if _, err := fmt.Fprintf(c.Cmd.ErrOrStderr(), "The stream broke (%v); connecting again.\n", err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// stream prints the entries of one connection and stores the id of the last one.
func stream(ctx context.Context, c *call, last *string) (accepted bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dead := time.AfterFunc(silence, func() { cancel(errors.New("no sign of life")) })
	defer dead.Stop()

	params := &edgeapi.GetStreamParams{}
	if *last != "" {
		params.LastEventID = last
	}
	r, err := c.Slow.GetStream(ctx, params, func(_ context.Context, r *http.Request) error {
		r.Header.Set("Accept", "text/event-stream")
		return nil
	})
	if r, err = Service.Open(r, err); err != nil {
		return false, err
	}
	// The connection has ended; errors of closing do not matter.
	defer func() { _ = r.Body.Close() }()
	err = readEvents(r.Body, func() { dead.Reset(silence) }, func(id, name, data string) error {
		if name == "activity" {
			if err := printActivity(c, []byte(data)); err != nil {
				return err
			}
		}
		if id != "" {
			*last = id
		}
		return nil
	})
	switch {
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return true, err
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
