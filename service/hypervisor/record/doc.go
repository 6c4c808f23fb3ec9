// Package record holds the rows of the daemon: VMs with their events, snapshots, backups, shared
// disks, images and operations. It has all SQL of the service but that of package fleet, and it
// alone changes state. What is done on the host about a change is the business of others.
//
//	store.go       the Store, its transactions and its audit entries
//	vm.go          VMs as they are stored, and lists of them
//	change.go      Move and Change: how a VM's row changes
//	admit.go       the row of a new VM, counted against the policy; the end of a row
//	event.go       what happened to a VM
//	secret.go      the secrets of guest agents, sealed
//	snapshot.go, backup.go, base.go
//	image.go       names in the catalog
//	operation.go   what takes long
//	audit.go       reading the audit log
//
// # Invariants
//
//   - A VM's state is changed by Move alone, which asks vm.Next.
//   - Each method is one transaction: the change, its event and its audit entry are stored
//     together or not at all. No transaction waits for anything of the host.
//   - Reads by an id are in the caller's scope: what belongs to another tenant is not there.
//   - Caps are checked and VMs are counted under one lock and in one transaction.
//
// It imports caller, vm and admission.
package record
