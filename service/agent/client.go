package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/kit/webhook"
	"github.com/mainstay-infra/mainstay/service/agent/backoff"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 4 << 20

// trust are the authorities that servers are verified with: the system's, those of
// the file, and the one that enrollment named.
func trust(caFile string, id *Identity) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a box without any
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "ca: cannot read %s", caFile)
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

// newTransport makes connections to the control plane. They speak HTTP/1.1: there
// are few of them, and one that is dead is closed with the request that finds out.
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
				// An expired certificate would end the handshake; the token is enough to
				// renew it.
				if id == nil || id.certificate == nil || a.serverNow().After(id.notAfter()) {
					return &tls.Certificate{}, nil
				}
				return id.certificate, nil
			}},
	}, nil
}

// session is a client of the control plane for one identity.
type session struct {
	api       *edgeapi.ClientWithResponses
	id        *Identity // nil: nobody yet
	transport http.RoundTripper
}

func (s *session) site() string { return s.id.SiteID }

// newSession makes a client for an identity; nil is for enrolling.
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
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	api, err := edgeapi.NewClientWithResponses(server.String()+edgeapi.BasePath, edgeapi.WithHTTPClient(client),
		edgeapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
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

// refusal is an answer of the control plane other than success.
type refusal struct {
	status               int
	code, field, message string
	retryAfter           time.Duration
}

func (r *refusal) Error() string {
	if r.message == "" {
		return fmt.Sprintf("the server answered %d", r.status)
	}
	return fmt.Sprintf("the server answered %d %s: %s", r.status, r.code, r.message)
}

// endsSite tells that the control plane will have no more of this site. Only its
// own words count: a proxy or captive portal in between can answer anything.
func (r *refusal) endsSite() bool {
	return r.status == http.StatusUnauthorized && r.code != "" || r.status == http.StatusForbidden && r.code == "site_revoked"
}

// final tells that the same request would be refused for ever. Only the control
// plane's own words count here, too.
func (r *refusal) final() bool {
	switch r.status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge:
		return r.code != "" && !r.endsSite()
	}
	return false
}

// linkError is why a request was not answered at all.
type linkError struct{ err error }

func (e *linkError) Error() string { return e.err.Error() }
func (e *linkError) Unwrap() error { return e.err }

// read takes what a method of the generated client returns, and gives the body of
// a success. Other answers are a *refusal, and no answer is a *linkError.
func read(res *http.Response, err error) ([]byte, http.Header, error) {
	if err != nil {
		return nil, nil, &linkError{err}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, nil, &linkError{err}
	}
	if len(body) > maxAnswer {
		return nil, nil, fmt.Errorf("the server's answer is larger than %d bytes", maxAnswer)
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return body, res.Header, nil
	}
	r := &refusal{status: res.StatusCode}
	r.retryAfter, _ = webhook.RetryAfter(res.Header, time.Now(), backoff.MaxAsked) // 0: it does not ask
	var e edgeapi.Error
	if json.Unmarshal(body, &e) == nil && e.Error.Code != "" {
		r.code, r.message = e.Error.Code, e.Error.Message
		if e.Error.Field != nil {
			r.field = *e.Error.Field
		}
	}
	return nil, nil, r
}

// decode reads a success into a value.
func decode[T any](body []byte, _ http.Header, err error) (T, error) {
	var v T
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return v, fmt.Errorf("the server's answer is not as the contract says: %w", err)
	}
	return v, nil
}

// asked is the Retry-After that came with an error.
func asked(err error) time.Duration {
	var r *refusal
	if errors.As(err, &r) {
		return r.retryAfter
	}
	return 0
}

// explain says what an error of a request means to the person who has to mend it.
func explain(err error) string {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return "the server's certificate is signed by an authority that is not trusted here; name it with --ca"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the server's certificate is not valid at this machine's time (" + time.Now().UTC().Format(time.RFC3339) + "); is the clock right?"
	case errors.As(err, &host):
		return "the server's certificate is for another name: " + host.Error()
	}
	return err.Error()
}
