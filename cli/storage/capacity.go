package storage

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) capacity() *cobra.Command {
	cmd := verb.Group("capacity", "How full the clusters are, and when they will be full",
		"  mainstay storage capacity show\n  mainstay storage capacity history --since 168h")
	cmd.AddCommand(s.capacityShow(), s.capacityHistory())
	return cmd
}

func (s commands) capacityShow() *cobra.Command {
	var cluster string
	cmd := s.Object(verb.Verb{
		Use: "show", Short: "Show the capacity of all clusters together, or of one, with a forecast",
		Example: "  mainstay storage capacity show\n  mainstay storage capacity show --cluster local",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.GetSummary(ctx, &storageapi.GetSummaryParams{Cluster: verb.Given(c, "cluster", cluster)})
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", "only the cluster with this id, or of this backend")
	return cmd
}

func (s commands) capacityHistory() *cobra.Command {
	var cluster string
	var since time.Duration
	var points int
	cmd := s.Command(verb.Verb{
		Use: "history", Short: "Show how full all clusters were together, or one",
		Example: "  mainstay storage capacity history\n  mainstay storage capacity history --cluster local --since 720h --points 30",
	}, func(ctx context.Context, c *call) error {
		all, err := decode[struct {
			Points []json.RawMessage `json:"points"`
		}](c.Send(c.API.GetCapacityHistory(ctx, &storageapi.GetCapacityHistoryParams{
			Cluster: verb.Given(c, "cluster", cluster), Since: new(time.Now().Add(-since)), Points: new(points),
		})))
		if err != nil {
			return err
		}
		l := output.NewList(c.Out, output.Columns[storageapi.CapacityPoint]{
			Heads: []string{"AT", "USED", "CAPACITY", "HEALTH"},
			Row: func(p storageapi.CapacityPoint) []any {
				return []any{
					p.At.Local().Format(time.DateTime), verb.Bytes(p.UsedCapacityBytes), verb.Bytes(p.RawCapacityBytes), p.Health,
				}
			},
		})
		if err := l.Page(all.Points); err != nil {
			return err
		}
		return l.Close()
	})
	cmd.Flags().StringVar(&cluster, "cluster", "", "only the cluster with this id, or of this backend")
	cmd.Flags().DurationVar(&since, "since", 24*time.Hour, "how far back, for example 1h or 720h")
	cmd.Flags().IntVar(&points, "points", 24, "the most lines")
	return cmd
}
