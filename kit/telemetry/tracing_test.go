package telemetry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

func TestSpansReachTheCollectorByShutdown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ suffix, path string }{
		{"", "/v1/traces"}, {"/", "/v1/traces"}, {"/otlp", "/otlp/v1/traces"}, {"/v1/traces", "/v1/traces"},
	} {
		t.Run("endpoint"+strings.ReplaceAll(c.suffix, "/", "_"), func(t *testing.T) {
			t.Parallel()
			got := make(chan *collector.ExportTraceServiceRequest, 1)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				var req collector.ExportTraceServiceRequest
				if err != nil || proto.Unmarshal(body, &req) != nil || r.URL.Path != c.path {
					t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
				}
				got <- &req
				w.Header().Set("Content-Type", "application/x-protobuf")
			}))
			defer srv.Close()
			shutdown, tp, err := telemetry.Tracing(
				t.Context(),
				telemetry.Config{Endpoint: srv.URL + c.suffix, Service: "mainstay-test", Version: "v1.2.3"},
			)
			if err != nil {
				t.Fatal(err)
			}
			_, span := tp.Tracer("test").Start(t.Context(), "work")
			span.End()
			if err := shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			req := <-got
			res := req.GetResourceSpans()[0]
			if name := res.GetScopeSpans()[0].GetSpans()[0].GetName(); name != "work" {
				t.Errorf("span %q", name)
			}
			attrs := map[string]string{}
			for _, kv := range res.GetResource().GetAttributes() {
				attrs[kv.GetKey()] = kv.GetValue().GetStringValue()
			}
			if attrs["service.name"] != "mainstay-test" || attrs["service.version"] != "v1.2.3" {
				t.Errorf("resource %v", attrs)
			}
		})
	}
}

func TestWithoutEndpointTracingDoesNothing(t *testing.T) {
	t.Parallel()
	shutdown, tp, err := telemetry.Tracing(t.Context(), telemetry.Config{Service: "s"})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tp.Tracer("test").Start(t.Context(), "work")
	if span.IsRecording() || span.SpanContext().IsValid() {
		t.Error("a span is recorded")
	}
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTracingLeavesTheGlobalProviderAlone(t *testing.T) {
	t.Parallel()
	before, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	shutdown, tp, err := telemetry.Tracing(t.Context(), telemetry.Config{Endpoint: "http://127.0.0.1:1", Service: "s"})
	if err != nil {
		t.Fatal(err)
	}
	if otel.GetTracerProvider() != before || otel.GetTextMapPropagator() != propagator ||
		otel.GetTracerProvider() == tp {
		t.Error("a global was set")
	}
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestABadEndpointIsAFaultThatNamesTheSetting(t *testing.T) {
	t.Parallel()
	for _, e := range []string{"localhost:4318", "grpc://localhost:4317", "http://", "http://:4318", "://", "http://a b", "http://u:hunter2@c:4318", "http://c?x=1", "http://c#f"} {
		_, _, err := telemetry.Tracing(t.Context(), telemetry.Config{Endpoint: e, Service: "s"})
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != "otlp-endpoint" {
			t.Errorf("%s: %v", e, err)
		}
		if err != nil && strings.Contains(err.Error(), leak) {
			t.Errorf("%s: the fault repeats the password", e)
		}
	}
}
