package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// Forwarding is a request that the registry forwards to a node for one of its callers, whom it has
// identified and admitted.
type Forwarding struct {
	Node   string
	Path   string // escaped, below the node's URL
	Query  string // encoded
	Tenant string // of the caller; empty: an admin
	Actor  string // the caller's name
	Socket bool   // the request is a valid handshake of a WebSocket
}

// Headers that are forwarded. All others concern only one of the two connections, or are the caller's
// secrets.
var (
	requestHeaders = []string{
		"Accept", "Content-Type", "Expect", "Idempotency-Key", "Last-Event-Id", "Traceparent", "Tracestate",
	}
	handshakeHeaders = []string{
		"Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol",
	}
	answerHeaders = []string{
		"Cache-Control", "Content-Disposition", "Content-Length", "Content-Type", "Retry-After", "X-File-Mode",
		"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Sec-Websocket-Version",
	}
)

// answerTypes are the media types of nodes' answers. No browser runs what has one of these.
var answerTypes = []string{
	"application/json", "application/octet-stream", "application/x-ndjson", "text/event-stream",
}

// Route is the way of one request to a node. Requests are sent with ActingToken, for the caller's tenant,
// so that the node grants no more than the caller has. Answers are not trusted: only known headers and
// media types pass, and redirects are not followed.
type Route struct {
	registry *Registry
	to       *url.URL
	f        Forwarding
}

// Route returns the way to a node, or NotFound if there is none of this name.
func (r *Registry) Route(ctx context.Context, f Forwarding) (*Route, error) {
	to, err := r.target(ctx, &f)
	return &Route{r, to, f}, err
}

// Transport sends the request.
func (t *Route) Transport() http.RoundTripper { return t.registry.forwarding }

// Rewrite makes the request to the node from that of the caller.
func (t *Route) Rewrite(p *httputil.ProxyRequest) {
	p.Out.URL, p.Out.Host = t.to, ""
	p.Out.Header = t.registry.headersFor(p.In.Header, &t.f)
}

// Check returns an error unless an answer has the form of a daemon's. It removes headers that are not
// passed on, and makes a link to the next page lead to here, the caller's own address of the page.
func (t *Route) Check(res *http.Response, here *url.URL) error {
	return checkAnswer(res, here, t.f.Socket)
}

// Fault returns the fault for a request that was not answered because of err.
func (t *Route) Fault(err error) error {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return fault.Wrap(fault.TooLarge, err, "the request body is larger than %d bytes", tooLarge.Limit)
	}
	return unreachable(t.f.Node, explain(err), err)
}

// Probe sends a GET request to a node and returns nil if it answers 200, or the node's refusal.
func (r *Registry) Probe(ctx context.Context, f Forwarding) error {
	to, err := r.target(ctx, &f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Deadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), http.NoBody)
	if err != nil {
		return err
	}
	req.Header = r.headersFor(nil, &f)
	res, err := r.http.Do(req)
	if err == nil {
		err = read(res, http.StatusOK, 0, nil)
	}
	if err != nil {
		return passOn(f.Node, err)
	}
	return nil
}

// target returns the URL of a forwarded request.
func (r *Registry) target(ctx context.Context, f *Forwarding) (*url.URL, error) {
	row, err := findNode(ctx, r.cfg.DB, f.Node)
	if err != nil {
		return nil, noNode(err, f.Node)
	}
	to, err := url.Parse(row.URL + f.Path)
	if err != nil {
		return nil, unreachable(f.Node, "its address is not valid", err)
	}
	to.RawQuery = f.Query
	return to, nil
}

// headersFor returns the headers of a forwarded request.
func (r *Registry) headersFor(in http.Header, f *Forwarding) http.Header {
	names := requestHeaders
	if f.Socket {
		names = slices.Concat(requestHeaders, handshakeHeaders)
	}
	out := http.Header{"User-Agent": {"mainstay-registry"}}
	for _, name := range names {
		if values := in.Values(name); len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
	if r.cfg.Token != "" {
		out.Set("Authorization", "Bearer "+ActingToken(r.cfg.Token))
	}
	out.Set(HeaderActor, actorName(f.Actor))
	if f.Tenant != "" {
		out.Set(HeaderTenant, f.Tenant)
	}
	return out
}

// actorName returns a caller's name in the form that HeaderActor takes. Different names stay different.
func actorName(name string) string {
	const longest = 256
	escaped := strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
	if len(escaped) > longest {
		sum := sha256.Sum256([]byte(name))
		escaped = escaped[:longest-33] + "~" + hex.EncodeToString(sum[:16])
	}
	return escaped
}

func checkAnswer(res *http.Response, here *url.URL, socket bool) error {
	next := rest.NextCursor(res.Header)
	maps.DeleteFunc(res.Header, func(name string, _ []string) bool { return !slices.Contains(answerHeaders, name) })
	res.Trailer = nil
	if next != "" && len(next) <= maxCursor {
		res.Header.Set("Link", list.NextLink(here, next))
	}
	res.Header.Set("X-Content-Type-Options", "nosniff")
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols:
		if !socket {
			return garbage("it opens a socket that nobody asked for")
		}
		return nil
	case res.StatusCode == http.StatusNoContent:
		res.Header.Del("Content-Type")
		return nil
	case res.StatusCode == http.StatusUnauthorized,
		res.StatusCode >= http.StatusMultipleChoices && res.StatusCode < http.StatusBadRequest,
		res.StatusCode < http.StatusOK:
		return statusError(res.StatusCode)
	case res.StatusCode >= http.StatusBadRequest && kind != "application/json":
		return statusError(res.StatusCode)
	case !slices.Contains(answerTypes, kind):
		return garbage("its answer is not in the form of a daemon's")
	}
	if !socket {
		res.Header.Del("Connection")
		res.Header.Del("Upgrade")
	}
	return nil
}
