// Package storage is the storage gateway: one API over Ceph clusters and other storage systems, with volumes,
// snapshots and clones, buckets, quotas of tenants, and every change as a durable job.
//
// The work is done in "rooms", the packages below this one. This package only wires them together: settings
// (config.go), New, Run, Serve and Close (service.go), what New opens (open.go), and which driver a backend has
// (connect.go).
//
//	grpcapi/    translates gRPC to the operations of the API contract
//	httpapi/    translates the API contract to calls of rooms
//	gate/       credentials, and who may do what
//	provision/  makes, expands, clones, snapshots and removes volumes
//	bucket/     makes, reads and removes buckets
//	dr/         mirrors volumes to other sites, and moves their work there
//	osd/        takes OSDs out and in
//	monitor/    alerts, and how full clusters are over time
//	backend/    connections to the storage systems, and passes over what they have
//	job/        long work as durable jobs
//	record/     rows and SQL: tenants, backends, policies, volumes, snapshots, buckets, jobs, audit log
//	driver/     the seam to storage systems, and a driver for each
//	state/      the states of volumes, snapshots and buckets, as plain functions
//	caller/     who the caller is and what it may see
//
// A room imports only rooms below it.
//
// # Invariants
//
//   - What was acknowledged is in the database, and a change, its job and its audit entry are one transaction.
//   - What a job leads to is taken from the storage system, not from what was asked for.
//   - One storage system that does not answer delays only those who ask for it.
//   - Volumes and buckets that the gateway did not make are only read.
//   - Tenants see only their own things; others do not exist for them.
//   - With PostgreSQL, several replicas may run.
package storage
