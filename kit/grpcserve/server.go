package grpcserve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/problem"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Limits of a connection.
const (
	maxMessage      = 1 << 20 // bytes of a request
	maxHeaders      = 16 << 10
	maxCalls        = 128 // at once
	leastPingPause  = 10 * time.Second
	pingAfter       = 30 * time.Second // of silence
	pingAnsweredFor = 20 * time.Second
)

// Config holds the settings and dependencies of a Server.
type Config struct {
	// HTTP has the address, the certificate and the limits, which are those of an HTTP server.
	HTTP     httpserve.Config
	Log      *slog.Logger
	Registry prometheus.Registerer
	// Domain is that of errors (google.rpc.ErrorInfo), such as "storage.mainstay".
	Domain string
	// Codes is the error body of the service's contract: the codes of errors are written as in that.
	Codes problem.Body
	// AccessLog is a mode of httpserve.ParseLogMode.
	AccessLog string
}

// Server is a bound listener and its gRPC server. Create it with Listen, register the services with it, then call Run
// once, or Close if Run is never called.
type Server struct {
	*grpc.Server
	cfg    Config
	ln     net.Listener
	health *health.Server
	calls  *calls
}

// Listen binds the address immediately. Errors are those of httpserve.Listen.
func Listen(cfg Config) (*Server, error) {
	cfg.HTTP.Defaults()
	calls, err := newCalls(&cfg)
	if err != nil {
		return nil, err
	}
	ln, tlsConfig, err := httpserve.Bind(cfg.HTTP, cfg.Log)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, ln: ln, health: health.NewServer(), calls: calls}
	s.Server = grpc.NewServer(append(transport(tlsConfig),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxCalls),
		grpc.ConnectionTimeout(cfg.HTTP.ReadHeaderTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPingPause, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: cfg.HTTP.IdleTimeout, Time: pingAfter, Timeout: pingAnsweredFor,
		}),
		grpc.UnaryInterceptor(calls.unary), grpc.StreamInterceptor(calls.stream),
	)...)
	grpc_health_v1.RegisterHealthServer(s.Server, s.health)
	reflection.Register(s.Server)
	return s, nil
}

func transport(c *tls.Config) []grpc.ServerOption {
	if c == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(c))}
}

// Addr returns the bound address, with the actual port.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Listening returns the address that the server listens on, for the log.
func (s *Server) Listening() string { return httpserve.Listening(s.ln.Addr()) }

// Close releases the address if Run was not called.
func (s *Server) Close() error {
	s.calls.startDrain()
	s.Stop()
	if err := s.ln.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends and then drains: it stops accepting, ends streams at once, gives other calls the time that
// the configuration gives HTTP requests, and closes the remaining connections. It returns nil after a complete drain,
// and an error if calls were cut off or serving failed. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	defer s.calls.startDrain()
	for name := range s.GetServiceInfo() {
		s.health.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	served := routine.Start(s.cfg.Log, "grpc server", func() error { return s.Serve(s.ln) })
	select {
	case err := <-served:
		s.Stop()
		return fmt.Errorf("grpcserve: serving %s: %w", s.ln.Addr(), err)
	case <-ctx.Done():
	}
	s.health.Shutdown()
	s.calls.startDrain()
	drained := routine.Start(s.cfg.Log, "grpc drain", func() error { s.GracefulStop(); return nil })
	limit := time.NewTimer(s.cfg.HTTP.DrainTimeout)
	defer limit.Stop()
	var err error
	select {
	case err = <-drained:
	case <-limit.C:
		s.Stop()
		err = fmt.Errorf("grpcserve: calls were cut off after draining for %s", s.cfg.HTTP.DrainTimeout)
	}
	return errors.Join(err, <-served)
}
