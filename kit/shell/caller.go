package shell

import (
	"context"
	"net/http"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/list"
)

// Peer is the origin of a request.
type Peer struct {
	// IP is the client's address or, behind a trusted proxy, the one that the proxy reports.
	IP string
	// Network is IP as a key for rate limits: addresses that one client can choose freely share it.
	Network string
}

func peerOf(r *http.Request) Peer {
	return Peer{IP: httpserve.RemoteIP(r), Network: httpserve.RemoteNetwork(r)}
}

// call is what the domain may know about the current request.
type call[C any] struct {
	caller  C
	unknown error // the error if the caller is not identified
	peer    Peer
	still   func() error // Config.Still for this caller; nil: not asked
}

type callKey struct{}

func callOf[C any](ctx context.Context) *call[C] {
	c, ok := ctx.Value(callKey{}).(*call[C])
	if !ok {
		return &call[C]{}
	}
	return c
}

// Caller returns the caller of the request that ctx belongs to. Outside of requests, and if the
// caller is not identified, it returns the zero value and known is false.
func Caller[C any](ctx context.Context) (caller C, known bool) {
	c, ok := ctx.Value(callKey{}).(*call[C])
	if !ok {
		return caller, false
	}
	return c.caller, c.unknown == nil
}

// PeerOf returns the origin of the request that ctx belongs to, or the zero value outside of
// requests.
func PeerOf(ctx context.Context) Peer {
	if c, ok := ctx.Value(callKey{}).(interface{ from() Peer }); ok {
		return c.from()
	}
	return Peer{}
}

func (c *call[C]) from() Peer { return c.peer }

// Still returns a function that checks the credentials of the request of ctx again (Config.Still),
// also after the request. A ticket keeps it for as long as it stands for them. It is nil if they are
// checked only once.
func Still(ctx context.Context) func() error {
	if c, ok := ctx.Value(callKey{}).(interface{ recheck() *func() error }); ok {
		return *c.recheck()
	}
	return nil
}

// SetStill has the request of ctx end when other credentials than its own no longer hold: those that
// its ticket stands for. Config.Identify calls it.
func SetStill(ctx context.Context, still func() error) {
	if c, ok := ctx.Value(callKey{}).(interface{ recheck() *func() error }); ok {
		*c.recheck() = still
	}
}

func (c *call[C]) recheck() *func() error { return &c.still }

// As returns a context in which caller acts. It is for work without a request, and for requests
// whose caller is identified later. The peer is kept.
func As[C any](ctx context.Context, caller C) context.Context {
	return context.WithValue(ctx, callKey{}, &call[C]{caller: caller, peer: PeerOf(ctx)})
}

// Within returns a context in which caller acts, who has sent r. It is for requests that another protocol than HTTP has
// brought, and r stands for.
func Within[C any](ctx context.Context, caller C, r *http.Request) context.Context {
	return list.WithURL(context.WithValue(ctx, callKey{}, &call[C]{caller: caller, peer: peerOf(r)}), r.URL)
}

var errForeignPage = fault.New(fault.Denied, "a page of another site may not change anything here").WithCode("browser")

// errNobody is why the caller is unknown who is about to sign in.
var errNobody = fault.New(fault.Unauthenticated, "nobody has signed in yet")
