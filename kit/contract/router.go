package contract

import (
	"fmt"
	"net/http"

	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// Router is the mux under the generated handlers. It has the two methods that
// the generated code asks of a base router.
type Router struct {
	mux      *http.ServeMux
	serve    http.Handler
	contract *Contract
	wrap     func(op *Operation, next http.Handler) http.Handler
}

// NewRouter returns a router that passes every operation through wrap before its
// handler, and answers unknown paths and wrong methods through render.
func NewRouter(c *Contract, render httpserve.ErrorRenderer, wrap func(*Operation, http.Handler) http.Handler) *Router {
	mux := http.NewServeMux()
	return &Router{mux: mux, serve: httpserve.Mux(mux, render), contract: c, wrap: wrap}
}

// HandleFunc registers the handler of one operation. A pattern that the contract
// does not know is a defect of the generated code, hence the panic.
func (r *Router) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	op, ok := r.contract.Operation(pattern)
	if !ok {
		panic(fmt.Sprintf("contract: no operation for pattern %q", pattern))
	}
	r.mux.Handle(pattern, r.wrap(op, http.HandlerFunc(handler)))
}

// Handle registers a handler outside the contract, such as /metrics.
func (r *Router) Handle(pattern string, handler http.Handler) { r.mux.Handle(pattern, handler) }

// Knows reports whether a handler is registered for the request.
func (r *Router) Knows(req *http.Request) bool {
	_, pattern := r.mux.Handler(req)
	return pattern != ""
}

// ServeHTTP dispatches to the operation's handler.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.serve.ServeHTTP(w, req) }
