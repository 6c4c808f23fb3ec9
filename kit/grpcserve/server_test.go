package grpcserve_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/grpcserve"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
)

// service answers as a test says.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	unary func(ctx context.Context) error
}

func (s *service) UnaryCall(
	ctx context.Context, _ *grpc_testing.SimpleRequest,
) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{}, s.unary(ctx)
}

func (s *service) StreamingOutputCall(
	_ *grpc_testing.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[grpc_testing.StreamingOutputCallResponse],
) error {
	return s.unary(stream.Context())
}

// serve serves until the test ends. stop ends it before.
func serve(
	t *testing.T, http httpserve.Config, unary func(ctx context.Context) error,
) (client grpc_testing.TestServiceClient, stop func() error) {
	t.Helper()
	http.Listen = "127.0.0.1:0"
	server, err := grpcserve.Listen(grpcserve.Config{
		HTTP: http, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Domain: "test",
		Codes: problem.Capitals,
	})
	if err != nil {
		t.Fatal(err)
	}
	grpc_testing.RegisterTestServiceServer(server, &service{unary: unary})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	conn, err := grpc.NewClient(server.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() error {
		cancel()
		stopped = true
		return <-done
	}
	t.Cleanup(func() {
		_ = conn.Close()
		if cancel(); stopped {
			return
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return grpc_testing.NewTestServiceClient(conn), stop
}

func call(t *testing.T, c grpc_testing.TestServiceClient) error {
	_, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
	return err
}

func stream(t *testing.T, c grpc_testing.TestServiceClient) error {
	s, err := c.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{})
	if err == nil {
		_, err = s.Recv()
	}
	return err
}

func TestWhatIsNotAFaultIsInternalAndShowsNothing(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(context.Context) error{
		"an error": func(context.Context) error { return errors.New("dial /secret") },
		"a panic":  func(context.Context) error { panic("at /secret") },
	} {
		c, _ := serve(t, httpserve.Config{}, fails)
		for range 2 { // the process is still there
			for _, err := range []error{call(t, c), stream(t, c)} {
				s := status.Convert(err)
				if s.Code() != codes.Internal || strings.Contains(s.String(), "secret") ||
					!strings.Contains(s.Message(), "request id") || len(s.Details()) != 2 {
					t.Errorf("%s: %v", name, s)
				}
			}
		}
	}
}

func TestAFaultHasItsDetails(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, httpserve.Config{}, func(context.Context) error {
		f := fault.InvalidField("name", "is taken").WithCode("name_taken").WithLimit("names").WithRetryAfter(time.Minute)
		return errors.Join(f, errors.New("unseen"))
	})
	var header metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-request-id", "mine")
	_, err := c.UnaryCall(ctx, &grpc_testing.SimpleRequest{}, grpc.Header(&header))
	s := status.Convert(err)
	if s.Code() != codes.InvalidArgument || s.Message() != "name: is taken" || len(s.Details()) != 4 {
		t.Fatalf("%v", s)
	}
	if got := header.Get("x-request-id"); len(got) != 1 || got[0] != "mine" {
		t.Errorf("%v", header)
	}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.Reason != "NAME_TAKEN" || d.Domain != "test" || d.Metadata["limit"] != "names" {
				t.Errorf("%v", d)
			}
		case *errdetails.BadRequest:
			if d.FieldViolations[0].Field != "name" {
				t.Errorf("%v", d)
			}
		case *errdetails.RetryInfo:
			if d.RetryDelay.AsDuration() != time.Minute {
				t.Errorf("%v", d)
			}
		case *errdetails.RequestInfo:
			if d.RequestId != "mine" {
				t.Errorf("%v", d)
			}
		}
	}
}

func TestCallsBeyondTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	c, _ := serve(t, httpserve.Config{MaxInFlight: 1}, func(context.Context) error {
		close(begun)
		<-end
		return nil
	})
	first := make(chan error, 1)
	go func() { first <- call(t, c) }()
	<-begun
	if err := call(t, c); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	close(end)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestCallsAreGivenTimeAtTheEndAndStreamsAreNot(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}, 2), make(chan struct{})
	c, stop := serve(t, httpserve.Config{}, func(ctx context.Context) error {
		begun <- struct{}{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		}
	})
	unary, streamed, stopped := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { unary <- call(t, c) }()
	go func() { streamed <- stream(t, c) }()
	<-begun
	<-begun
	go func() { stopped <- stop() }()
	if err := <-streamed; status.Code(err) != codes.Unavailable {
		t.Errorf("the stream: %v", err)
	}
	close(end)
	if err := <-unary; err != nil {
		t.Errorf("the call: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestWhatDoesNotEndIsCutOff(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	c, stop := serve(t, httpserve.Config{DrainTimeout: time.Millisecond}, func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	})
	cut := make(chan error, 1)
	go func() { cut <- call(t, c) }()
	<-begun
	if err := stop(); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Error(err)
	}
	if err := <-cut; err == nil {
		t.Error("the call was answered")
	}
}
