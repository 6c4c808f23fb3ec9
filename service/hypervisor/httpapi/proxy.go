package httpapi

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"

	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

// Forward sends a request to a node and passes its answer on. Both ways, bodies are streamed. It ends
// with the request's context. It returns the status that was answered, or an error if nothing was.
func Forward(to *fleet.Registry, w http.ResponseWriter, r *http.Request, f fleet.Forwarding) (status int, err error) {
	route, err := to.Route(r.Context(), f)
	if err != nil {
		return 0, err
	}
	var failed error
	proxy := httputil.ReverseProxy{
		Transport:      route.Transport(),
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0), // what can be said is in the answer
		Rewrite:        route.Rewrite,
		ModifyResponse: func(res *http.Response) error { return route.Check(res, r.URL) },
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	answer := &forwarded{ResponseWriter: w, header: http.Header{}}
	proxy.ServeHTTP(answer, r)
	switch {
	case failed == nil || answer.status != 0:
		return answer.status, nil
	case errors.Is(r.Context().Err(), context.Canceled):
		return 0, context.Canceled // the caller has left, or may not ask any longer
	}
	return 0, route.Fault(failed)
}

// forwarded is the writer of a node's answer. It keeps the node's headers apart until the answer begins,
// so that interim answers (1xx) cannot change those that the registry has set.
type forwarded struct {
	http.ResponseWriter
	header http.Header
	status int // 0: it has not begun
}

func (w *forwarded) Header() http.Header { return w.header }

func (w *forwarded) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	maps.Copy(w.ResponseWriter.Header(), w.header)
	w.ResponseWriter.WriteHeader(status)
}

func (w *forwarded) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

func (w *forwarded) Unwrap() http.ResponseWriter { return w.ResponseWriter }
