// Package shell implements the HTTP side of a service: everything around the operations of its
// contract that is the same in all services.
//
// A service creates a Shell, registers its operations with it, and serves its Handler:
//
//	s, err := shell.New(shell.Config[Caller]{Name: "toys", Contract: c, Identify: identify, …})
//	toyapi.Register(s, toyapi.BasePath, api{…}, s.Fail)
//	server, err := httpserve.Listen(listen, s.Handler(), log)
//
// A request for an operation passes through, in this order:
//
//	request id, access log, metrics, panic recovery, limit on requests in flight
//	Identify    identifies the caller, or 401
//	Around      the service's own rate limits and records
//	Admit       checks that the caller's class may do this, or 403
//	            pages of other sites may not change anything
//	            the limit on the body (x-body)
//	Body        the service's handling of bodies before they are read
//	            the contract, or 400; checked late, so that a caller without
//	            permission learns nothing about what is valid
//	            deadlines (x-time)
//	            the operation
//
// The operation's context holds the caller (Caller) and the client's address (PeerOf). It does not
// hold the request and its writer, because the domain does not depend on HTTP. Operations that need
// them, such as streams, sockets, files and redirects, are tagged raw in the contract and
// registered with Raw.
//
// In addition to the contract, the Shell serves /healthz, /readyz, /metrics, /openapi.yaml, /docs
// and, if configured, the console at every other path.
package shell
