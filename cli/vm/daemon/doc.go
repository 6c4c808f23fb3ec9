// Package daemon is shared by the commands `mainstay vm`, `mainstay image` and `mainstay fleet`:
// connecting to the hypervisor daemon, and building blocks of commands.
//
//	session.go    how the daemon is reached
//	name.go       what arguments name: VMs, backups, images, hosts
//	operation.go  what takes long: follow it, and cancel it on Ctrl-C
//
// Commands print the JSON that the API returned rather than the decoded generated types, so that
// --output json shows every field, including those of a newer daemon.
//
// Invariants: a downloaded file is complete or does not exist; the token is sent only to the
// daemon, and is never printed.
package daemon
