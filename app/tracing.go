package app

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// flushTraces limits the time for sending a service's last traces.
const flushTraces = 5 * time.Second

// tracing sends a service's traces to a collector. Without an endpoint, the tracer is nil. flush
// sends the pending spans when the service ends.
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
			log.Warn("the last traces were not sent", "service", service, "error", err) // not an error
		}
	}, nil
}
