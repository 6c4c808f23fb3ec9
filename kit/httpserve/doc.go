// Package httpserve serves HTTP for all services: a server with safe limits and graceful drain, and
// the middlewares around its routes.
//
// A service builds a *http.ServeMux and wraps it, outermost first:
//
//	render := httpserve.JSONErrors(log, problem.Nested)
//	h := httpserve.Chain(httpserve.Mux(mux, render),
//		httpserve.RequestID,
//		httpserve.AccessLog(log, httpserve.LogErrors),
//		httpserve.Metrics(registry, "ingest"),
//		httpserve.Recover(render, log),
//		httpserve.LimitInFlight(cfg.MaxInFlight, render),
//		httpserve.LimitBody(1<<20),
//	)
//	srv, err := httpserve.Listen(cfg, h, log)
//
// Invariants:
//
//   - Every error response is written by one ErrorRenderer from a fault;
//     middlewares never choose a status themselves.
//   - No client input can grow memory without bound: labels, keys, bodies,
//     headers and requests in flight are all limited.
//   - Query strings, and header values other than the request id, are never
//     logged, because they may hold secrets.
//   - However many middlewares are stacked, a request has one ResponseWriter
//     wrapper and one record of what happened (its id, route, status and size).
//   - A long-lived response (EventStream, or anything that uses StreamContext)
//     ends as soon as the server begins to drain; other requests get
//     Config.DrainTimeout to finish.
package httpserve
