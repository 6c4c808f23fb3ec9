package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) routes() *cobra.Command {
	cmd := verb.Group("route", "Routes: deliver matching events to HTTP targets", "  mainstay edge route list", "routes")
	cmd.AddCommand(
		s.routeList(),
		s.show(
			"route", "ROUTE", "route",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetRoute(ctx, c.Args[0]) },
		),
		s.routeCreate(),
		s.routeUpdate(),
		s.routeSwitch("enable", "Deliver over a route again", true),
		s.routeSwitch("disable", "Stop delivery over a route; what is pending becomes dead letters", false),
		s.delete(
			"route",
			"ROUTE",
			"route",
			" (its pending deliveries become dead letters)",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.API.DeleteRoute(ctx, c.Args[0])
			},
		),
		s.routeTest(),
		s.routeStats(),
		s.routeListen(),
	)
	return cmd
}

func (s *session) routeList() *cobra.Command {
	var status, search, sort string
	cmd := verb.List(s.Session, verb.Verb{
		Use: "list", Short: "List routes, oldest first",
		Example: "  mainstay edge route list --status failing\n  mainstay edge route list --search hooks.example.com --sort -updated_at",
	}, output.Columns[edgeapi.Route]{
		Heads: []string{"ID", "NAME", "TOPIC", "SITE", "METHOD", "TARGET", "ENABLED", "DELIVERY", "LAST ERROR"},
		Row: func(v edgeapi.Route) []any {
			return []any{
				v.Id, v.Name, v.Topic, siteRef(v.SiteId), v.Method, v.TargetUrl, v.Enabled, v.Delivery.State,
				v.Delivery.LastError,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListRoutes(ctx, &edgeapi.ListRoutesParams{
			Limit:  p.Limit,
			Cursor: p.Cursor,
			Status: verb.Given(c, "status", edgeapi.ListRoutesParamsStatus(status)),
			Q:      verb.Given(c, "search", search),
			Sort:   verb.Given(c, "sort", edgeapi.ListRoutesParamsSort(sort)),
		})
	})
	f := cmd.Flags()
	f.StringVar(&status, "status", "", "enabled, disabled, or failing: those for which an alert is firing")
	f.StringVar(&search, "search", "", "only routes with this text in the name, the ID, the topic or the target's URL")
	f.StringVar(&sort, "sort", "", "id, name or updated_at; a dash before it means descending")
	return cmd
}

// routeFlags are the flags for creating and changing a route.
type routeFlags struct {
	name, topic, url, site, method, secret string
	retryMax, timeout                      int
}

func (f *routeFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.topic, "topic", "", "topic of the events, in which * is any run of characters")
	fs.StringVar(&f.url, "url", "", "where to deliver")
	fs.StringVar(&f.site, "site", "", "only events of this site")
	fs.StringVar(&f.method, "method", "POST", "POST, PUT or PATCH")
	fs.StringVar(&f.secret, "secret", "", "Standard Webhooks secret (whsec_...) to sign with")
	fs.IntVar(&f.retryMax, "retry-max", 5, "retries after the first attempt, 1 to 20")
	// --timeout is the request timeout on every command; this one is the target's.
	fs.IntVar(&f.timeout, "timeout-seconds", 10, "how long the target may take, 1 to 60 s")
}

func (s *session) routeCreate() *cobra.Command {
	var f routeFlags
	var disabled bool
	cmd := s.Object(verb.Verb{
		Required: []string{"topic", "url"},
		Use:      "create NAME",
		Short:    "Deliver matching events to an HTTP target; prints the signing secret (shown this once)",
		Example: `  mainstay edge route create alarms --topic 'alarm.*' --url https://hooks.example.com/alarms
  mainstay edge route create one-site --topic '*' --site plant-7 --url http://10.0.0.7:9000/in --retry-max 10 --disabled`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.CreateRoute(ctx, edgeapi.RouteInput{
			Name:           c.Args[0],
			Topic:          f.topic,
			TargetUrl:      f.url,
			SiteId:         verb.Given(c, "site", f.site),
			Method:         verb.Given(c, "method", edgeapi.RouteMethod(f.method)),
			Secret:         verb.Given(c, "secret", f.secret),
			RetryMax:       verb.Given(c, "retry-max", f.retryMax),
			TimeoutSeconds: verb.Given(c, "timeout-seconds", f.timeout),
			Enabled:        verb.Given(c, "disabled", !disabled),
		})
	})
	f.add(cmd)
	cmd.Flags().BoolVar(&disabled, "disabled", false, "create it without delivering yet")
	return cmd
}

func (s *session) routeUpdate() *cobra.Command {
	var f routeFlags
	cmd := s.Object(verb.Verb{
		Use: "update ROUTE", Short: "Change a route; what no flag names stays",
		Example: "  mainstay edge route update alarms --url https://hooks.example.com/v2 --retry-max 10",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.PatchRoute(ctx, c.Args[0], edgeapi.RoutePatch{
			Name:           verb.Given(c, "name", f.name),
			Topic:          verb.Given(c, "topic", f.topic),
			TargetUrl:      verb.Given(c, "url", f.url),
			SiteId:         verb.Given(c, "site", f.site),
			Method:         verb.Given(c, "method", edgeapi.RouteMethod(f.method)),
			Secret:         verb.Given(c, "secret", f.secret),
			RetryMax:       verb.Given(c, "retry-max", f.retryMax),
			TimeoutSeconds: verb.Given(c, "timeout-seconds", f.timeout),
		})
	})
	f.add(cmd)
	cmd.Flags().StringVar(&f.name, "name", "", "another name")
	return cmd
}

func (s *session) routeSwitch(name, short string, enabled bool) *cobra.Command {
	return s.Object(verb.Verb{Use: name + " ROUTE", Short: short, Example: "  mainstay edge route " + name + " ROUTE"},
		func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.PatchRoute(ctx, c.Args[0], edgeapi.RoutePatch{Enabled: &enabled})
		})
}
