// Package grpcserve serves gRPC with the limits, the log and the errors that package httpserve has for HTTP.
//
//	server.go  Server: listens, serves, drains
//	call.go    what each call passes through: id, log, metrics, panics, limits
//	errors.go  faults to statuses
//
// # Invariants
//
//   - A panic of a handler is answered as INTERNAL and logged. It does not end the process.
//   - What is not a fault is answered as INTERNAL, and its text is only logged.
//   - When Run's context ends, streams end at once, and other calls may take the time that HTTP requests may.
//
// The standard health service and server reflection are on. Both need no credentials: they show what the contract
// shows.
//
// It imports fault, httpserve, problem and routine.
package grpcserve
