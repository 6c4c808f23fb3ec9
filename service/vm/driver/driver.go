package driver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// Config names the daemon.
type Config struct {
	URL    string // of the daemon, or of the fleet's registry
	Token  string // an admin's
	CAFile string // certificates of authorities to verify it with, beside the system's; empty: none
	Fleet  bool   // URL is that of a registry, which places VMs on its hosts
	// Replica is the id of this replica of the service, by which it finds its readers after a restart.
	Replica string
}

// Driver is the client. It is safe for concurrent use.
type Driver struct {
	cfg  Config
	http *http.Client

	mu    sync.Mutex
	nodes map[string]*hypervisorapi.Client // by name; "" is the daemon, or the registry
	// readers are the names of the readers in use, with their ids; "" while the daemon makes them.
	readers map[string]string
}

// Place is where a VM is.
type Place struct {
	Node   string // in a fleet
	ID     string // the daemon's id of it
	Tenant string
}

// Limits on requests to the daemon, whose answers to verbs take as long as the work.
const (
	readTimeout = 15 * time.Second
	workTimeout = 10 * time.Minute
)

// New returns a Driver. It does not connect.
func New(cfg Config) (*Driver, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, fault.InvalidField("hypervisor-url", "%q is not a valid URL: it is like http://127.0.0.1:7070", cfg.URL)
	}
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	transport := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a small answer must not unfold into a large one
	}
	if cfg.CAFile != "" {
		pool, err := authorities(cfg.CAFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	client := &http.Client{
		Transport: transport,
		// The token is only for the configured address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Driver{cfg: cfg, http: client, nodes: map[string]*hypervisorapi.Client{}, readers: map[string]string{}}, nil
}

func authorities(file string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a host without any
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "hypervisor-ca: cannot read %s", file)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fault.InvalidField("hypervisor-ca", "%s holds no PEM certificate", file)
	}
	return pool, nil
}

// Close closes idle connections.
func (d *Driver) Close() { d.http.CloseIdleConnections() }

// Fleet reports whether the VMs run on the hosts of a fleet.
func (d *Driver) Fleet() bool { return d.cfg.Fleet }

// at returns the client of a host: of the only one, or of one of the fleet's.
func (d *Driver) at(node string) (*hypervisorapi.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.nodes[node]; c != nil {
		return c, nil
	}
	c, err := hypervisorapi.NewClient(d.base(node), rest.WithHTTPClient(d.http), rest.WithEditor(d.authorize))
	if err == nil {
		d.nodes[node] = c
	}
	return c, err
}

type tenantKey struct{}

// forTenant returns a context whose requests act for a tenant.
func forTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// Headers with which the daemon acts for somebody else.
const (
	headerTenant = "Mainstay-Tenant"
	headerActor  = "Mainstay-Actor"
)

func (d *Driver) authorize(ctx context.Context, r *http.Request) error {
	if d.cfg.Token != "" {
		r.Header.Set("Authorization", "Bearer "+d.cfg.Token)
	}
	if tenant, _ := ctx.Value(tenantKey{}).(string); tenant != "" {
		r.Header.Set(headerTenant, tenant)
	}
	if person := caller.From(ctx).Person(); person != "" {
		r.Header.Set(headerActor, person)
	}
	return nil
}

// call sends a request with a timeout and decodes the answer.
func call[T any](
	ctx context.Context, d *Driver, at Place, limit time.Duration,
	send func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error),
) (out T, err error) {
	c, err := d.at(at.Node)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(forTenant(ctx, at.Tenant), limit)
	defer cancel()
	out, err = rest.Do[T](send(ctx, c))
	return out, d.translate(ctx, at, err)
}

// translate returns the fault for an error of a request.
func (d *Driver) translate(ctx context.Context, at Place, err error) error {
	if err == nil {
		return nil
	}
	who := "the hypervisor daemon"
	if at.Node != "" {
		who = "host " + at.Node
	}
	var refusal *rest.Refusal
	if !errors.As(err, &refusal) {
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
			return cause
		}
		return fault.Wrap(fault.Unavailable, err, "%s does not answer", who)
	}
	kind := kindOf(refusal.Status)
	message := refusal.Message
	if refusal.Problem.Code == "" || message == "" {
		return fault.Wrap(fault.Unavailable, err, "%s does not answer as a daemon of Mainstay does (status %d)",
			who, refusal.Status)
	}
	switch kind {
	case fault.Unauthenticated, fault.Denied:
		return fault.Wrap(fault.Unavailable, err, "%s refuses this service's token: %s", who, message)
	case fault.Internal:
		return fault.Wrap(fault.Internal, err, "%s failed: %s", who, message)
	}
	f := fault.Wrap(kind, err, "%s", message).WithCode(refusal.Problem.Code)
	f.Limit = refusal.Limit
	return f
}

func kindOf(status int) fault.Kind {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return fault.Invalid
	case http.StatusUnauthorized:
		return fault.Unauthenticated
	case http.StatusForbidden:
		return fault.Denied
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusConflict:
		return fault.Conflict
	case http.StatusTooManyRequests:
		return fault.TooMany
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fault.Unavailable
	case http.StatusInsufficientStorage:
		return fault.StorageFailed
	}
	return fault.Internal
}
