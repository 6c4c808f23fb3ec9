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

func (s *session) events() *cobra.Command {
	cmd := verb.Group("event", "Events: send, list, import", "  mainstay edge event list --minutes 5", "events")
	cmd.AddCommand(s.eventSend(), s.eventList(), s.eventImport())
	return cmd
}

func (s *session) eventList() *cobra.Command {
	var site, topic, search string
	var minutes int
	cmd := verb.List(s.Session, verb.Verb{
		Use:     "list",
		Short:   "List events, newest first",
		Example: "  mainstay edge event list --minutes 5 --topic 'alarm.*'\n  mainstay edge event list --site plant-7 --limit 1000 -o json",
	}, output.Columns[edgeapi.Event]{
		Heads: []string{"RECEIVED", "SITE", "TOPIC", "EVENT ID", "PAYLOAD"},
		Row: func(v edgeapi.Event) []any {
			return []any{v.ReceivedAt, siteRef(v.SiteId), v.Topic, v.EventId, v.Payload}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListEvents(
			ctx,
			&edgeapi.ListEventsParams{Limit: p.Limit, Cursor: p.Cursor, SiteId: verb.Given(c, "site", site),
				Minutes: verb.Given(c, "minutes", minutes), Topic: verb.Given(c, "topic", topic),
				Q: verb.Given(c, "search", search)},
		)
	})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "only events of this site")
	f.IntVar(&minutes, "minutes", 0, "only events received in the last so many minutes")
	f.StringVar(&topic, "topic", "", "only topics that match this pattern (* is any run of characters)")
	f.StringVar(&search, "search", "", "only topics that contain this text")
	return cmd
}

func (s *session) eventSend() *cobra.Command {
	var site, topic, id, data string
	var headers verb.Pairs
	var at input.Moment
	cmd := s.Object(verb.Verb{
		Required: []string{"site", "topic"},
		Use:      "send", Short: "Send one event; success means that it is on disk",
		Long: `Send one event; success means that it is on the server's disk.

With --id, sending again is safe: the server recognises the event and answers that it is a duplicate.`,
		Example: `  mainstay edge event send --site plant-7 --topic sensor.temp --data '{"celsius": 21.5}'
  mainstay edge event send --site plant-7 --topic report --id report-1 --data @report.json
  date +%s | mainstay edge event send --site plant-7 --topic clock`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		payload, err := c.JSON("data", data)
		if err != nil {
			return nil, err
		}
		e := edgeapi.EventInput{
			SiteId:    site,
			Topic:     topic,
			Payload:   payload,
			EventId:   verb.Given(c, "id", id),
			EventTime: at.At,
		}
		if headers != nil {
			e.Headers = new(edgeapi.Headers(headers))
		}
		return c.API.IngestEvent(ctx, e)
	})
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "site that the event is of (required)")
	f.StringVar(&topic, "topic", "", "topic (required)")
	f.StringVar(&id, "id", "", "id of the event; made by the server when absent")
	f.StringVar(&data, "data", "", "payload: JSON, @FILE, or - for standard input (the default)")
	f.Var(&headers, "header", "header of the event; may be repeated")
	f.Var(&at, "time", "when it happened; now when absent")
	return cmd
}
