package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits of Client.
const (
	// DefaultTimeout applies to a Request without a timeout.
	DefaultTimeout = 15 * time.Second
	// MaxSnippetBytes is how much of a failed response's body is kept.
	MaxSnippetBytes = 4 << 10
	// maxDrainBytes is how much of a response is read so that its connection can be reused; beyond
	// that, a new connection is cheaper.
	maxDrainBytes = 64 << 10

	maxIdlePerHost      = 64
	maxIdle             = 1024
	idleTimeout         = 90 * time.Second
	dialTimeout         = 10 * time.Second
	tlsHandshakeTimeout = 10 * time.Second
	maxResponseHeader   = 64 << 10
	userAgent           = "Mainstay-Webhook/1"
)

// Options are optional settings of a Client.
type Options struct {
	// Resolver resolves names. Nil means the system's resolver.
	Resolver *net.Resolver
	// TLS is copied and raised to at least TLS 1.2. Nil means the system's roots.
	TLS *tls.Config
	// ProxyFromEnvironment sends requests through the proxy configured in HTTP_PROXY, HTTPS_PROXY
	// and NO_PROXY. The Guard then checks the proxy's address, not the target's: the proxy must do
	// the guarding, and one on a private address requires Guard.AllowPrivate.
	ProxyFromEnvironment bool
}

// Client sends single requests over pooled connections. It follows no redirects, keeps no cookies
// and does not retry a request that may have arrived, except one that was lost because the target
// closed a pooled connection. It is safe for concurrent use; create one per process.
type Client struct {
	guard     Guard
	transport *http.Transport
}

// NewClient returns a Client that checks every connection with g.
func NewClient(g Guard, o Options) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: o.Resolver, Control: g.Control}
	conf := &tls.Config{}
	if o.TLS != nil {
		conf = o.TLS.Clone()
	}
	conf.MinVersion = max(conf.MinVersion, tls.VersionTLS12)
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        conf,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    tlsHandshakeTimeout,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		// A snippet should be readable, and a small response should not expand to a large one.
		DisableCompression: true,
	}
	if o.ProxyFromEnvironment {
		t.Proxy = http.ProxyFromEnvironment
	}
	return &Client{guard: g, transport: t}
}

// CloseIdleConnections closes the pooled connections that are not in use.
func (c *Client) CloseIdleConnections() { c.transport.CloseIdleConnections() }

// Request is one message to one target.
type Request struct {
	Method string // empty means POST
	URL    string
	// Header is copied. Names that customers choose must have passed CheckHeaders. Content-Type
	// (application/json) and User-Agent are set if absent; the webhook-* headers are always set.
	Header http.Header
	Body   []byte
	ID     string // the same for all attempts; see CheckID
	Secret Secret // the zero Secret sends the message unsigned
	// OldSecrets also sign, while receivers switch to Secret.
	OldSecrets []Secret
	Timestamp  time.Time     // of this attempt; the zero time means now
	Timeout    time.Duration // for the whole exchange; 0 means DefaultTimeout
}

// Result is the result of one attempt. Classify(Status, Err) interprets it.
type Result struct {
	Status int // 0 if no response arrived
	// Err is set if and only if Status is 0. Its text may contain internal addresses and is for the
	// log only; a fault in it has a public message.
	Err error
	// RetryAfter is the wait that a response other than 2xx asks for, at most MaxRetryAfter; 0 if
	// it asks for none.
	RetryAfter time.Duration
	Duration   time.Duration // of the whole exchange
	// BodySnippet is the beginning of the body of a response other than 2xx, at most
	// MaxSnippetBytes of printable UTF-8.
	BodySnippet string
}

// Send makes one attempt. It returns when the response is read, r.Timeout expires or ctx ends. If
// the request is invalid or the Guard refuses the target, Result.Err is a fault of kind Invalid.
func (c *Client) Send(ctx context.Context, r Request) Result {
	start := time.Now()
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res := c.exchange(ctx, r)
	res.Duration = time.Since(start)
	return res
}

func (c *Client) exchange(ctx context.Context, r Request) Result {
	req, err := c.build(ctx, r)
	if err != nil {
		return Result{Err: err}
	}
	// Unlike http.Client, the transport does not handle redirects and cookies, and its errors do
	// not repeat the URL.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return Result{Err: err}
	}
	defer resp.Body.Close()
	res := Result{Status: resp.StatusCode}
	if res.Status == http.StatusSwitchingProtocols {
		return res // the rest is not a body and may never end
	}
	// The status decides, so an incomplete body changes nothing.
	if res.Status < 200 || res.Status > 299 {
		head, _ := io.ReadAll(io.LimitReader(resp.Body, MaxSnippetBytes))
		res.BodySnippet = printable(head)
		res.RetryAfter, _ = RetryAfter(resp.Header, time.Now(), MaxRetryAfter)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxDrainBytes))
	return res
}

func (c *Client) build(ctx context.Context, r Request) (*http.Request, error) {
	u, err := c.guard.CheckURL(r.URL)
	if err != nil {
		return nil, err
	}
	if err := CheckID(r.ID); err != nil {
		return nil, err
	}
	method := cmp.Or(r.Method, http.MethodPost)
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "webhook: the request is malformed")
	}
	if r.Header != nil {
		req.Header = r.Header.Clone()
	}
	setAbsent(req.Header, "Content-Type", "application/json")
	setAbsent(req.Header, "User-Agent", userAgent)
	if _, ok := req.Header["Idempotency-Key"]; !ok {
		// An empty list is not sent. It tells the transport that the message may be repeated on a
		// fresh connection if a pooled one turns out to be closed; receivers recognize repeats by
		// the message id.
		req.Header["Idempotency-Key"] = nil
	}
	r.stamp(req.Header)
	return req, nil
}

// stamp sets the Standard Webhooks headers.
func (r Request) stamp(h http.Header) {
	ts := r.Timestamp
	if ts.IsZero() {
		ts = time.Now()
	}
	h.Set(HeaderID, r.ID)
	h.Set(HeaderTimestamp, strconv.FormatInt(ts.Unix(), 10))
	h.Del(HeaderSignature)
	var sigs []string
	for _, s := range append([]Secret{r.Secret}, r.OldSecrets...) {
		if !s.IsZero() {
			sigs = append(sigs, s.Sign(r.ID, ts, r.Body))
		}
	}
	if len(sigs) > 0 {
		h.Set(HeaderSignature, strings.Join(sigs, " "))
	}
}

func setAbsent(h http.Header, name, value string) {
	if len(h.Values(name)) == 0 {
		h.Set(name, value)
	}
}

// printable makes body safe for a database and a terminal. The result is never longer than body.
func printable(body []byte) string {
	text := strings.ToValidUTF8(string(body), "?")
	return strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && unicode.IsControl(c) {
			return -1
		}
		return c
	}, text)
}
