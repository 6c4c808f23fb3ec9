package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// trust returns the authorities that server certificates are verified with: the system's, those of
// the file, and the one from enrollment.
func trust(caFile string, id *Identity) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without system certificates
	}
	if caFile != "" {
		pem, err := document.Read(caFile, maxCAFile)
		if err != nil {
			return nil, fault.InvalidField("ca", "%s", fault.From(err).Message)
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fault.InvalidField("ca", "%s holds no PEM certificate", caFile)
		}
	}
	if id != nil && id.CAPEM != "" {
		pool.AppendCertsFromPEM([]byte(id.CAPEM))
	}
	return pool, nil
}

// maxCAFile is the maximum size of the file of --ca, in bytes.
const maxCAFile = 1 << 20

// newTransport creates the transport for the control plane. It uses HTTP/1.1: there are few
// connections, and a dead one is closed with the request that fails on it.
func (a *Agent) newTransport(id *Identity) (*http.Transport, error) {
	pool, err := trust(a.cfg.CA, id)
	if err != nil {
		return nil, err
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		Protocols:             protocols,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       2 * time.Minute,
		MaxIdleConnsPerHost:   2,
		ReadBufferSize:        4 << 10,
		WriteBufferSize:       4 << 10,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				// An expired certificate would abort the handshake. The token suffices to renew it.
				if id == nil || id.certificate == nil || a.serverNow().After(id.notAfter()) {
					return &tls.Certificate{}, nil
				}
				return id.certificate, nil
			}},
	}, nil
}

// session is a client of the control plane for one identity.
type session struct {
	api       *edgeapi.Client
	id        *Identity // nil: not enrolled yet
	transport http.RoundTripper
}

func (s *session) site() string { return s.id.SiteID }

// newSession creates a client for an identity. nil is for enrolling.
func (a *Agent) newSession(id *Identity) (*session, error) {
	server, err := a.cfg.serverURL()
	if err != nil {
		return nil, err
	}
	transport := a.transport
	if transport == nil {
		if transport, err = a.newTransport(id); err != nil {
			return nil, err
		}
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	api, err := edgeapi.NewClient(server.String()+edgeapi.BasePath, rest.WithHTTPClient(client),
		rest.WithEditor(func(_ context.Context, r *http.Request) error {
			r.Header.Set("User-Agent", "mainstay-agent/"+telemetry.BuildInfo().Version)
			if id != nil {
				r.Header.Set("Authorization", "Bearer "+id.AgentToken)
			}
			return nil
		}))
	return &session{api: api, id: id, transport: transport}, err
}

func (s *session) close() {
	if t, ok := s.transport.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// explain describes the error of a request to the person who has to fix it.
func explain(err error) string {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return "the server's certificate is signed by an authority that is not trusted here; name it with --ca"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the server's certificate is not valid at this machine's time (" + time.Now().UTC().Format(
			time.RFC3339,
		) + "); is the clock right?"
	case errors.As(err, &host):
		return "the server's certificate is for another name: " + host.Error()
	}
	return err.Error()
}
