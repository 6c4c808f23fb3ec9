package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// edgeModule runs the edge control plane. started is called with its URL and
// what it stands on.
func edgeModule(cfg edge.Config, log *slog.Logger, started func(url, engine string)) Module {
	return Module{Name: "edge", Start: func(ctx context.Context) (func() error, error) {
		svc, err := edge.New(ctx, cfg, edge.Deps{Log: log.With("service", "edge"), Registry: telemetry.NewRegistry(), Now: time.Now})
		if err != nil {
			return nil, err
		}
		listening, done := make(chan string, 1), make(chan error, 1)
		go func() {
			done <- errors.Join(svc.Serve(ctx, func(url string) { listening <- url }), svc.Close())
		}()
		select {
		case url := <-listening:
			started(url, svc.StandsOn())
			return func() error { return <-done }, nil
		case err := <-done:
			return nil, err
		}
	}}
}
