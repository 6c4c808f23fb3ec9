// Package edge is the edge control plane: the sites at the edge, the events that
// they send, and the devices that they look after.
//
// # What is where
//
//	service.go       New and Run: what the service is made of
//	config.go        its settings
//	http*.go         translation between the contract (api/edge) and the domain
//	access.go        the authorization table; caller.go, token.go, login.go: who calls
//	org.go           tenants
//	site.go          enrollment and liveness; heartbeat.go, certificate.go
//	event.go         durable ingest; route.go, delivery/, deadletter.go: delivery
//	device.go        devices, twins and updates; twin/, ota/: their rules; otareport.go: how far updates are
//	campaign*.go     staged updates; campaign/: their rules
//	deployment.go    containers on sites; policy.go: which are allowed
//	alert.go         what needs attention; activity.go, overview.go: what happens
//	maintenance.go   retention
//
// # Invariants
//
//   - What was answered with success survives kill -9 (package kit/db).
//   - A change, its audit entry, its tallies and the jobs that follow from it are
//     one transaction.
//   - Callers see their own scope: the org's objects for org tokens, the site's for
//     agents, all for global tokens. What lies outside does not exist (404).
//   - Everything periodic is idempotent, takes no input and may run on every replica
//     at once.
//   - Nothing held in memory decides what was accepted or what is to be done; after
//     a crash the database says it all.
package edge
