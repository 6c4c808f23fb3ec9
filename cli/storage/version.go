package storage

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) version() *cobra.Command {
	return s.Object(verb.Verb{
		Use: "version", Short: "Show which version of the gateway runs", Example: "  mainstay storage version",
	}, func(ctx context.Context, c *call) (*http.Response, error) { return c.Unversioned(ctx, "version") })
}

func (s commands) health() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "health", Short: "Check that the gateway can work: its database and its jobs",
		Long: `Check that the gateway can work: its database and its jobs. A cluster that does not answer is no reason to fail;
'mainstay storage backend list' shows which one it is.`,
		Example: "  mainstay storage health && mainstay storage backend list",
	}, func(ctx context.Context, c *call) error {
		if _, err := c.Send(c.Unversioned(ctx, "readyz")); err != nil {
			return err
		}
		return c.Done(client.Answer{Body: []byte(`{"status":"ready"}`)}, "The gateway can work.")
	})
}
