package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/web"
)

// reloading says when the edge control plane reads its credentials again, and how; the zero value is
// never.
type reloading struct {
	when <-chan struct{}
	load func() (edge.Config, error)
}

// edgeModule runs the edge control plane. started is called with its URL and
// what it stands on.
func edgeModule(cfg edge.Config, log *slog.Logger, again reloading, started func(url, engine string)) Module {
	return Module{Name: "edge", Start: func(ctx context.Context) (func() error, error) {
		deps := edge.Deps{Log: log.With("service", "edge"), Registry: telemetry.NewRegistry(), Now: time.Now, Console: web.Console("edge")}
		stopTracing := func(context.Context) error { return nil }
		if cfg.OTLPEndpoint != "" {
			var err error
			if stopTracing, deps.Tracer, err = telemetry.Tracing(ctx, telemetry.Config{Endpoint: cfg.OTLPEndpoint, Service: "mainstay-edge", Version: telemetry.BuildInfo().Version}); err != nil {
				return nil, err
			}
		}
		svc, err := edge.New(ctx, cfg, deps)
		if err != nil {
			return nil, err
		}
		routine.Go(log, "edge reload", func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-again.when:
				}
				changed, err := again.load()
				if err == nil {
					err = svc.Reload(ctx, changed)
				}
				if err != nil {
					log.Error("the settings cannot be read again; those in use stay", "service", "edge", "error", err)
					continue
				}
				log.Info("credentials are read again; other settings take a restart, and TLS files are read when they change", "service", "edge")
			}
		})
		return serving(func(ready func(string)) error {
			err := errors.Join(svc.Serve(ctx, ready), svc.Close())
			flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			if traceErr := stopTracing(flush); traceErr != nil {
				log.Warn("the last traces were not sent", "error", traceErr) // no reason to fail
			}
			return err
		}, func(url string) { started(url, svc.StandsOn()) })
	}}
}
