// Package daemon is what the commands `mainstay vm`, `mainstay image` and `mainstay
// fleet` share: how they reach the hypervisor daemon, and what they are made of.
//
//	session.go    address, token, authorities; clients and sockets made of them
//	call.go       one call: send it, read the answer, name what went wrong
//	verb.go       commands: object, remove, group; list.go: lists and their pages
//	input.go      what flags take; confirm.go: asking back
//	name.go       VMs by id or by name
//	operation.go  what takes long: follow it, and cancel it on Ctrl-C
//	transfer.go   files to and from the daemon; progress.go: the line that shows it
//
// Commands print the JSON that the API answered and not what the generated types made of
// it, so that --output json shows every field, those of a newer daemon too.
//
// Invariants: a file that was fetched is there whole or not at all; the token goes to the
// daemon alone, and is never printed.
package daemon
