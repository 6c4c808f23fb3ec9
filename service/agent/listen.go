package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	maxSocketPath = 107 // bytes, the size of sockaddr_un's path without its terminator
	drainTimeout  = 10 * time.Second
)

// doors are the listeners for local programs.
type doors struct {
	log     *slog.Logger
	socket  *http.Server
	unix    net.Listener
	tcp     *httpserve.Server // nil without an address
	handler http.Handler
}

// listen opens the socket, and the loopback address if one is set.
func (a *Agent) listen() (*doors, error) {
	path := filepath.Join(a.cfg.Data, agentapi.Socket)
	if len(path) > maxSocketPath {
		return nil, fault.InvalidField(
			"data", "is too long: the path of a socket, %s, may have %d bytes", path, maxSocketPath,
		)
	}
	// We hold the database's lock, so no other agent listens on an existing socket.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot remove the old socket %s", path)
	}
	unix, err := net.Listen("unix", path)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "data: cannot listen on %s", path)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(
			fault.Wrap(fault.Unavailable, err, "data: cannot set the mode of %s", path), unix.Close(),
		)
	}
	d := &doors{log: a.log, unix: unix, handler: a.Handler()}
	d.socket = &http.Server{
		Handler:           d.handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	if a.cfg.Listen == "" {
		return d, nil
	}
	if d.tcp, err = httpserve.Listen(
		httpserve.Config{Listen: a.cfg.Listen, MaxHeaderBytes: maxHeaderBytes, DrainTimeout: drainTimeout},
		a.refuseForeign(d.handler), a.log,
	); err != nil {
		return nil, errors.Join(err, unix.Close())
	}
	return d, nil
}

const maxHeaderBytes = 16 << 10

// names returns the socket's path and the URL of the loopback address.
func (d *doors) names() []string {
	names := []string{d.unix.Addr().String()}
	if d.tcp != nil {
		names = append(names, d.tcp.URL())
	}
	return names
}

// serve handles requests until ctx ends or a listener fails. Then it drains.
func (d *doors) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var socketErr, tcpErr error
	group.Go(func() {
		defer stop()
		socketErr = routine.Call(d.log, "local socket", func() error { return d.serveSocket(ctx) })
	})
	if d.tcp != nil {
		group.Go(func() {
			defer stop()
			tcpErr = routine.Call(d.log, "local address", func() error { return d.tcp.Run(ctx) })
		})
	}
	group.Wait()
	return errors.Join(socketErr, tcpErr)
}

func (d *doors) serveSocket(ctx context.Context) error {
	served := routine.Start(d.log, "local socket", func() error { return d.socket.Serve(d.unix) })
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := d.socket.Shutdown(limited)
	if err != nil {
		_ = d.socket.Close() // cut off the remaining requests
	}
	<-served //nolint:errcheck // after Shutdown it is always ErrServerClosed
	return err
}

// refuseForeign keeps browsers from reaching the API through a name that resolves to this machine
// (DNS rebinding). The socket does not need it, since browsers cannot reach it.
func (a *Agent) refuseForeign(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !httpserve.Loopback(host) {
			a.shell.Fail(
				w,
				r,
				fault.New(
					fault.Denied,
					"the local API answers to loopback names and addresses only, such as 127.0.0.1 or localhost",
				).WithCode("foreign_host"),
			)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuseBrowsers refuses requests of web pages.
func (a *Agent) refuseBrowsers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, sent := r.Header["Origin"]; sent {
			a.shell.Fail(
				w,
				r,
				fault.New(
					fault.Denied, "the local API does not talk to web pages (the request has an Origin header)",
				).WithCode("browser"),
			)
			return
		}
		next.ServeHTTP(w, r)
	})
}
