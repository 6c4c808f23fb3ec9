package edge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) overview() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "overview", Short: "Show the fleet at a glance: counts by state, and rates",
		Example: "  mainstay edge overview\n  mainstay edge overview -o json",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.GetOverview(ctx))
		if err != nil {
			return err
		}
		return c.Out.ObjectAs(a.Body, func() error {
			o, err := decode[edgeapi.Overview](a, nil)
			if err != nil {
				return err
			}
			return c.Out.Rows(overviewRows(o))
		})
	})
}

func overviewRows(o edgeapi.Overview) [][]any {
	rows := [][]any{
		{"WHAT", "COUNT", "BY STATE"},
		{"Orgs", o.Orgs, ""},
		countRow("Sites", o.Sites),
		{"Devices", o.Devices, ""},
		countRow("Updates", o.Ota),
		countRow("Campaigns", o.Campaigns),
		countRow("Deployments", o.Deployments),
		countRow("Policy packs", o.PolicyPacks),
		countRow("Routes", o.Routes),
		{"Routes failing", o.RoutesFailing, ""},
		{"Deliveries pending", o.DeliveriesPending, ""},
		{"Dead letters", o.Deadletters, ""},
		countRow("Alerts", o.Alerts),
		{"", "", ""},
		{"RATE", "LAST HOUR", "A MINUTE"},
	}
	for _, rate := range []struct {
		name string
		of   func(edgeapi.RateMinute) int64
	}{
		{"Events", func(m edgeapi.RateMinute) int64 { return m.Events }},
		{"Delivered", func(m edgeapi.RateMinute) int64 { return m.Delivered }},
		{"Failed attempts", func(m edgeapi.RateMinute) int64 { return m.FailedAttempts }},
		{"Dead lettered", func(m edgeapi.RateMinute) int64 { return m.DeadLettered }},
	} {
		rows = append(rows, series(rate.name, o.Rates, rate.of))
	}
	return rows
}

// series returns a row with the sum of some minutes and a sparkline.
func series[T any](name string, minutes []T, of func(T) int64) []any {
	var sum int64
	values := make([]int64, len(minutes))
	for i, m := range minutes {
		values[i] = of(m)
		sum += values[i]
	}
	return []any{name, sum, output.Sparkline(values)}
}

func countRow(name string, counts edgeapi.Counts) []any {
	var sum int64
	var states []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		sum += counts[state]
		if counts[state] != 0 {
			states = append(states, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	return []any{name, sum, strings.Join(states, ", ")}
}
