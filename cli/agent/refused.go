package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

func refused(getenv func(string) string) *cobra.Command {
	var at place
	var style output.Style
	cmd := &cobra.Command{
		Use:   "refused",
		Short: "List the events that the control plane refused",
		Long: `List the events that the control plane refused, newest first.

The agent sets them aside, so that they do not hold up the others, and keeps them until you send them again or discard
them: up to 1,000 events and 32 MiB.`,
		Example: "  mainstay agent refused\n  mainstay agent refused retry --all\n  mainstay agent refused discard 0199d3c2-5a7e-7c11-9d53-6f2b8e0a4c17",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := output.NewPrinter(cmd.OutOrStdout(), style)
			list := output.NewList(p, output.Columns[agentapi.RefusedEvent]{
				Heads: []string{"EVENT", "TOPIC", "REFUSED", "SIZE", "REASON"},
				Row: func(e agentapi.RefusedEvent) []any {
					return []any{e.EventId, e.Topic, e.At, size(e.Bytes), e.Reason}
				},
			})
			params := agentapi.ListRefusedEventsParams{}
			for {
				a, err := at.ask(getenv, func(c *agentapi.Client) (*http.Response, error) {
					return c.ListRefusedEvents(cmd.Context(), &params)
				})
				items, err := decode[[]json.RawMessage](a, err)
				if err != nil {
					return err
				}
				if err := list.Page(items); err != nil {
					return err
				}
				next := rest.NextCursor(a.Header)
				if next == "" || len(items) == 0 {
					return list.Close()
				}
				params.Cursor = &next
			}
		},
	}
	at.addFlags(cmd)
	style.AddFlags(cmd)
	cmd.AddCommand(
		chosen(
			getenv, "retry", "Send refused events again, after those that wait", "will be sent again",
			(*agentapi.Client).RetryRefusedEvents,
		),
		chosen(
			getenv, "discard", "Delete refused events for good", "were deleted",
			(*agentapi.Client).DiscardRefusedEvents,
		),
	)
	return cmd
}

// chosen returns a command for refused events, selected by id or all of them.
func chosen(
	getenv func(string) string, use, short, done string,
	request func(*agentapi.Client, context.Context, agentapi.EventSelection, ...rest.Editor) (*http.Response, error),
) *cobra.Command {
	var at place
	var all bool
	cmd := &cobra.Command{
		Use:     use + " [EVENT...]",
		Short:   short,
		Long:    short + ". Name events by their ids, or give --all.",
		Example: "  mainstay agent refused " + use + " --all",
		RunE: func(cmd *cobra.Command, ids []string) error {
			if all == (len(ids) > 0) {
				return exit.Hinted(
					errors.New("name events, or give --all; one of the two"), "'mainstay agent refused' lists them",
				)
			}
			selection := agentapi.EventSelection{}
			if all {
				selection.All = &all
			} else {
				selection.EventIds = &ids
			}
			count, err := decode[agentapi.EventCount](at.ask(
				getenv,
				func(c *agentapi.Client) (*http.Response, error) { return request(c, cmd.Context(), selection) },
			))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d events %s\n", count.Events, done)
			return err
		},
	}
	at.addFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all refused events")
	return cmd
}
