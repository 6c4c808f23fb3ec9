package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
)

func (s *session) deadLetters() *cobra.Command {
	cmd := group(
		"deadletter", "Dead letters: events that could not be delivered", "  mainstay edge deadletter list",
		"deadletters", "dl",
	)
	cmd.AddCommand(
		s.deadLetterList(),
		s.get("deadletter", "dead letter", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.api.GetDeadLetter(ctx, c.args[0])
		}),
		s.object(
			verb{
				use:     "replay ID",
				short:   "Deliver a dead letter again",
				example: "  mainstay edge deadletter replay ID",
			},
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.api.ReplayDeadLetter(ctx, c.args[0])
			},
		),
		s.deadLetterReplayAll(),
		s.delete("deadletter", "dead letter", "", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.api.DeleteDeadLetter(ctx, c.args[0])
		}),
	)
	return cmd
}

func (s *session) deadLetterList() *cobra.Command {
	var site, route, reason string
	cmd := list(s, verb{
		use: "list", short: "List dead letters, newest first",
		example: "  mainstay edge deadletter list --route ID --reason exhausted",
	}, output.Columns[edgeapi.DeadLetter]{
		Heads: []string{"ID", "CREATED", "ROUTE", "TOPIC", "REASON", "STATUS", "ATTEMPTS", "LAST ERROR"},
		Row: func(v edgeapi.DeadLetter) []any {
			return []any{v.Id, v.CreatedAt, v.RouteId, v.Event.Topic, v.Reason, v.Status, v.Attempts, v.LastError}
		},
	}, func(ctx context.Context, c *call, p page) (*http.Response, error) {
		return c.api.ListDeadLetters(
			ctx,
			&edgeapi.ListDeadLettersParams{Limit: p.limit, Cursor: p.cursor, SiteId: given(c, "site", site),
				RouteId: given(c, "route", route), Reason: given(c, "reason", edgeapi.DeadLetterReason(reason))},
		)
	})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "only events of this site")
	f.StringVar(&route, "route", "", "only those of this route")
	f.StringVar(&reason, "reason", "", "exhausted, permanent, route_disabled or route_deleted")
	return cmd
}

func (s *session) deadLetterReplayAll() *cobra.Command {
	var route string
	var from, to input.Moment
	cmd := s.object(verb{
		use:     "replay-all",
		short:   "Deliver all dead letters of a route again, or those of a span of time",
		example: "  mainstay edge deadletter replay-all --route ID\n  mainstay edge deadletter replay-all --route ID --from 2h",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		if err := c.required("route"); err != nil {
			return nil, err
		}
		return c.api.ReplayDeadLetters(ctx, edgeapi.ReplayRequest{RouteId: route, From: from.At, To: to.At})
	})
	f := cmd.Flags()
	f.StringVar(&route, "route", "", "route to deliver over (required)")
	f.Var(&from, "from", "only those from this time on, or from so long ago")
	f.Var(&to, "to", "only those before this time")
	return cmd
}
