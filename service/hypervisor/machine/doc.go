// Package machine holds what the daemon has of VMs in memory: the process of each, the session
// with its guest's agent, its console, and who works on it. What matters is stored (package
// record): a daemon that is killed loses nothing with its machines.
//
//	set.go       the Set of all machines, and the goroutines that follow them
//	machine.go   one Machine
//	with.go      With: how somebody gets to change what a VM has on the host
//	console.go   serial consoles
//
// # Invariants
//
//   - Whoever changes what a VM has on the host does so in With, or holds what Work gave. One
//     works on a VM at a time.
//   - What With hands to the work is the VM as it is stored once the others are done, and in the
//     caller's scope.
//   - A goroutine that follows a VM was started by the Set, and ends with the VM or with Depart.
//
// It imports record, backend and guest.
package machine
