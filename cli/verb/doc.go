// Package verb builds the commands that call a running service: `mainstay NOUN VERB`. All services
// use it, so that all commands have the same flags, lists, confirmations and output.
//
//	session.go  the flags that all commands of a noun have; server, token, client
//	kind.go     names, IDs and completion of what arguments name
//	verb.go     commands that show, change or remove an object
//	list.go     commands that list objects, page by page
//	call.go     one run of a command: requests, output, what was done
//	connect.go  a client without flags, for logging in
//	identify.go naming a server that is not the one that a command is for
//	confirm.go  asking before something is destroyed
//	input.go    values of flags
//	job.go      waiting for work that takes long
//	follow.go   streams of events, and connecting again; transfer.go: files
//
// A is the service's generated client everywhere.
package verb
