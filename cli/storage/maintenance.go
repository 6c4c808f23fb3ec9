package storage

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) maintenance() *cobra.Command {
	cmd := verb.Group("maintenance", "Whether jobs are started",
		"  mainstay storage maintenance pause\n  mainstay storage maintenance resume")
	set := func(use, short, sentence string, paused bool) *cobra.Command {
		return s.Command(verb.Verb{Use: use, Short: short, Example: "  mainstay storage maintenance " + use},
			func(ctx context.Context, c *call) error {
				a, err := c.Send(c.API.SetMaintenance(ctx, storageapi.MaintenanceSpec{Paused: paused}))
				if err != nil {
					return err
				}
				return c.Done(a, "%s", sentence)
			})
	}
	cmd.AddCommand(
		s.Object(verb.Verb{
			Use: "show", Short: "Show whether jobs are started, and how many wait",
			Example: "  mainstay storage maintenance show",
		}, func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetMaintenance(ctx) }),
		set("pause", "Start no more jobs; those that run go on, and new ones wait", "No more jobs are started.", true),
		set("resume", "Start jobs again", "Jobs are started again.", false),
	)
	return cmd
}
