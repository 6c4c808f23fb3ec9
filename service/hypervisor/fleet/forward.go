package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/forward"
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

// Route returns where a request is forwarded to, or NotFound if there is no node of this name. It is sent with
// ActingToken, for the caller's tenant, so that the node grants no more than the caller has.
func (r *Registry) Route(ctx context.Context, f Forwarding) (forward.Target, error) {
	to, err := r.target(ctx, &f)
	return forward.Target{URL: to, Header: r.headersFor(&f), Transport: r.forwarding, Socket: f.Socket}, err
}

// Fault returns the fault for a request that a node did not answer because of err.
func (f *Forwarding) Fault(err error) error {
	if errors.Is(err, context.Canceled) || fault.Is(err, fault.TooLarge) {
		return err
	}
	return unreachable(f.Node, explain(err), err)
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
	req.Header = r.headersFor(&f)
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

// headersFor returns the headers that the registry adds to a forwarded request.
func (r *Registry) headersFor(f *Forwarding) http.Header {
	out := http.Header{"User-Agent": {"mainstay-registry"}}
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
