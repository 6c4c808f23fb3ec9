package httpserve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Server is a bound listener and its http.Server. Create it with Listen, then call Run once, or
// Close if Run is never called.
type Server struct {
	http  *http.Server
	ln    net.Listener
	log   *slog.Logger
	cfg   Config
	begun atomic.Bool

	// drain ends when Run's context does. base, the ancestor of every request's context, ends only
	// when the drain timeout has passed.
	drain, base             context.Context
	startDrain, cancelEvery context.CancelFunc
}

// Listen binds cfg.Listen immediately, so that Addr and URL are known before Run. It applies cfg's
// defaults and validates it. Errors are faults: Invalid for a wrong configuration or unreadable TLS
// files, Unavailable if the address cannot be bound.
func Listen(cfg Config, h http.Handler, log *slog.Logger) (*Server, error) {
	cfg.Defaults()
	ln, tlsConfig, err := Bind(cfg, log)
	if err != nil {
		return nil, err
	}
	proxies, err := ParsePrefixes("trusted-proxies", cfg.TrustedProxies)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	s := &Server{ln: ln, log: log, cfg: cfg}
	s.drain, s.startDrain = context.WithCancel(context.Background())
	s.base, s.cancelEvery = context.WithCancel(context.WithValue(context.Background(), drainKey{}, s.drain))
	s.http = &http.Server{
		Handler:           limitRate(forwarded(h, proxies), cfg.ReadTimeout),
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: cfg.ReadHeaderTimeout,
		ReadTimeout:       cfg.ReadTimeout, // see also leastRateBody
		WriteTimeout:      cfg.WriteTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return s.base },
		// Info, not Error: most of these lines are failed TLS handshakes, which anybody who can
		// connect can cause.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelInfo),
	}
	return s, nil
}

// Bind binds cfg.Listen, also for servers of another protocol than HTTP. It applies cfg's defaults, validates it, and
// closes connections beyond its limits. tlsConfig is nil for cleartext. Errors are those of Listen.
func Bind(cfg Config, log *slog.Logger) (ln net.Listener, tlsConfig *tls.Config, err error) {
	cfg.Defaults()
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	if tlsConfig, err = cfg.tlsConfig(log); err != nil {
		return nil, nil, err
	}
	proxies, err := ParsePrefixes("trusted-proxies", cfg.TrustedProxies)
	if err != nil {
		return nil, nil, err
	}
	if ln, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, nil, fault.Wrap(fault.Unavailable, err, "listen: cannot bind %s", cfg.Listen)
	}
	return limitConnections(ln, NewSlots(cfg.MaxConnections, cfg.MaxConnectionsPerAddress), proxies), tlsConfig, nil
}

// Addr returns the bound address, with the actual port.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// URL returns the server's root URL for a local client, without a trailing slash, for example
// "http://127.0.0.1:8080". A wildcard address becomes 127.0.0.1.
func (s *Server) URL() string {
	scheme := "http"
	if s.cfg.tls() {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(s.ln.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Close releases the address if Run was not called. After Run it does nothing.
func (s *Server) Close() error {
	if s.begun.Swap(true) {
		return nil
	}
	s.cancelEvery()
	s.startDrain()
	return s.ln.Close()
}

// Run serves until ctx ends and then drains: it stops accepting, ends the contexts of long-lived
// streams immediately, gives other requests Config.DrainTimeout, and closes the remaining
// connections. It returns nil after a complete drain, and an error if requests were cut off or
// serving failed. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	if s.begun.Swap(true) {
		return errors.New("httpserve: Run on a server that was run or closed before")
	}
	defer s.cancelEvery()
	defer s.startDrain()

	served := routine.Start(s.log, "http server", func() error {
		if s.http.TLSConfig != nil {
			return s.http.ServeTLS(s.ln, "", "")
		}
		return s.http.Serve(s.ln)
	})
	select {
	case err := <-served:
		_ = s.http.Close()
		return fmt.Errorf("httpserve: serving %s: %w", s.ln.Addr(), err)
	case <-ctx.Done():
	}

	s.startDrain()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	err := s.http.Shutdown(limit)
	if err != nil {
		// Handlers that watch their context can still clean up; their connections are closed
		// regardless.
		s.cancelEvery()
		_ = s.http.Close()
		err = fmt.Errorf("httpserve: requests were cut off after draining for %s: %w", s.cfg.DrainTimeout, err)
	}
	<-served //nolint:errcheck // after Shutdown it is always ErrServerClosed
	return err
}

type drainKey struct{}

// StreamContext derives a context for a response that lasts until the client disconnects. It also
// ends when the server begins to drain. The caller must call cancel when the response is complete.
func StreamContext(ctx context.Context) (context.Context, context.CancelFunc) {
	stream, cancel := context.WithCancel(ctx)
	drain, ok := ctx.Value(drainKey{}).(context.Context)
	if !ok {
		return stream, cancel
	}
	stop := context.AfterFunc(drain, cancel)
	return stream, func() { stop(); cancel() }
}

func (c Config) tlsConfig(log *slog.Logger) (*tls.Config, error) {
	switch {
	case c.SelfSigned:
		host, _, _ := splitListen(c.Listen)
		cert, err := selfSigned(host)
		if err != nil {
			return nil, err
		}
		return newTLSFiles(c, &cert, log)
	case c.TLSCert != "":
		return newTLSFiles(c, nil, log)
	}
	return nil, nil
}
