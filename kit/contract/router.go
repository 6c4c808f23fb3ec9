package contract

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// ErrorRenderer writes an error in the service's own error body.
type ErrorRenderer = func(w http.ResponseWriter, r *http.Request, err error)

// Router is the mux under the generated handlers. It has the two methods that
// the generated code asks of a base router.
type Router struct {
	mux      *http.ServeMux
	contract *Contract
	wrap     func(op *Operation, next http.Handler) http.Handler
}

// NewRouter returns a router that passes every operation through wrap before its
// handler, and answers unknown paths and wrong methods through render.
func NewRouter(c *Contract, render ErrorRenderer, wrap func(*Operation, http.Handler) http.Handler) *Router {
	r := &Router{mux: http.NewServeMux(), contract: c, wrap: wrap}
	r.mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		if allow := r.allowed(req); len(allow) > 0 {
			w.Header().Set("Allow", strings.Join(allow, ", "))
			render(w, req, fault.New(fault.NotAllowed, "%s is not possible here; allowed: %s", req.Method, strings.Join(allow, ", ")))
			return
		}
		render(w, req, fault.New(fault.NotFound, "no such path; the API reference is at /docs"))
	})
	return r
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

// ServeHTTP dispatches to the operation's handler.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.mux.ServeHTTP(w, req) }

// allowed lists the methods that the request's path does have. It runs only for
// requests that matched nothing.
func (r *Router) allowed(req *http.Request) []string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := req.Clone(req.Context())
		probe.Method = m
		if _, pattern := r.mux.Handler(probe); pattern != "/" && pattern != "" {
			methods = append(methods, m)
		}
	}
	return methods
}
