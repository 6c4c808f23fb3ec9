// Package machine holds the in-memory state of VMs: each VM's process, the session with its guest
// agent, its console, and its work lock. Everything that must survive is stored (package record),
// so a daemon that is killed loses nothing with its machines.
//
//	set.go       the Set of all machines, and the goroutines that follow them
//	machine.go   one Machine
//	with.go      With: exclusive access to a VM's resources on the host
//	console.go   serial consoles
//	served.go    whether a client serves the VM's disk
//
// # Invariants
//
//   - Changing a VM's resources on the host requires the work lock: run in With, or hold the lock
//     from Work. Only one caller at a time works on a VM.
//   - With passes the VM's row as read after the lock was taken, in the caller's scope.
//   - Goroutines that follow a VM are started by the Set, and end with the VM or with Depart.
//
// It imports record, backend and guest.
package machine
