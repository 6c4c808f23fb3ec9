package edge

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) activity() *cobra.Command {
	cmd := verb.Group("activity", "Activity: what happened lately, and what happens now", "  mainstay edge activity follow")
	cmd.AddCommand(s.activityList(), s.activityAdd(), s.activityFollow())
	return cmd
}

func activityColumns() output.Columns[edgeapi.ActivityEntry] {
	return output.Columns[edgeapi.ActivityEntry]{
		Heads: []string{"TIME", "LEVEL", "SOURCE", "SITE", "ACTION", "MESSAGE"},
		Row: func(v edgeapi.ActivityEntry) []any {
			return []any{v.Time, v.Level, v.Source, cmp.Or(v.Site, v.SiteId), v.Action, v.Message}
		},
	}
}

func (s *session) activityList() *cobra.Command {
	var site string
	cmd := verb.List(
		s.Session,
		verb.Verb{
			Use:     "list",
			Short:   "List activity, newest first",
			Example: "  mainstay edge activity list --site plant-7 --limit 20",
		},
		activityColumns(),
		func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListActivity(
				ctx, &edgeapi.ListActivityParams{Limit: p.Limit, Cursor: p.Cursor, SiteId: verb.Given(c, "site", site)},
			)
		},
	)
	cmd.Flags().StringVar(&site, "site", "", "only what concerns this site")
	return cmd
}

func (s *session) activityAdd() *cobra.Command {
	var level, source, chapter, site, action, detail string
	cmd := s.Command(verb.Verb{
		Use: "create MESSAGE", Aliases: []string{"add"}, Short: "Add a line of activity",
		Example: "  mainstay edge activity create 'maintenance begins' --level chapter\n" +
			"  mainstay edge activity create 'valve stuck' --site plant-7 --level error --detail '{\"valve\": 3}'",
	}, func(ctx context.Context, c *call) error {
		line := edgeapi.ActivityLine{
			Message: c.Args[0],
			Level:   verb.Given(c, "level", edgeapi.ActivityLevel(level)),
			Source:  verb.Given(c, "source", source),
			Chapter: verb.Given(c, "chapter", chapter),
			SiteId:  verb.Given(c, "site", site),
			Action:  verb.Given(c, "action", action),
		}
		if c.Cmd.Flags().Changed("detail") {
			raw, err := c.JSON("detail", detail)
			if err != nil {
				return err
			}
			line.Detail = &raw
		}
		a, err := c.Send(c.API.AddActivity(ctx, edgeapi.ActivityInput{Entries: []edgeapi.ActivityLine{line}}))
		items, err := decode[[]json.RawMessage](a, err)
		if err != nil {
			return err
		}
		l := output.NewList(c.Out, activityColumns())
		if err := l.Page(items); err != nil {
			return err
		}
		return l.Close()
	})
	f := cmd.Flags()
	f.StringVar(&level, "level", "info", "info, warn, error, chapter or ok")
	f.StringVar(&source, "source", "", "where it comes from")
	f.StringVar(&chapter, "chapter", "", "chapter that it belongs to")
	f.StringVar(&site, "site", "", "site that it concerns")
	f.StringVar(&action, "action", "", "a stable word for programs")
	f.StringVar(&detail, "detail", "", "details: a JSON object, @FILE, or - for standard input")
	return cmd
}
