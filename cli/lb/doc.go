// Package lb has the commands below `mainstay lb` that ask a running load balancer:
// vips, backends, drain, undrain, weight, explain, node. Checking a document is in
// package app, which knows what one may hold.
//
//	commands.go  the commands; show.go: their tables
//	session.go   server, key and client; call.go: one call, and what went wrong
package lb
