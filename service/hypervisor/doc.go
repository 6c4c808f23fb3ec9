// Package hypervisor is the daemon that runs virtual machines on a host, and the registry
// of a fleet of such hosts.
//
//	service.go, open.go       New, Run, Serve, Close; what New opens
//	record.go                 VMs and their events, as they are stored
//	create.go                 from a request to a VM that is stopped
//	base.go, choose.go        what it is made of, and which backend runs it
//	admit.go                  what makes no sense, and what the policy does not allow
//	life.go                   start, stop, pause, resume, delete
//	outfit.go                 what a VM has on the host while it runs
//	machine.go                what the daemon holds of a VM in memory
//	recover.go                after the daemon was away
//	halt.go                   VMs that their backend halts of its own accord
//	agent.go                  the session with the guest's agent
//	console.go, socket.go     consoles and screens, and the sockets to them (ticket.go)
//	images.go, addition.go    the catalog, and taking in what is added to it
//	disks.go, snapshots.go, revert.go, backups.go, clones.go
//	operation.go              what takes long
//	access.go                 who may call
//	http*.go                  translation between contract and domain, nothing else
//
// Packages below have a part each: vm the states, admission and placement the rules,
// backend the programs that run VMs, storage and catalog the disks and what they are made
// of, network, guest, fleet.
//
// # States of a VM
//
// See package vm. What a move means on the host is done after it is stored: so a daemon
// that is killed knows, when it comes back, what it was about (restore).
//
// # Invariants
//
//   - A VM's process outlives the daemon. The daemon that comes back finds it, and nothing
//     is started twice: what may be left of a process is ended before a new one is started.
//   - What was acknowledged is in the database. A VM that was never acknowledged leaves
//     nothing on the host.
//   - What is made or removed within a disk is stored before, and found again by a daemon that
//     comes back (settle).
//   - Whoever changes what a VM has on the host holds the machine's work lock; its state is
//     changed by move alone, which asks vm.Next. Only destroy kills processes without it.
//   - No call of a VM's process or guest is without an end.
//   - Caps are checked and VMs are counted under one lock and in one transaction.
//   - Another tenant's VM is not there: callers see what caller.Caller.Sees.
//   - The guest, and the process that its guest may have taken over, are enemies: they are
//     bounded in what they send, and their files are never followed: what they wrote a disk
//     to is copied to a file of the daemon's own first, and inspected there (image.Adopt).
package hypervisor
