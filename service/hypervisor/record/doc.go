// Package record stores the rows of the daemon: VMs with their events, snapshots, backups, shared
// disks, images and operations. It has all of the service's SQL except that of package fleet, and
// is the only package that changes state. Other packages carry the changes out on the host.
//
//	store.go       the Store, its transactions and its audit entries
//	vm.go          VMs as stored, and lists of them
//	change.go      Move and Change: how a VM's row changes
//	admit.go       inserts the row of a new VM after checking the policy; removes rows
//	hardware.go    what a VM's process has, and what is wanted; Reconfigure
//	start.go       what a VM is started with once
//	event.go       events of VMs
//	feed.go        events of all VMs, for streams
//	secret.go      the sealed secrets of guest agents
//	disk.go      the disks of VMs beside their system disks, and the media of their CD drives
//	snapshot.go, backup.go, base.go
//	usage.go       what VMs used, by minute
//	image.go       names in the catalog
//	template.go    templates, from whose memory VMs start
//	operation.go   long-running operations
//	audit.go       writing and reading the audit log
//
// # Invariants
//
//   - Only Move changes a VM's state, and it asks vm.Next.
//   - Each method is one transaction: the change, its event and its audit entry are stored together
//     or not at all. No transaction waits for anything on the host.
//   - Reads by id are in the caller's scope: rows of other tenants are not found.
//   - Caps are checked and VMs are counted under one lock and in one transaction.
//
// It imports caller, vm and admission.
package record
