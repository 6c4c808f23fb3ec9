// Package lb implements the commands below `mainstay lb` that talk to a running load balancer:
// vips, backends, drain, undrain, weight, explain, node. Checking a document is in package app,
// which knows its format.
//
//	commands.go  the commands; show.go: their tables
//	session.go   server, key and client; call.go: one call, and what went wrong
package lb
