package edge

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) routeTest() *cobra.Command {
	var data string
	cmd := s.Command(verb.Verb{
		Use: "test ROUTE", Short: "Send one made-up event to a route's target now, once",
		Long:    "Send one made-up event to a route's target now, once. Fails when the target does not accept it.",
		Example: "  mainstay edge route test alarms\n  mainstay edge route test alarms --data '{\"hello\": true}'",
	}, func(ctx context.Context, c *call) error {
		var body edgeapi.RouteTest
		if c.Cmd.Flags().Changed("data") {
			payload, err := c.JSON("data", data)
			if err != nil {
				return err
			}
			body.Payload = &payload
		}
		a, err := c.Send(c.API.TestRoute(ctx, c.Args[0], body))
		result, err := decode[edgeapi.RouteTestResult](a, err)
		if err != nil {
			return err
		}
		if err := c.Out.Object(a.Body); err != nil {
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
	cmd := s.Command(verb.Verb{
		Use: "stats ROUTE", Short: "Show how delivery over a route goes",
		Example: "  mainstay edge route stats alarms --minutes 240",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.GetRouteStats(ctx, c.Args[0], &edgeapi.GetRouteStatsParams{Minutes: &minutes}))
		if err != nil {
			return err
		}
		return c.Out.ObjectAs(a.Body, func() error {
			stats, err := decode[edgeapi.RouteStats](a, nil)
			if err != nil {
				return err
			}
			return c.Out.Rows(statsRows(stats))
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
