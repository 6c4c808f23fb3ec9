// Package record stores the rows of the storage gateway: tenants, backends with what they tell about
// themselves, policies, volumes, snapshots, buckets, jobs, and the audit log. It is the only package with SQL.
//
//	store.go      Store, audit entries
//	tenant.go     tenants, their quotas and their use
//	backend.go    backends, clusters, pools, OSDs
//	policy.go     policies
//	volume.go     volumes
//	image.go      volumes as images that users of the storage system know, and what only those have
//	discovery.go  what a pass over a storage system has seen
//	snapshot.go   snapshots
//	bucket.go     buckets
//	job.go        jobs
//	backup.go     backups
//	group.go      groups of volumes, and their snapshots
//	schedule.go   what is done at regular times
//	peer.go       clusters that volumes can be mirrored to
//	mirror.go     volumes that are mirrored
//	event.go      what happened: changes, ends of jobs, alerts
//	sample.go     numbers about Ceph clusters
//
// # Invariants
//
//   - A change, its job and its audit entry are one transaction. What was acknowledged is stored.
//   - Methods read the caller from the context. What is outside of its scope does not exist.
//   - States change only as package state says, with the row locked.
//   - Quotas are checked in the transaction that adds to what they limit, with the tenant's row locked.
//   - A volume counts with its new size from the moment an expansion is accepted. If that fails, it counts
//     with what the storage system says.
//   - A cluster's native id is pinned: another storage system in its place is refused.
//   - Rows of deleted volumes stay while snapshots, jobs or backups refer to them; nobody sees them.
//
// It imports caller, driver and state.
package record
