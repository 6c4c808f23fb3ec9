// Package record stores the rows of VM management: tenants, VMs, their events and snapshots, jobs,
// network policies, usage and invoices, and the audit log. It is the only package with SQL, apart from
// identity, which stores users.
//
// # States of a VM
//
// The state is the last one that the hypervisor daemon told, or starting while a job starts the VM.
//
//	            StartVM                the daemon says so
//	stopped ───────────────► starting ────────────────────► running ◄──► paused
//	   ▲                        │                              │
//	   │     it did not start   │         stopping             │
//	   └────────────────────────┴───────────◄──────────────────┘
//
//	failed: it ended badly, or did not come up. missing: the daemon does not know it any more.
//
// # Invariants
//
//   - A change and its audit entry are one transaction. What was acknowledged is stored.
//   - Methods read the caller from the context. What is outside of its scope does not exist.
//   - At most one unfinished job changes a VM. Begin checks that with the VM's row locked.
//   - Quotas are checked in the transaction that adds to what they limit, with the tenant's row
//     locked.
//   - A deleted VM keeps its row, which nobody sees, until the daemon has removed the VM. Its name is
//     free at once, so everything refers to VMs by id.
//   - Changes to groups, network policies and identities take turns (lockNetwork), so a group is not
//     removed while it is given to a VM.
//
// It imports caller, netpolicy and tariff.
package record
