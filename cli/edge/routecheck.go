package edge

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
)

func (s *session) routeTest() *cobra.Command {
	var data string
	cmd := s.command(verb{
		use: "test ID", short: "Send one made-up event to a route's target now, once",
		long:    "Send one made-up event to a route's target now, once. Fails when the target does not accept it.",
		example: "  mainstay edge route test ID\n  mainstay edge route test ID --data '{\"hello\": true}'",
	}, func(ctx context.Context, c *call) error {
		var body edgeapi.RouteTest
		if c.cmd.Flags().Changed("data") {
			payload, err := c.json("data", data)
			if err != nil {
				return err
			}
			body.Payload = &payload
		}
		a, err := c.send(c.api.TestRoute(ctx, c.args[0], body))
		result, err := decode[edgeapi.RouteTestResult](a, err)
		if err != nil {
			return err
		}
		if err := c.out.Object(a.Body); err != nil {
			return err
		}
		if !result.Delivered {
			return errors.New("the target did not accept the event")
		}
		return nil
	})
	cmd.Flags().StringVar(&data, "data", "", "payload: JSON, @FILE, or - for standard input")
	return cmd
}

func (s *session) routeStats() *cobra.Command {
	var minutes int
	cmd := s.command(verb{
		use: "stats ID", short: "Show how delivery over a route goes",
		example: "  mainstay edge route stats ID --minutes 240",
	}, func(ctx context.Context, c *call) error {
		a, err := c.send(c.api.GetRouteStats(ctx, c.args[0], &edgeapi.GetRouteStatsParams{Minutes: &minutes}))
		if err != nil {
			return err
		}
		return c.out.ObjectAs(a.Body, func() error {
			stats, err := decode[edgeapi.RouteStats](a, nil)
			if err != nil {
				return err
			}
			return c.out.Rows(statsRows(stats))
		})
	})
	cmd.Flags().IntVar(&minutes, "minutes", 60, "length of the series, 1 to 1440")
	return cmd
}

func statsRows(v edgeapi.RouteStats) [][]any {
	course := func(of func(edgeapi.RouteMinute) int64) any { return series("", v.Series, of)[2] }
	return [][]any{
		{"WHAT", "TOTAL", "A MINUTE"},
		{"Delivered", v.Delivered, course(func(m edgeapi.RouteMinute) int64 { return m.Delivered })},
		{"Failed attempts", v.FailedAttempts, course(func(m edgeapi.RouteMinute) int64 { return m.FailedAttempts })},
		{"Dead lettered", v.DeadLettered, course(func(m edgeapi.RouteMinute) int64 { return m.DeadLettered })},
		{"Pending", v.Pending, ""},
		{"", "", ""},
		{"STATE", "VALUE", ""},
		{"Circuit breaker", v.Breaker, ""},
		{"Last success", v.LastSuccessAt, ""},
		{"Last failure", v.LastFailureAt, ""},
		{"Last status", v.LastStatus, ""},
		{"Last error", v.LastError, ""},
	}
}
