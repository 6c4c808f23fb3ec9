package contract

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

// Router is the mux under the generated handlers. It has the two methods that the generated code
// requires of a base router.
type Router struct {
	mux      *http.ServeMux
	serve    http.Handler
	contract *Contract
	render   httpserve.ErrorRenderer
	wrap     func(op *Operation, next http.Handler) http.Handler
}

// NewRouter returns a Router that wraps every operation's handler with wrap, and renders errors for
// unknown paths and wrong methods with render.
func NewRouter(c *Contract, render httpserve.ErrorRenderer, wrap func(*Operation, http.Handler) http.Handler) *Router {
	mux := http.NewServeMux()
	return &Router{mux: mux, serve: httpserve.Mux(mux, render), contract: c, render: render, wrap: wrap}
}

// HandleFunc registers the handler of one operation. It panics if the contract does not know the
// pattern, which is a defect of the generated code.
func (r *Router) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	op, ok := r.contract.Operation(pattern)
	if !ok {
		panic(fmt.Sprintf("contract: no operation for pattern %q", pattern))
	}
	r.HandleAt(pattern, op, handler)
}

// HandleAt registers a handler that serves an operation at another pattern than its own. The pattern
// has all placeholders of the operation's path.
func (r *Router) HandleAt(pattern string, op *Operation, handler func(http.ResponseWriter, *http.Request)) {
	r.mux.Handle(pattern, r.sound(r.wrap(op, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err := op.givenOnce(req)
		if err == nil {
			err = op.exactKeys(req)
		}
		if err != nil {
			r.render(w, req, err)
			return
		}
		handler(w, req)
	}))))
}

// sound rejects requests whose path or query holds invalid UTF-8 or NUL, which no name, id or
// filter can hold and databases refuse. For a path, the error is NotFound. It also rejects a query
// that cannot be parsed: net/url would drop what it does not understand, and a list would be shown
// without its filter.
func (r *Router) sound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !storable(req.URL.Path) {
			r.render(w, req, fault.New(fault.NotFound, "no such path"))
			return
		}
		if strings.ContainsAny(req.URL.RawQuery, "%;") || !storable(req.URL.RawQuery) {
			if err := soundQuery(req.URL.RawQuery); err != nil {
				r.render(w, req, err)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

func soundQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		if strings.Contains(raw, ";") {
			return fault.New(
				fault.Invalid, "the query holds a semicolon; write %%3B for one in a value, and & between parameters",
			)
		}
		return fault.New(
			fault.Invalid, "the query cannot be read: a percent sign is not followed by two hexadecimal digits",
		)
	}
	for name, values := range query {
		for _, value := range values {
			if !storable(name) || !storable(value) {
				field := strings.ReplaceAll(strings.ToValidUTF8(name, "?"), "\x00", "?")
				return fault.InvalidField(field, "holds NUL or is not valid UTF-8")
			}
		}
	}
	return nil
}

func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// Handle registers a handler outside the contract, such as /metrics.
func (r *Router) Handle(pattern string, handler http.Handler) { r.mux.Handle(pattern, handler) }

// Knows reports whether a handler is registered for the request.
func (r *Router) Knows(req *http.Request) bool {
	_, pattern := r.mux.Handler(req)
	return pattern != ""
}

// ServeHTTP dispatches to the operation's handler.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.serve.ServeHTTP(w, req) }
