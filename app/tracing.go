package app

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// flushTraces is how long the last traces of a service may take.
const flushTraces = 5 * time.Second

// tracing has the traces of a service sent to a collector. Without an endpoint there is no tracer.
// flush sends what waits, at the end of the service.
func tracing(
	ctx context.Context, log *slog.Logger, service, endpoint string,
) (tracer trace.TracerProvider, flush func(), err error) {
	if endpoint == "" {
		return nil, func() {}, nil
	}
	stop, tracer, err := telemetry.Tracing(ctx, telemetry.Config{
		Endpoint: endpoint, Service: "mainstay-" + service, Version: telemetry.BuildInfo().Version,
	})
	if err != nil {
		return nil, nil, err
	}
	return tracer, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTraces)
		defer cancel()
		if err := stop(ctx); err != nil {
			log.Warn("the last traces were not sent", "service", service, "error", err) // no reason to fail
		}
	}, nil
}
