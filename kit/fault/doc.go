// Package fault is the vocabulary of errors that every service speaks.
//
// A fault has one of a closed set of kinds, a public message that a caller may
// read, and a private cause that only the log may read. Domain code returns
// faults; the kinds are translated once to HTTP (Kind.HTTPStatus) and once to
// gRPC (Kind.GRPCCode), so no handler chooses status codes itself.
//
// Any error that is not a fault is of kind Internal: its text is never shown to
// a caller.
package fault
