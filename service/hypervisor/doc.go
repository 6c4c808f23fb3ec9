// Package hypervisor is the daemon that runs virtual machines on a host, and the registry
// of a fleet of such hosts.
//
// The work is done in rooms, the packages below this one. This package is wiring alone: settings
// (config.go, reload.go), New, Run, Serve and Close (service.go), what New opens (open.go,
// backends_*.go), metrics, and this host's part in a fleet (fleet.go).
//
//	httpapi/     the contract to calls of rooms; credentials, tickets, sockets
//	recovery/    after the daemon was away: what is stored and what the host has come together
//	disk/        resize, snapshot, revert, backup, clone
//	life/        create, start, pause, stop, delete, expire
//	agent/       the session with a guest's agent; programs and files in guests
//	plan/        from a request to an admitted row: defaults, checks, choice of backend
//	host/        what a VM has on the host: folder, uid, volume, tap, control group, seed
//	catalog/     images, additions, signatures, contents
//	operation/   what takes long: durable jobs
//	machine/     what is held of a VM in memory: process, session, console; With, the work lock
//	record/      rows and SQL; it alone changes state
//	caller/      who calls, and what they see
//	fleet/       the registry of hosts, and the reporter to one
//
// Rules without a host: vm (states), admission, placement. Programs that run VMs: backend and what is
// below it, qmp, accel. Parts that know nothing of VMs: storage, network, cgroup, seed, image, guest,
// demo, configfile. A room imports only those below it; rooms_test.go has the arrows.
//
// # How a VM is made
//
//  1. httpapi tells who calls, and makes a plan.Request of the request.
//  2. plan.Prepare checks it, and finds what the VM is made of, in catalog or among the host's files.
//  3. plan.Admit chooses the backend; record.Admit counts the VM and makes its row, in state creating.
//  4. life.Create takes the work lock (machine.With), which reads the row again.
//  5. host.Make makes folder, disk and seed. If it fails, life.Undo takes all of that away.
//  6. record.Move stores that the VM is stopped and, if that is asked, that it is starting.
//  7. Behind the answer, in With again: host.Equip gives it a tap, the backend starts its process,
//     host.Confine bounds that, record.Move stores that it runs, and life.Adopt follows it.
//  8. A daemon that is killed before 6 undoes it (recovery); after 6 it starts the process again.
//
// # States of a VM
//
// See package vm. What a move means on the host is done after it is stored: so a daemon
// that is killed knows, when it comes back, what it was about (package recovery).
//
// # Invariants
//
//   - A VM's process outlives the daemon. The daemon that comes back finds it, and nothing
//     is started twice: what may be left of a process is ended before a new one is started.
//   - What was acknowledged is in the database. A VM that was never acknowledged leaves
//     nothing on the host.
//   - What is made or removed within a disk is stored before, and found again by a daemon that
//     comes back (disk.Settle).
//   - Whoever changes what a VM has on the host holds the machine's work lock (machine.With); its
//     state is changed by record.Move alone, which asks vm.Next. Only deleting kills processes
//     without the lock.
//   - No call of a VM's process or guest is without an end.
//   - Caps are checked and VMs are counted under one lock and in one transaction.
//   - Another tenant's VM is not there: callers see what caller.Caller.Sees.
//   - The guest, and the process that its guest may have taken over, are enemies: they are
//     bounded in what they send, and their files are never followed: what they wrote a disk
//     to is copied to a file of the daemon's own first, and inspected there (image.Adopt).
package hypervisor
