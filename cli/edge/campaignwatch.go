package edge

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) campaignWatch() *cobra.Command {
	var interval time.Duration
	cmd := s.Command(verb.Verb{
		Use: "watch CAMPAIGN", Short: "Follow a campaign until it ends",
		Long: `Follow a campaign until it ends: bars by outcome on a terminal, else a line whenever something changed.

Exits with 1 when the campaign was aborted. With --output json or yaml only the last state is printed.`,
		Example: "  mainstay edge campaign watch fw-2.1\n  mainstay edge campaign watch fw-2.1 --interval 10s > campaign.log",
	}, func(ctx context.Context, c *call) error {
		show := watcher(c)
		for {
			a, err := c.Send(c.API.GetCampaign(ctx, c.Args[0]))
			v, err := decode[edgeapi.Campaign](a, err)
			if err != nil {
				return err
			}
			if err := show(v); err != nil {
				return err
			}
			ended := v.Status == edgeapi.CampaignStatusCompleted || v.Status == edgeapi.CampaignStatusAborted
			if ended && !c.Table() {
				err = c.Out.Object(a.Body)
			}
			if v.Status == edgeapi.CampaignStatusAborted && err == nil {
				err = fmt.Errorf("the campaign was aborted")
			}
			if ended || err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("interrupted; the campaign goes on: %w", ctx.Err())
			case <-time.After(interval):
			}
		}
	})
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "how often to look")
	return cmd
}

// watcher returns a function that shows a campaign's state.
func watcher(c *call) func(edgeapi.Campaign) error {
	var drawn int
	var last string
	return func(v edgeapi.Campaign) error {
		if !c.Table() {
			return nil
		}
		if !c.Out.Terminal {
			line := watchLine(v)
			if line == last {
				return nil
			}
			last = line
			_, err := fmt.Fprintln(c.Out.Out, c.Out.Cell(time.Now()), line)
			return err
		}
		lines := watchBars(v)
		text := strings.Join(lines, "\x1b[K\n") + "\x1b[K\n"
		if drawn > 0 {
			text = fmt.Sprintf("\x1b[%dA", drawn) + text
		}
		drawn = len(lines)
		_, err := io.WriteString(c.Out.Out, text)
		return err
	}
}

type outcome struct {
	name  string
	count int64
}

func outcomes(n edgeapi.CampaignCounts) []outcome {
	return []outcome{
		{"succeeded", n.Succeeded}, {"failed", n.Failed}, {"in_progress", n.InProgress},
		{"pending", n.Pending}, {"waiting", n.Waiting}, {"removed", n.Removed},
	}
}

func watchLine(v edgeapi.Campaign) string {
	parts := []string{string(v.Status), "stage=" + stageOf(v)}
	for _, o := range outcomes(v.Counts) {
		parts = append(parts, fmt.Sprintf("%s=%d", o.name, o.count))
	}
	if v.PausedReason != "" {
		parts = append(parts, fmt.Sprintf("paused=%q", v.PausedReason))
	}
	return output.Escape(strings.Join(parts, " "))
}

func watchBars(v edgeapi.Campaign) []string {
	state := string(v.Status)
	if v.PausedReason != "" {
		state += ", paused: " + v.PausedReason
	}
	lines := []string{
		output.Escape(fmt.Sprintf("%s: %s, stage %s of %d devices", v.Name, state, stageOf(v), v.Counts.Total)),
	}
	for _, o := range outcomes(v.Counts) {
		lines = append(lines, fmt.Sprintf("  %-11s %s %d", o.name, output.Bar(o.count, v.Counts.Total, 40), o.count))
	}
	return lines
}

// stageOf returns, for example, "2/3", counted from 1; "0/3" is a draft.
func stageOf(v edgeapi.Campaign) string {
	return fmt.Sprintf("%d/%d", v.CurrentStage+1, len(v.Stages))
}
