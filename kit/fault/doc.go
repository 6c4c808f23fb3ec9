// Package fault defines the errors that all services return.
//
// A fault has one of a closed set of kinds, a public message that is shown to the caller, and a
// private cause that goes only to the log. Domain code returns faults. The kind is translated once
// to HTTP (Kind.HTTPStatus) and once to gRPC (Kind.GRPCCode), so handlers never choose status
// codes.
//
// Any error that is not a fault has kind Internal: its text is never shown to a caller.
package fault
