package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) deadLetters() *cobra.Command {
	cmd := verb.Group(
		"deadletter", "Dead letters: events that could not be delivered", "  mainstay edge deadletter list",
		"deadletters", "dl",
	)
	cmd.AddCommand(
		s.deadLetterList(),
		s.show("deadletter", "LETTER", "dead letter", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.GetDeadLetter(ctx, c.Args[0])
		}),
		s.Object(
			verb.Verb{
				Use:     "replay LETTER",
				Short:   "Deliver a dead letter again",
				Example: "  mainstay edge deadletter replay LETTER",
			},
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.API.ReplayDeadLetter(ctx, c.Args[0])
			},
		),
		s.deadLetterReplayAll(),
		s.delete("deadletter", "LETTER", "dead letter", "", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.DeleteDeadLetter(ctx, c.Args[0])
		}),
	)
	return cmd
}

func (s *session) deadLetterList() *cobra.Command {
	var site, route, reason, search string
	cmd := verb.List(s.Session, verb.Verb{
		Use: "list", Short: "List dead letters, newest first",
		Example: "  mainstay edge deadletter list --route alarms --reason exhausted",
	}, output.Columns[edgeapi.DeadLetter]{
		Heads: []string{"ID", "CREATED", "ROUTE", "TOPIC", "REASON", "STATUS", "ATTEMPTS", "LAST ERROR"},
		Row: func(v edgeapi.DeadLetter) []any {
			return []any{v.Id, v.CreatedAt, routeRef(v.RouteId), v.Event.Topic, v.Reason, v.Status, v.Attempts, v.LastError}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListDeadLetters(
			ctx,
			&edgeapi.ListDeadLettersParams{Limit: p.Limit, Cursor: p.Cursor, SiteId: verb.Given(c, "site", site),
				RouteId: verb.Given(c, "route", route), Reason: verb.Given(c, "reason", edgeapi.DeadLetterReason(reason)),
				Q: verb.Given(c, "search", search)},
		)
	})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "only events of this site")
	f.StringVar(&route, "route", "", "only those of this route")
	f.StringVar(&reason, "reason", "", "exhausted, permanent, route_disabled or route_deleted")
	f.StringVar(&search, "search", "", "only those with this text in the topic, the event ID or the last error")
	return cmd
}

func (s *session) deadLetterReplayAll() *cobra.Command {
	var route string
	var from, to input.Moment
	cmd := s.Object(verb.Verb{
		Required: []string{"route"},
		Use:      "replay-all",
		Short:    "Deliver all dead letters of a route again, or those of a span of time",
		Example:  "  mainstay edge deadletter replay-all --route alarms\n  mainstay edge deadletter replay-all --route alarms --from 2h",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.ReplayDeadLetters(ctx, edgeapi.ReplayRequest{RouteId: route, From: from.At, To: to.At})
	})
	f := cmd.Flags()
	f.StringVar(&route, "route", "", "route to deliver over (required)")
	f.Var(&from, "from", "only those from this time on, or from so long ago")
	f.Var(&to, "to", "only those before this time")
	return cmd
}
