package edge_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mainstay-infra/mainstay/service/edge"
)

func TestARequestIsTracedAsPartOfItsCallersTrace(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	t.Cleanup(func() { _ = provider.Shutdown(context.WithoutCancel(t.Context())) })
	svc, err := edge.New(t.Context(), defaults(t, t.TempDir()), edge.Deps{
		Log:      slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(),
		Now:      time.Now,
		Tracer:   provider,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	r := httptest.NewRequest(http.MethodGet, "/api/v1/version", nil)
	r.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	w := httptest.NewRecorder()
	svc.Handler().ServeHTTP(w, r)
	got := spans.GetSpans()
	if w.Code != http.StatusOK || len(got) != 1 ||
		got[0].SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("%d, spans: %+v", w.Code, got)
	}
}
