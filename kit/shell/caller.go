package shell

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Peer is where a request comes from.
type Peer struct {
	// IP is the client's address, or, behind a trusted proxy, the one that the proxy names.
	IP string
	// Network is IP for counting: all addresses that one client can choose are one.
	Network string
}

// call is what the domain may know of the request that it serves.
type call[C any] struct {
	caller  C
	unknown error // why the caller is not known
	peer    Peer
}

type callKey struct{}

func callOf[C any](ctx context.Context) *call[C] {
	c, ok := ctx.Value(callKey{}).(*call[C])
	if !ok {
		return &call[C]{}
	}
	return c
}

// Caller is who makes the request that ctx belongs to. It is the zero value, and known is
// false, outside of requests and in those of somebody unknown.
func Caller[C any](ctx context.Context) (caller C, known bool) {
	c, ok := ctx.Value(callKey{}).(*call[C])
	if !ok {
		return caller, false
	}
	return c.caller, c.unknown == nil
}

// PeerOf is where the request that ctx belongs to comes from, the zero value outside of
// requests.
func PeerOf(ctx context.Context) Peer {
	if c, ok := ctx.Value(callKey{}).(interface{ from() Peer }); ok {
		return c.from()
	}
	return Peer{}
}

func (c *call[C]) from() Peer { return c.peer }

// As is a context in which caller acts, for work that no request asks for, and for
// requests whose caller is known later. The peer stays.
func As[C any](ctx context.Context, caller C) context.Context {
	return context.WithValue(ctx, callKey{}, &call[C]{caller: caller, peer: PeerOf(ctx)})
}

var errForeignPage = fault.New(fault.Denied, "a page of another site may not change anything here").WithCode("browser")
