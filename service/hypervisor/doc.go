// Package hypervisor is the daemon that runs virtual machines on a host, and the registry
// of a fleet of such hosts.
//
// The work is done in "rooms", the packages below this one. This package only wires them together:
// settings (config.go, reload.go), New, Run, Serve and Close (service.go), what New opens (open.go,
// backends_*.go), metrics, and this host's part in a fleet (fleet.go).
//
//	httpapi/     translates the API contract to calls of rooms; credentials, tickets, sockets
//	recovery/    on start: reconciles what is stored with what the host has
//	migrate/     moves VMs to and from other hosts of the fleet
//	disk/        disks and CDs: add, remove, resize, limit, snapshot, revert, backup, clone
//	life/        create, start, pause, stop, delete, expire
//	template/    VMs with their memory, from which other VMs start
//	policy/      network policies of VMs, and what they decided
//	usage/       measures what running VMs use
//	agent/       the session with a guest's agent; programs and files in guests
//	plan/        from a request to an admitted row: defaults, checks, choice of backend
//	host/        a VM's resources on the host: folder, uid, volume, tap, control group, seed
//	catalog/     images, additions, signatures, contents
//	operation/   long-running work as durable jobs
//	machine/     a VM's in-memory state: process, session, console; With, the work lock
//	record/      rows and SQL; the only package that changes a VM's state
//	caller/      who the caller is and what it may see
//	fleet/       the registry of hosts, and the reporter to a registry
//
// Rules that need no host: vm (states), admission, placement. Programs that run VMs: backend and
// the packages below it, qmp, accel. Parts that do not know about VMs: storage, network, netpolicy,
// cgroup, seed, image, guest, demo, configfile. A room imports only rooms below it; rooms_test.go lists the
// allowed imports.
//
// # How a VM is created
//
//  1. httpapi identifies the caller and translates the request to a plan.Request.
//  2. plan.Prepare checks it and finds the VM's sources, in the catalog or among the host's files.
//  3. plan.Admit chooses the backend; record.Admit counts the VM and inserts its row as creating.
//  4. life.Create takes the work lock (machine.With), which reads the row again.
//  5. host.Make creates the folder, disk and seed. If it fails, life.Undo removes them.
//  6. record.Move stores that the VM is stopped and, if requested, that it is starting.
//  7. After the response, in With again: host.Equip creates the tap, the backend starts the process
//     (from a template if one fits),
//     host.Confine limits it, record.Move stores that it is running, and life.Adopt follows it.
//  8. If the daemon is killed before 6, recovery undoes the creation; after 6 it starts the process
//     again.
//
// # States of a VM
//
// See package vm. A move is stored before it is carried out on the host, so a daemon that was
// killed knows on restart what it was doing (package recovery).
//
// # Invariants
//
//   - VMs keep running while the daemon is down; it reattaches on start. Nothing is started twice:
//     the remains of an old process are killed before a new one is started.
//   - Acknowledged changes are in the database. A VM that was never acknowledged leaves nothing on
//     the host.
//   - Changes inside a disk are stored before they are made, and a restarted daemon finds them
//     again (disk.Settle).
//   - Changing a VM's resources on the host requires the machine's work lock (machine.With). Only
//     record.Move changes its state, and it asks vm.Next. Only deletion kills processes without the
//     lock.
//   - Every call to a VM's process or guest has a timeout.
//   - A VM that starts from a template has its own secret, keys, names, addresses and random numbers
//     before its network is connected and its agent counts as connected.
//   - Caps are checked and VMs are counted under one lock and in one transaction.
//   - Tenants see only their own VMs; others do not exist for them (caller.Caller.Sees).
//   - The guest is untrusted, and so is its process, which the guest may have taken over. Their
//     output is limited, and references in their files are never followed: a disk that they wrote
//     is first copied to a file of the daemon's own and inspected there (image.Adopt).
package hypervisor
