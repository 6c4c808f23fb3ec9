// Package edge is the edge control plane. It manages sites at the edge, the events that they send
// and the devices that they look after.
//
// # Files
//
//	service.go       New and Run
//	config.go        its settings
//	http*.go         translation between the contract (api/edge) and the domain
//	access.go        the authorization table; caller.go, token.go, login.go: callers and their credentials
//	org.go           tenants
//	site.go          enrollment and liveness; heartbeat.go, certificate.go
//	event.go         durable ingest; eventsearch.go, topicmap/: their list; route.go, delivery/, deadletter.go: delivery
//	device.go        devices, twins and updates; twin/, ota/: their rules; otareport.go: progress of updates
//	campaign*.go     staged updates; campaign/: their rules
//	deployment.go    containers on sites; policy.go: which are allowed
//	alert.go         alerts; activity.go, overview.go: the activity log and the overview
//	history.go       counts over time
//	maintenance.go   retention
//
// # Invariants
//
//   - A change that was acknowledged survives kill -9 (package kit/db).
//   - A change, its audit entry, its tallies and the jobs that follow from it are
//     one transaction.
//   - Callers see only their own scope: the org's objects for org tokens, the site's
//     for agents, everything for global tokens. Objects outside return 404.
//   - All periodic work is idempotent, takes no input and may run on every replica
//     at once.
//   - No decision about what was accepted or what is left to do depends on memory;
//     after a crash the database has all of it.
package edge
