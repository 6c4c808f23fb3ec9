// Package daemon is shared by the commands `mainstay vm`, `mainstay image` and `mainstay fleet`:
// connecting to the hypervisor daemon, and building blocks of commands.
//
//	session.go    address, token, authorities; clients and sockets made of them
//	call.go       one call: send it, read the answer, name what went wrong
//	verb.go       commands: object, remove, group; list.go: lists and their pages
//	input.go      what flags take; confirm.go: asking back
//	name.go       VMs by id or by name
//	operation.go  what takes long: follow it, and cancel it on Ctrl-C
//	transfer.go   files to and from the daemon; progress.go: the line that shows it
//
// Commands print the JSON that the API returned rather than the decoded generated types, so that
// --output json shows every field, including those of a newer daemon.
//
// Invariants: a downloaded file is complete or does not exist; the token is sent only to the
// daemon, and is never printed.
package daemon
