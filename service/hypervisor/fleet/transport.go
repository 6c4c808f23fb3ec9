package fleet

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	dialTimeout      = 5 * time.Second
	connsPerNode     = 128 // creates may take long, and lists go beside them
	maxAnswerHeaders = 64 << 10
)

// newHTTPClient returns a client for daemons of the fleet, based on given unless that is nil. It
// connects directly, without a proxy. Requests end with their contexts. Redirects are never
// followed: the token is only for the requested address.
func newHTTPClient(given *http.Client, caFile string) (*http.Client, error) {
	client := &http.Client{}
	if given != nil {
		*client = *given
	} else {
		pool, err := authorities(caFile)
		if err != nil {
			return nil, err
		}
		client.Transport = &http.Transport{
			DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
			TLSHandshakeTimeout:    dialTimeout,
			MaxConnsPerHost:        connsPerNode,
			MaxIdleConnsPerHost:    8,
			MaxIdleConns:           2 * MaxNodes,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: maxAnswerHeaders,
			DisableCompression:     true, // a small answer must not unfold into a large one
		}
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}

// expectContinue is how long a forwarded upload waits for 100 Continue before it begins.
const expectContinue = 5 * time.Second

// newForwarding returns the transport for forwarded requests, which has connections of its own: open
// consoles must not keep the registry from its nodes. The number of requests in flight limits them.
func newForwarding(client *http.Client) http.RoundTripper {
	t, ok := client.Transport.(*http.Transport)
	if !ok {
		return cmp.Or(client.Transport, http.DefaultTransport)
	}
	t = t.Clone()
	t.MaxConnsPerHost, t.ExpectContinueTimeout = 0, expectContinue
	return t
}

// authorities returns the system's authorities plus those in the file, if one is given.
func authorities(caFile string) (*x509.CertPool, error) {
	if caFile == "" {
		return nil, nil // the system's
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a host without any
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "ca_file: cannot read %s", caFile)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fault.InvalidField("ca_file", "%s holds no PEM certificate", caFile)
	}
	return pool, nil
}

// Headers in which an admin's credentials name for whom a request is made.
const (
	HeaderTenant = "Mainstay-Tenant"
	HeaderActor  = "Mainstay-Actor"
)

// ActingToken returns the token with which the registry forwards requests of its callers, instead of
// the fleet's token. A daemon accepts it only together with HeaderActor. An earlier version, which does
// not know these headers and would take the request for an admin's, does not accept it at all.
func ActingToken(fleetToken string) string { return "acting." + fleetToken }

// authorize adds the fleet's token to a request.
func authorize(token string) func(context.Context, *http.Request) error {
	return func(_ context.Context, req *http.Request) error {
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		return nil
	}
}
