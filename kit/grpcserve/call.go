package grpcserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	requestID   = "x-request-id"
	healthCheck = "/grpc.health.v1.Health/Check"
)

// calls holds what all calls of a server share.
type calls struct {
	log       *slog.Logger
	logMode   httpserve.LogMode
	domain    string
	codes     problem.Body
	maxCalls  int64
	longest   time.Duration // of a call that is not a stream
	inFlight  atomic.Int64
	streams   *httpserve.Slots
	count     *prometheus.CounterVec
	durations *prometheus.HistogramVec

	drain      context.Context // done when the server drains
	startDrain context.CancelFunc
}

func newCalls(cfg *Config) (*calls, error) {
	mode, err := httpserve.ParseLogMode(cfg.AccessLog)
	if err != nil {
		return nil, err
	}
	c := &calls{
		log: cfg.Log, logMode: mode, domain: cfg.Domain, codes: cfg.Codes, maxCalls: int64(cfg.HTTP.MaxInFlight),
		longest: cfg.HTTP.WriteTimeout, streams: httpserve.NewStreamSlots(),
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grpc_calls_total", Help: "Finished gRPC calls.",
		}, []string{"method", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_call_duration_seconds", Help: "How long gRPC calls took that are not streams.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"method"}),
	}
	c.drain, c.startDrain = context.WithCancel(context.Background())
	for _, metric := range []prometheus.Collector{c.count, c.durations} {
		if err := cfg.Registry.Register(metric); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Attach gives a request that stands for the call of its context the caller's address and metadata, where rules for
// requests of HTTP apply to the call.
func Attach(r *http.Request) {
	if p, ok := peer.FromContext(r.Context()); ok {
		r.RemoteAddr = p.Addr.String()
	}
	md, _ := metadata.FromIncomingContext(r.Context())
	for _, host := range md.Get(":authority") {
		r.Host = host
	}
	for _, name := range []string{"Authorization", "Origin", "Sec-Fetch-Site", requestID} {
		for _, value := range md.Get(name) {
			r.Header.Add(name, value)
		}
	}
}

// RequestOf returns a request that stands for the call of ctx.
func RequestOf(ctx context.Context) *http.Request {
	r := (&http.Request{Header: http.Header{}}).WithContext(ctx)
	Attach(r)
	return r
}

// unary is what each call passes through that is not a stream.
func (c *calls) unary(
	ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (out any, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.longest)
	defer cancel()
	defer func(begun time.Time) {
		c.durations.WithLabelValues(info.FullMethod).Observe(time.Since(begun).Seconds())
	}(time.Now())
	err = c.serve(ctx, info.FullMethod, func(id string) error {
		_ = grpc.SetHeader(ctx, metadata.Pairs(requestID, id)) // it fails only after the answer has begun
		if info.FullMethod == healthCheck {                    // an orchestrator would restart what is merely busy
			out, err = handler(ctx, in)
			return err
		}
		defer c.inFlight.Add(-1)
		if c.inFlight.Add(1) > c.maxCalls {
			return httpserve.ErrOverloaded
		}
		out, err = handler(ctx, in)
		return err
	})
	return out, err
}

// stream is what each stream passes through.
func (c *calls) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()
	stop := context.AfterFunc(c.drain, cancel)
	defer stop()
	return c.serve(ctx, info.FullMethod, func(id string) error {
		_ = ss.SetHeader(metadata.Pairs(requestID, id)) // it fails only after the answer has begun
		release, ok := c.streams.Take(httpserve.StreamKey(RequestOf(ctx)))
		if !ok {
			return httpserve.ErrStreams
		}
		defer release()
		within := &streamWithin{ss, ctx}
		if !info.IsClientStream {
			err := handler(srv, within)
			if f := (*fault.Error)(nil); err != nil && ctx.Err() != nil && !errors.As(err, &f) {
				return c.ended()
			}
			return err
		}
		// Such a handler waits for messages, whatever its context. When this returns, the stream ends, and with it the
		// handler.
		done := routine.Start(c.log, "grpc stream", func() error { return handler(srv, within) })
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return c.ended()
		}
	})
}

var errEnding = fault.New(fault.Unavailable, "the service is ending; try again").WithRetryAfter(time.Second)

// ended returns why the context of a stream has ended.
func (c *calls) ended() error {
	if c.drain.Err() != nil {
		return errEnding
	}
	return status.Error(codes.Canceled, "the client has left")
}

// streamWithin is a stream whose context also ends when the server drains.
type streamWithin struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context of the stream.
func (s *streamWithin) Context() context.Context { return s.ctx }

// serve calls f with the id of the call, and returns its error as a status. It logs and counts the call.
func (c *calls) serve(ctx context.Context, method string, f func(id string) error) (err error) {
	begun := time.Now()
	r := RequestOf(ctx)
	id := httpserve.ChooseRequestID(r.Header.Values(requestID))
	log := c.log.With("method", method, "request_id", id)
	err = c.toStatus(ctx, log, id, recovered(ctx, log, func() error { return f(id) }))
	code, took := status.Code(err), time.Since(begun)
	c.count.WithLabelValues(method, code.String()).Inc()
	if c.logMode == httpserve.LogAll || c.logMode != httpserve.LogOff && code != codes.OK {
		log.InfoContext(ctx, "grpc call", "code", code.String(), "duration", took, "remote", r.RemoteAddr)
	}
	return err
}

// recovered calls f, and returns its panic as an error.
func recovered(ctx context.Context, log *slog.Logger, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			routine.Panics.WithLabelValues("grpc handler").Inc()
			log.ErrorContext(ctx, "panic in handler", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "internal error")
		}
	}()
	return f()
}
