// Package shell is the HTTP side of a service: everything around the operations of its
// contract that is the same in all services.
//
// A service makes a Shell, registers its operations with it, and serves its Handler:
//
//	s, err := shell.New(shell.Config[Caller]{Name: "toys", Contract: c, Identify: identify, …})
//	toyapi.Register(s, toyapi.BasePath, api{…}, s.Fail)
//	server, err := httpserve.Listen(listen, s.Handler(), log)
//
// A request of an operation passes, in this order:
//
//	request id, access log, metrics, recovery from panics, bound on requests in flight
//	Identify    who calls, or 401
//	Around      the service's own rate limits and records
//	Admit       whether the caller's class may do this, or 403
//	            pages of other sites may not change anything
//	            the bound of the body (x-body)
//	Body        what the service does with bodies before they are read
//	            the contract, or 400: a caller who may not call learns nothing of what is valid
//	            deadlines (x-time)
//	            the operation
//
// The caller is in the context of the operation (Caller), and with it the address of the
// client (Peer). The request and its writer are not: the domain does not know HTTP.
// Operations that need them, such as streams, sockets, files and redirects, are tagged
// raw in the contract and registered with Raw.
//
// Beside the contract the Shell answers /healthz, /readyz, /metrics, /openapi.yaml,
// /docs, and, if there is one, the console at every other path.
package shell
