// Package httpapi translates the contract of the storage gateway (api/storage) to calls of the domain, and
// nothing else. gRPC (package grpcapi) calls its operations, too, so that both have the same rules.
//
//	api.go        API: the handler, errors
//	access.go     the tenants of requests
//	person.go     who uses the console
//	accepted.go   requests that begin jobs
//	admit.go      options of requests that take an admin
//	backends.go   backends, clusters, pools
//	osds.go       OSDs
//	volumes.go    volumes
//	snapshots.go  snapshots and clones
//	images.go     images in Ceph clusters
//	groups.go     groups of volumes
//	dr.go         peers, mirrors and failover
//	buckets.go    buckets
//	backups.go    backups
//	schedules.go  what is done at regular times
//	alerts.go     alerts
//	capacity.go   how full clusters are, and were
//	maintenance.go  pause and resume of jobs
//	events.go     what happened
//	operations.go preflight of upgrades, numbers of Ceph clusters
//	policies.go   policies and tenants
//	jobs.go       jobs
//	audit.go      the audit log
//
// # Invariants
//
//   - The tenant of a request is that of the caller's token, if it has one.
//   - Callers with a tenant do not see how backends are reached and why not.
//
// It imports the other rooms but grpcapi and schedule.
package httpapi
