// Package vm is VM management: the service through which people own virtual machines. It has users,
// tenants with quotas, and the life of VMs from their creation to their removal. The VMs themselves
// run on a hypervisor daemon, or on a fleet of them, which it uses through their contract alone
// (api/hypervisor).
//
// The work is done in "rooms", the packages below this one. This package only wires them together:
// settings (config.go), New, Run, Serve and Close (service.go), and what New opens (open.go).
//
//	httpapi/     translates the API contract to calls of rooms; credentials
//	watch/       keeps what is stored like what the daemon tells
//	compliance/  how VMs and guests are set up, checked against profiles
//	dataplane/   network policies: what the daemon enforces, identities, flows
//	life/        create, start, stop, pause, clone, delete
//	image/       what VMs are made of: built, downloaded, imported
//	snapshot/    snapshots and their tree
//	backup/      backups, their policies, restores
//	browse/      files in backups
//	nbd/         serves a disk to a VM
//	repository/  where backups are kept: encrypted, deduplicated, in a folder or a bucket
//	notify/      events for webhooks
//	billing/     what VMs use, prices, invoices
//	job/         long work as durable jobs
//	driver/      the client of the daemon, or of a fleet's registry
//	record/      rows and SQL: tenants, VMs, events, snapshots, jobs, audit log
//	netpolicy/   the rules of network policy, as plain functions
//	identity/    users, passwords, tokens, second factors, throttling
//	pam/         the client of the process that asks the host about its accounts
//	caller/      who the caller is and what it may see
//
// A room imports only rooms below it.
//
// # How a VM is created
//
//  1. httpapi identifies the caller and checks the request; the tenant is that of the caller.
//  2. record.Add checks the tenant's quota and stores the VM as stopped, with its job. That is
//     acknowledged.
//  3. The job has the daemon make the VM, with the VM's id as a label. If the service is killed, the
//     job runs again and finds the VM by that label.
//  4. record.Made stores where the VM is. If a start was asked for meanwhile, its job begins.
//  5. If the daemon refuses, last_error says why. The next start tries again.
//
// # Invariants
//
//   - What was acknowledged is in the database, and a change and its audit entry are one
//     transaction.
//   - The daemon's word counts for the state of a VM. watch repairs what was missed.
//   - VMs do not depend on this service: they keep running while it is down.
//   - At most one job changes a VM.
//   - Tenants see only their own things; others do not exist for them.
//   - With PostgreSQL, several replicas may run.
package vm
