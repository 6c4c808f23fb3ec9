package storage

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

var eventColumns = output.Columns[storageapi.Event]{
	Heads: []string{"AT", "KIND", "ACTOR", "TENANT", "ABOUT", "MESSAGE"},
	Row: func(e storageapi.Event) []any {
		return []any{e.At, e.Kind, e.Actor, e.TenantId, strings.TrimSpace(e.ResourceType + " " + e.ResourceId), e.Message}
	},
}

func (s commands) events() *cobra.Command {
	cmd := verb.Group("event", "What happened: changes, ends of jobs, alerts",
		"  mainstay storage event list\n  mainstay storage event list --type alert", "events")
	cmd.AddCommand(s.eventList())
	return cmd
}

func (s commands) eventList() *cobra.Command {
	var kind, tenant, about string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List what happened lately, newest first",
		Long: `List what happened lately, newest first: what was changed, which jobs have ended, and which alerts have opened or are
resolved. Jobs are forgotten a day after their end.`,
		Example: "  mainstay storage event list\n  mainstay storage event list --type job --tenant acme\n" +
			"  mainstay storage event list --about 0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e --all",
	}, eventColumns, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListEvents(ctx, &storageapi.ListEventsParams{
			Limit: p.Limit, Cursor: p.Cursor, Type: verb.Given(c, "type", storageapi.EventType(kind)),
			Tenant: verb.Given(c, "tenant", tenant), Resource: verb.Given(c, "about", about),
		})
	})
	f := cmd.Flags()
	f.StringVar(&kind, "type", "", "only those of this type: audit, job or alert")
	f.StringVar(&tenant, "tenant", "", "only those of this tenant")
	f.StringVar(&about, "about", "", "only those about the thing with this id")
	return cmd
}

func (s commands) volumeEvents() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "events VOLUME", Short: "List what happened to a volume, newest first",
		Long:    "List what happened to a volume, newest first. One that is deleted is named by its ID.",
		Example: "  mainstay storage volume events data",
	}, eventColumns, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListVolumeEvents(ctx, c.Args[0], &storageapi.ListVolumeEventsParams{Limit: p.Limit, Cursor: p.Cursor})
	})
}

var errNotReady = errors.New("this is not a good time to replace the gateway")

func (s commands) preflight() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "preflight", Short: "Check whether this is a good time to replace the gateway by a newer version",
		Long: `Check whether this is a good time to replace the gateway by a newer version. It fails, with exit code 1, if something is in
the way.`,
		Example: "  mainstay storage maintenance pause\n  mainstay storage preflight",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.GetUpgradePreflight(ctx))
		p, err := decode[storageapi.Preflight](a, err)
		if err != nil {
			return err
		}
		if !c.Table() {
			if err := c.Done(a, ""); err != nil {
				return err
			}
		} else if err := printRows(c, checkColumns, p.Checks); err != nil {
			return err
		}
		if !p.Ready {
			return errNotReady
		}
		return nil
	})
}

// printRows prints a table of what is in an object.
func printRows[T any](c *call, columns output.Columns[T], all []T) error {
	l := output.NewList(c.Out, columns)
	var rows []json.RawMessage
	for _, one := range all {
		row, err := json.Marshal(one)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if err := l.Page(rows); err != nil {
		return err
	}
	return l.Close()
}

var checkColumns = output.Columns[storageapi.Check]{
	Heads: []string{"CHECK", "OK", "DETAIL"},
	Row:   func(k storageapi.Check) []any { return []any{k.Name, yes(k.Ok), k.Detail} },
}

func (s commands) clusterMetrics() *cobra.Command {
	var cluster, prefix string
	cmd := verb.List(s.session, verb.Verb{
		Use: "metrics", Short: "List selected numbers of the Ceph clusters, by name",
		Long: `List selected numbers of the Ceph clusters, with the names that Ceph's own module for Prometheus gives them, as they were
last seen.`,
		Example: "  mainstay storage cluster metrics --prefix ceph_osd\n  mainstay storage cluster metrics --cluster prod --all",
	}, output.Columns[storageapi.Sample]{
		Heads: []string{"NAME", "LABELS", "VALUE"},
		Row: func(m storageapi.Sample) []any {
			var labels []string
			for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
				labels = append(labels, name+"="+m.Labels[name])
			}
			return []any{m.Name, strings.Join(labels, " "), m.Value}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListCephMetrics(ctx, &storageapi.ListCephMetricsParams{
			Limit: p.Limit, Cursor: p.Cursor, Cluster: verb.Given(c, "cluster", cluster),
			Prefix: verb.Given(c, "prefix", prefix),
		})
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", clusterUsage)
	cmd.Flags().StringVar(&prefix, "prefix", "", "only those whose names begin with this")
	return cmd
}
