package telemetry

import (
	"context"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Config holds the destination and the source of traces.
type Config struct {
	// Endpoint is the base URL of an OTLP/HTTP collector, for example
	// "http://localhost:4318"; /v1/traces is added if it is not there, as the
	// OpenTelemetry specification has it. Empty means no tracing.
	Endpoint string
	Service  string // service.name
	Version  string // service.version; empty leaves it out
}

const tracesPath = "/v1/traces"

// Tracing returns a provider that sends spans in batches to c.Endpoint, or a no-op provider if
// there is no endpoint. It opens no connection; if the collector is unavailable, spans are lost but
// requests are not affected. shutdown sends the pending spans until its context ends. It must be
// called once, also for the no-op provider.
//
// The standard variables OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES,
// OTEL_TRACES_SAMPLER and their kin apply. An endpoint that is not an http or https
// URL is a fault of kind Invalid that names the setting "otlp-endpoint".
func Tracing(ctx context.Context, c Config) (shutdown func(context.Context) error, tp trace.TracerProvider, err error) {
	if c.Endpoint == "" {
		return func(context.Context) error { return nil }, noop.NewTracerProvider(), nil
	}
	endpoint, err := tracesURL(c.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	attrs := []attribute.KeyValue{attribute.String("service.name", c.Service)}
	if c.Version != "" {
		attrs = append(attrs, attribute.String("service.version", c.Version))
	}
	res, err := resource.New(
		ctx, resource.WithTelemetrySDK(), resource.WithFromEnv(), resource.WithAttributes(attrs...),
	)
	if err != nil {
		return nil, nil, fault.Wrap(fault.Invalid, err, "OTEL_RESOURCE_ATTRIBUTES: is malformed")
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, fault.Wrap(fault.Unavailable, err, "tracing cannot start")
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return provider.Shutdown, provider, nil
}

func tracesURL(endpoint string) (string, error) {
	const field = "otlp-endpoint"
	u, err := url.Parse(endpoint)
	// The endpoint is not repeated, since its URL may contain credentials.
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", fault.InvalidField(field, "must be a URL like http://localhost:4318")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fault.InvalidField(
			field, "must not have a user, a query or a fragment; credentials go into OTEL_EXPORTER_OTLP_HEADERS",
		)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	if !strings.HasSuffix(u.Path, tracesPath) {
		u.Path += tracesPath
	}
	return u.String(), nil
}
